"""Problems of `floor.py` and `choosing.py`: models with rows and test functions.

`PROBLEMS["probit-50"]()` builds a problem from fixed seeds. They have many coordinates (probit,
Wishart), exchangeable components (mixture), rare events that few shards have (rare-probit,
logistic, poisson, simplex), or constrained parameters (robust, simplex, correlation).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

import vcmc
from vcmc.data.rows import Rows
from vcmc.models import GaussianMixture, Logistic, NormalWishart, Probit
from vcmc.models.regression import rare_covariate
from vcmc.results.tree import posterior_draws
from vcmc.space import Params

RARE_RATE = 0.002  # of the rare covariate: one row of 500
BATCH_DRAWS = 100  # draws whose test functions are evaluated together


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, rows, and test functions.

    Attributes:
        name: name of the problem.
        model: the model.
        rows: all rows.
        num_draws: draws per shard and per serial chain.
        test_functions: scalar functions of the params, as one vector.
        stretch: length of the reference chains, in units of `num_draws`.
        truth: params that generated the rows, where a chain might be in another mode.
    """

    name: str
    model: vcmc.Model
    rows: dict[str, np.ndarray]
    num_draws: int
    test_functions: Callable[[Params], Float[Array, " quantity"]]
    stretch: int = 4
    truth: Mapping[str, np.ndarray] | None = None

    def quantities(self, posterior: Any) -> Float[np.ndarray, "draw quantity"]:
        """Return the test functions of all draws; see `named_draws` for their forms."""
        draws = {name: jnp.asarray(array) for name, array in named_draws(posterior).items()}
        return np.asarray(
            _apply(self.test_functions, {name: draws[name] for name in self.model.space})
        )


@partial(jax.jit, static_argnums=0)
def _apply(functions: Callable[[Params], Array], draws: Params) -> Float[Array, "draw quantity"]:
    return jax.lax.map(functions, draws, batch_size=BATCH_DRAWS)


def named_draws(posterior: Any) -> dict[str, np.ndarray]:
    """Return arrays (draw, …) from a tree, a dataset (chain, draw, …) or named arrays (draw, …)."""
    if hasattr(posterior, "children"):  # a DataTree
        return posterior_draws(posterior)
    if hasattr(posterior, "data_vars"):  # a Dataset
        arrays = {str(name): values.to_numpy() for name, values in posterior.data_vars.items()}
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    return dict(posterior)


def coefficients(params: Params) -> Array:
    return params["beta"]


def probit(dim: int, num_rows: int, num_draws: int, stretch: int) -> Problem:
    """Return a regression with independent covariates and coefficients of norm about one."""
    model = Probit(dim)
    beta = np.random.default_rng(1).normal(size=dim) / np.sqrt(dim)
    rows = model.simulate(0, num_rows, {"beta": beta}).rows
    return Problem(f"probit-{dim}", model, rows, num_draws, coefficients, stretch)


def wishart(dim: int, num_rows: int, num_draws: int) -> Problem:
    """Return a precision matrix drawn from its prior; test functions are its eigenvalues."""
    model = NormalWishart(dim)
    rows = model.simulate(0, num_rows).rows
    return Problem(
        f"wishart-{dim}",
        model,
        rows,
        num_draws,
        lambda params: jnp.linalg.eigvalsh(params["precision"]),
    )


def mixture(noise_scale: float, stretch: int) -> Problem:
    """Return eight centres in eight dimensions; test functions are comemberships of 100 points."""
    model = GaussianMixture(8, 8, prior_scale=2.0, noise_scale=noise_scale)
    truth, rows = model.simulate(0, 50_000)
    fresh = jnp.asarray(model.simulate(1, 100, truth).rows["x"])
    return Problem(
        f"mixture-{noise_scale:.0f}",
        model,
        rows,
        1000,
        lambda params: model.test_functions(params, fresh)["comembership"],
        stretch,
        truth,
    )


def rare_probit() -> Problem:
    """Return the design of Scott et al. (2016): few ones, and a covariate in 1 % of the rows."""
    return Problem("rare-probit-5", Probit(5), rare_covariate(0, 8500), 1000, coefficients)


def covariates(
    generator: np.random.Generator, num_rows: int, dim: int, correlation: float
) -> np.ndarray:
    """Simulate an intercept, equicorrelated normal covariates and, last, a rare binary one."""
    shared = np.sqrt(correlation) * generator.normal(size=(num_rows, 1))
    own = np.sqrt(1 - correlation) * generator.normal(size=(num_rows, dim - 2))
    return np.column_stack(
        [np.ones(num_rows), shared + own, generator.random(num_rows) < RARE_RATE]
    )


def logistic() -> Problem:
    """Return a regression with covariates of correlation 0.5 and a rare one."""
    num_rows, dim = 50_000, 20
    generator = np.random.default_rng(2)
    x = covariates(generator, num_rows, dim, correlation=0.5)
    beta = np.concatenate([[-2.0], 0.3 * generator.normal(size=dim - 2), [2.0]])
    y = generator.random(num_rows) < 1 / (1 + np.exp(-x @ beta))
    return Problem("logistic", Logistic(dim), {"x": x, "y": y.astype(float)}, 1000, coefficients)


def poisson() -> Problem:
    """Return counts, mostly zero, with a log link and a rare covariate."""
    num_rows, dim = 50_000, 10
    generator = np.random.default_rng(3)
    x = covariates(generator, num_rows, dim, correlation=0.0)
    beta = np.concatenate([[-1.0], 0.3 * generator.normal(size=dim - 2), [1.0]])
    y = generator.poisson(np.exp(x @ beta)).astype(float)

    def log_likelihood(params: Params, rows: Rows) -> Float[Array, " row"]:
        log_rate = jnp.asarray(rows["x"]) @ params["beta"]
        # up to log y!, which does not depend on parameters
        return jnp.asarray(rows["y"]) * log_rate - jnp.exp(log_rate)

    model = vcmc.Model(
        space={"beta": vcmc.Real(dim)},
        log_prior=lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
        log_likelihood=log_likelihood,
    )
    return Problem("poisson", model, {"x": x, "y": y}, 1000, coefficients)


def robust() -> Problem:
    """Return a regression with Student's t noise of unknown scale and degrees of freedom."""
    num_rows, dim = 20_000, 8
    generator = np.random.default_rng(4)
    x = generator.normal(size=(num_rows, dim))
    beta = generator.normal(size=dim)
    rows = {"x": x, "y": x @ beta + 2.0 * generator.standard_t(4.0, size=num_rows)}

    def regression(x: Array, y: Array) -> None:
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([dim]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(0, 1))
        dof = numpyro.sample("dof", dist.Gamma(2, 0.1))
        numpyro.sample("y", dist.StudentT(dof, x @ beta, scale), obs=y)

    model = vcmc.from_numpyro(regression, rows)
    return Problem(
        "robust",
        model,
        rows,
        1000,
        lambda params: jnp.concatenate(
            [params["beta"], params["scale"][None], params["dof"][None]]
        ),
    )


def simplex() -> Problem:
    """Return eight categories, two of them rare; the exact posterior is a Dirichlet."""
    counts = np.array([8000, 5000, 3000, 2000, 1475, 500, 20, 5])
    y = np.random.default_rng(5).permutation(np.repeat(np.arange(len(counts)), counts))
    model = vcmc.Model(
        space={"shares": vcmc.Simplex(len(counts))},
        log_prior=lambda _: jnp.zeros(()),  # uniform
        # index first: the logarithm of a share that underflowed to zero has no gradient
        log_likelihood=lambda params, rows: jnp.log(params["shares"][rows["y"]]),
    )
    return Problem("simplex", model, {"y": y}, 1000, lambda params: params["shares"])


def correlation() -> Problem:
    """Return four correlated columns; test functions are their correlations and scales."""
    num_rows, dim = 10_000, 4
    generator = np.random.default_rng(6)
    root = np.linalg.cholesky(0.6 * np.eye(dim) + 0.4) * np.array([0.5, 1.0, 2.0, 4.0])[:, None]
    rows = {"x": generator.normal(size=(num_rows, dim)) @ root.T}

    def normal(x: Array) -> None:
        scales = numpyro.sample("scales", dist.LogNormal(0, 1).expand([dim]).to_event(1))
        correlations = numpyro.sample("correlations", dist.LKJ(dim, 2.0))
        root = scales[:, None] * jnp.linalg.cholesky(correlations)
        numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(dim), scale_tril=root), obs=x)

    pairs = np.triu_indices(dim, 1)
    return Problem(
        "correlation",
        vcmc.from_numpyro(normal, rows),
        rows,
        1000,
        lambda params: jnp.concatenate([params["correlations"][pairs], params["scales"]]),
    )


PROBLEMS: dict[str, Callable[[], Problem]] = {  # the quick ones first
    "wishart-5": partial(wishart, 5, 5000, 1000),
    "simplex": simplex,
    "correlation": correlation,
    "rare-probit-5": rare_probit,
    "robust": robust,
    "poisson": poisson,
    "logistic": logistic,
    "probit-50": partial(probit, 50, 20_000, 1000, stretch=10),
    "wishart-30": partial(wishart, 30, 20_000, 1000),
    "mixture-1": partial(mixture, 1.0, stretch=4),
    "mixture-2": partial(mixture, 2.0, stretch=20),
    "probit-300": partial(probit, 300, 100_000, 1000, stretch=4),
    "wishart-100": partial(wishart, 100, 100_000, 200),
}
