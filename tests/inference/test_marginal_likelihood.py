"""Evidence against closed forms, its verdict, and models that have none."""

import re

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import betaln, gammaln, logsumexp, multigammaln

import vcmc
from vcmc.results.tree import make_tree

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(300, 4))
Y = X @ [1.0, -0.5, 0.2, 0.0] + 0.7 * GENERATOR.normal(size=300)


def assert_close(found, exact):
    """Within 3 standard errors or 0.05 nats, whichever is less, and good."""
    assert found.verdict == "good", str(found)
    assert found.standard_error < 0.05
    assert abs(found.value - exact) < min(0.05, 3 * found.standard_error + 1e-6), str(found)


def regression(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 0.7), obs=y)


@pytest.fixture(scope="module")
def fitted():
    rows = {"x": X, "y": Y}
    model = vcmc.from_numpyro(regression, rows)
    return vcmc.infer(model, rows, num_shards=4), model, rows


def regression_evidence(x, y):
    covariance = 0.49 * np.eye(len(y)) + 4 * x @ x.T
    return stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)


def test_a_conjugate_regression_has_its_closed_form(fitted):
    found = vcmc.evidence(*fitted)
    assert_close(found, regression_evidence(X, Y))
    assert found.method == "importance sampling"
    assert str(found).startswith(f"log marginal likelihood {found.value:.2f} ± 0.0")
    assert str(found).endswith("good.")
    assert found._repr_html_() == f"<p>{found}</p>"


def test_beta_bernoulli_has_its_closed_form():
    def coin(y):
        share = numpyro.sample("share", dist.Beta(2.0, 5.0))
        numpyro.sample("y", dist.Bernoulli(share), obs=y)

    rows = {"y": (GENERATOR.random(200) < 0.1).astype(float)}
    model = vcmc.from_numpyro(coin, rows)
    tree = vcmc.infer(model, rows, num_shards=2)
    heads = rows["y"].sum()
    assert_close(
        vcmc.evidence(tree, model, rows), betaln(2 + heads, 205 - heads) - betaln(2.0, 5.0)
    )


def test_a_normal_wishart_model_has_its_closed_form():
    model = vcmc.models.NormalWishart(3, mean=np.zeros(3))
    x = GENERATOR.normal(size=(400, 3)) @ np.array([[1.0, 0.5, 0.0], [0, 1, 0.3], [0, 0, 0.8]])
    tree = vcmc.infer(model, {"x": x}, num_shards=2)

    def log_constant(dof, inverse_scale):
        log_det = -np.linalg.slogdet(inverse_scale)[1]
        return 0.5 * dof * (3 * np.log(2) + log_det) + multigammaln(0.5 * dof, 3)

    prior = np.linalg.inv(model.scale)
    exact = log_constant(model.dof + 400, prior + x.T @ x) - log_constant(model.dof, prior)
    exact -= 0.5 * 400 * 3 * np.log(2 * np.pi)
    assert_close(vcmc.evidence(tree, model, {"x": x}), exact)


def test_a_hierarchical_model_with_gaussian_locals_has_its_closed_form():
    def varying(y, county, num_counties):
        mean = numpyro.sample("mean", dist.Normal(0, 3))
        with numpyro.plate("counties", num_counties):
            alpha = numpyro.sample("alpha", dist.Normal(mean, 0.8))
        numpyro.sample("y", dist.Normal(alpha[county], 1.2), obs=y)

    county = np.repeat(np.arange(20), 6)
    y = 1 + (0.8 * GENERATOR.normal(size=20))[county] + 1.2 * GENERATOR.normal(size=120)
    rows = {"y": y, "county": county}
    model = vcmc.from_numpyro(varying, rows, groups="county", num_groups="num_counties")
    tree = vcmc.infer(model, rows, num_shards=2)
    same = (county[:, None] == county).astype(float)
    covariance = 9 + 0.64 * same + 1.44 * np.eye(120)
    exact = stats.multivariate_normal(np.zeros(120), covariance).logpdf(y)
    assert_close(vcmc.evidence(tree, model, rows), exact)


def test_rows_with_weights_have_the_evidence_of_repeated_rows(fitted):
    _, model, rows = fitted
    counts = GENERATOR.integers(0, 3, size=300)
    counted = rows | {"w": counts}
    tree = vcmc.infer(model, counted, num_shards=2, weights="w")
    found = vcmc.evidence(tree, model, counted)
    assert_close(found, regression_evidence(np.repeat(X, counts, axis=0), np.repeat(Y, counts)))


def test_where_ratios_are_uneven_bridge_sampling_takes_over():
    """Rates of exponential waiting times: independent gamma variables, with skewed logarithms."""
    model = vcmc.Model(
        space={"rate": vcmc.Positive(60)},
        log_prior=lambda params: jnp.sum(dist.Gamma(1.5, 1.0).log_prob(params["rate"])),
        log_likelihood=lambda params, rows: jnp.sum(
            dist.Exponential(params["rate"]).log_prob(rows["t"]), axis=1
        ),
    )
    t = np.random.default_rng(4).exponential(size=(2, 60))
    totals = t.sum(axis=0)
    draws = np.random.default_rng(1).gamma(3.5, 1 / (1 + totals), (4000, 60))
    exact = np.sum(gammaln(3.5) - gammaln(1.5) - 3.5 * np.log1p(totals))
    for verdict in ("good", "poor"):
        groups = {"posterior": {"rate": draws[None]}}
        tree = make_tree(groups, {"verdict": verdict, "num_shards": 1})
        found = vcmc.evidence(tree, model, {"t": t})
        assert found.method == "bridge sampling"
        assert found.verdict == verdict
        assert abs(found.value - exact) < 3 * found.standard_error
    assert "bridge sampling needs draws that are right" in found.reason
    few = vcmc.evidence(tree, model, {"t": t}, num_draws=50)
    assert few.verdict == "poor"
    assert "The standard error is above 0.1 nats" in few.reason


def test_mass_that_the_student_t_misses_is_noticed():
    """Half of the mass is a spike, which no point of a Student t hits."""
    model = vcmc.Model(
        space={"mean": vcmc.Real()},
        log_prior=lambda params: jnp.logaddexp(
            dist.Normal(0, 1).log_prob(params["mean"]),
            dist.Normal(0, 1e-9).log_prob(params["mean"] - 1.0),
        ),
        log_likelihood=lambda params, rows: 0 * rows["y"] * params["mean"],
    )
    generator = np.random.default_rng(0)
    draws = np.append(generator.normal(size=2000), generator.normal(1.0, 1e-9, size=2000))
    tree = make_tree({"posterior": {"mean": draws[None]}}, {"verdict": "good", "num_shards": 1})
    found = vcmc.evidence(tree, model, {"y": np.ones(10)})
    assert found.verdict == "poor"
    (difference,) = re.findall(r"bridge sampling differ by (.+) nats", found.reason)
    # log 2, with three standard errors of the share of draws in the spike and of the ratios
    assert float(difference) == pytest.approx(np.log(2), abs=3 * np.hypot(2 / 1000**0.5, 0.02))


def test_draws_of_another_posterior_do_not_bias_it(fitted):
    tree, model, rows = fitted
    shifted = tree.copy()
    shifted["posterior"] = tree["posterior"].to_dataset() + 0.02
    found = vcmc.evidence(shifted, model, rows)
    assert abs(found.value - regression_evidence(X, Y)) < 3 * found.standard_error


def normal_given(prior):
    def model(y):
        mean = numpyro.sample("mean", prior)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    return model


@pytest.mark.parametrize(
    "prior", [dist.ImproperUniform(dist.constraints.real, (), ()), dist.Normal(0, 1).mask(False)]
)
def test_improper_priors_have_no_evidence(prior):
    rows = {"y": GENERATOR.normal(size=200)}
    model = vcmc.from_numpyro(normal_given(prior), rows)
    tree = vcmc.infer(model, rows, num_shards=2)
    with pytest.raises(ValueError, match=r"the prior of mean is improper.*no evidence"):
        vcmc.evidence(tree, model, rows)


def test_a_prior_on_a_difference_alone_has_no_evidence():
    def two_lines(x, y):
        flat = dist.ImproperUniform(dist.constraints.real, (), ())
        left, right = numpyro.sample("left", flat), numpyro.sample("right", flat)
        numpyro.factor("ridge", dist.Normal(0, 1).log_prob(left - right))
        numpyro.sample("y", dist.Normal(jnp.where(x > 0, right, left), 1), obs=y)

    rows = {"x": X[:, 0], "y": Y}
    model = vcmc.from_numpyro(two_lines, rows, prior_sites=["ridge"])
    tree = vcmc.infer(model, rows, num_shards=2)
    with pytest.raises(ValueError, match=r"prior of 1 left \+ 1 right is improper.*no evidence"):
        vcmc.evidence(tree, model, rows)


@pytest.mark.parametrize(
    "prior", [dist.Cauchy(0, 1), dist.Laplace(0, 1), dist.Normal(0, 1e4), dist.StudentT(1, 0, 5)]
)
def test_heavy_tails_are_proper(prior):
    y = 30 + np.random.default_rng(3).normal(size=200)
    model = vcmc.from_numpyro(normal_given(prior), {"y": y})
    tree = vcmc.infer(model, {"y": y}, num_shards=2)
    found = vcmc.evidence(tree, model, {"y": y})
    # the prior is nearly constant over the posterior: it is integrated numerically
    grid = y.mean() + np.linspace(-1, 1, 4001)
    logs = np.array(prior.log_prob(grid)) + stats.norm.logpdf(y[:, None], grid).sum(axis=0)
    exact = logs.max() + np.log(np.trapezoid(np.exp(logs - logs.max()), grid))
    assert_close(found, exact)


def test_bad_input_is_refused(fitted):
    tree, model, rows = fitted
    with pytest.raises(TypeError, match="tree must be a result of infer or combine"):
        vcmc.evidence({}, model, rows)
    with pytest.raises(ValueError, match="num_draws must be an integer of at least 50; got 10"):
        vcmc.evidence(tree, model, rows, num_draws=10)
    with pytest.raises(ValueError, match="evidence needs at least 100 posterior draws; got 60"):
        vcmc.evidence(tree.isel(chain=[0], draw=slice(60)), model, rows)


def test_exchangeable_components_are_refused():
    model = vcmc.models.GaussianMixture(2, 1)
    rows = model.simulate(0, 300).rows
    centres = GENERATOR.normal(size=(1, 200, *model.space["centres"].shape))
    tree = make_tree({"posterior": {"centres": centres}}, {"num_shards": 1})
    with pytest.raises(ValueError, match="exchangeable components"):
        vcmc.evidence(tree, model, rows)


def test_several_modes_have_a_proposal_each():
    """theta and -theta fit alike; the integral is that of a grid."""
    y = 4 + np.random.default_rng(0).normal(size=400)
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: -0.5 * (params["theta"] - 0.2) ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["theta"] ** 2) ** 2,
    )
    tree = vcmc.infer(model, {"y": y}, num_shards=4)
    assert "mode_weights" in tree.children
    theta, step = np.linspace(-3, 3, 60_001, retstep=True)
    sums = np.sum(y**2) - 2 * theta**2 * np.sum(y) + 400 * theta**4
    exact = logsumexp(-0.5 * (theta - 0.2) ** 2 - 0.5 * sums) + np.log(step)
    found = vcmc.evidence(tree, model, {"y": y})
    assert_close(found, exact)
    assert found.method == "importance sampling"


def test_other_rows_than_those_of_the_fit_are_refused(fitted):
    tree, model, rows = fitted
    few = {name: array[:100] for name, array in rows.items()}
    with pytest.raises(ValueError, match="that the model was fitted to, 300 rows; got 100"):
        vcmc.evidence(tree, model, few)


def test_rows_that_are_impossible_at_all_draws_are_refused():
    def coin(y):
        share = numpyro.sample("share", dist.Beta(2.0, 5.0))
        numpyro.sample("y", dist.Bernoulli(share), obs=y)

    model = vcmc.from_numpyro(coin, {"y": np.zeros(50)})
    draws = np.linspace(0.1, 0.3, 400).reshape(1, -1)
    tree = make_tree({"posterior": {"share": draws}}, {"num_shards": 2})
    with pytest.raises(ValueError, match="not finite at any of 200 posterior draws"):
        vcmc.evidence(tree, model, {"y": np.full(50, 5.0)})
