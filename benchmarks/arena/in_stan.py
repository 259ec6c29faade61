"""The problems' models as Stan programs."""


def _regression(kind: str, parameters: str, statements: str) -> str:
    """Return a program with covariates x, outcomes y and coefficients beta."""
    return (
        f"data {{ int N; int D; matrix[N, D] x; {kind} y; }}\n"
        f"parameters {{ vector[D] beta; {parameters} }}\n"
        f"model {{ {statements} }}\n"
    )


def logistic(scale: float) -> str:
    return _regression(
        "array[N] int", "", f"beta ~ normal(0, {scale}); y ~ bernoulli_logit_glm(x, 0, beta);"
    )


POISSON = _regression(
    "array[N] int",
    "real<lower=0> shape;",
    "beta ~ normal(0, 2); shape ~ normal(0, 2); y ~ neg_binomial_2_log_glm(x, 0, beta, shape);",
)

ROBUST = _regression(
    "vector[N]",
    "real<lower=0> scale; real<lower=0> dof;",
    "beta ~ normal(0, 2); scale ~ lognormal(0, 1); dof ~ gamma(2, 0.1); "
    "y ~ student_t(dof, x * beta, scale);",
)

# Log densities of components are parabolas in y, so that all rows take one matrix product.
# Row by row takes too long.
MIXTURE = """
data { int N; vector[N] y; }
transformed data {
  matrix[3, N] powers;
  for (n in 1:N) powers[, n] = [1, y[n], square(y[n])]';
}
parameters { vector[3] base; vector<lower=0>[3] scales; simplex[3] shares; }
transformed parameters {
  vector[3] centres;
  centres[1] = base[1];
  for (c in 2:3) centres[c] = centres[c - 1] + exp(base[c]);
}
model {
  matrix[3, 3] parabolas;
  matrix[3, N] terms;
  base ~ normal(0, 3);
  scales ~ lognormal(0, 0.5);
  parabolas[, 1] = log(shares) - log(scales) - 0.5 * square(centres ./ scales);
  parabolas[, 2] = centres ./ square(scales);
  parabolas[, 3] = -0.5 * inv_square(scales);
  terms = parabolas * powers;
  for (n in 1:N) target += log_sum_exp(terms[, n]);
}
"""

# `multi_normal_prec` goes row by row, which takes too long. A matrix product is the same up to a
# constant.
WISHART = """
data { int N; int D; matrix[N, D] x; }
parameters { cov_matrix[D] precision; }
model {
  precision ~ wishart(D + 2, identity_matrix(D) / (D + 2));
  target += 0.5 * N * log_determinant(precision) - 0.5 * sum((x * precision) .* x);
}
"""
