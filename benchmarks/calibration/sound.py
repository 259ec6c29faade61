"""Five models on which vcmc is right: what is not called good here is a false alarm.

All data sets of a model have the same shapes, and share the model, so that its programs are
compiled once. The truth is found by importance sampling on all rows.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from case import Case
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from truths import importance_moments

import vcmc

NUM_ROWS = 1000  # by default
NUM_SHARDS = (4, 20)
RARE_SHARE = 0.1  # of rows whose covariate is not zero: five in each of 20 shards of 50 rows
DOF = 4.0


def _case(model, rows, near, seed, num_shards, sorted_parameter="") -> Case:
    truth = importance_moments(model, rows, near, seed)
    return Case(model, rows, truth, num_shards, sorted_parameter=sorted_parameter)


LOGISTIC = vcmc.models.Logistic(5)


def logistic(seed: int, num_shards: int, num_rows: int) -> Case:
    """Return a logistic regression on an intercept and four covariates."""
    generator = np.random.default_rng(seed)
    x = np.column_stack([np.ones(num_rows), generator.normal(size=(num_rows, 4))])
    beta = np.array([-0.5, 1.0, -0.7, 0.3, 0.0]) + 0.2 * generator.normal(size=5)
    y = (generator.random(num_rows) < 1 / (1 + np.exp(-x @ beta))).astype(float)
    return _case(LOGISTIC, {"x": x, "y": y}, {"beta": beta}, seed, num_shards)


def _poisson_log_likelihood(params, rows):
    log_rate = rows["x"] @ params["beta"]
    return rows["y"] * log_rate - jnp.exp(log_rate)


POISSON = vcmc.Model(
    space={"beta": vcmc.Real(3)},
    log_prior=lambda params: jnp.sum(norm.logpdf(params["beta"], scale=3.0)),
    log_likelihood=_poisson_log_likelihood,
)


def poisson(seed: int, num_shards: int, num_rows: int) -> Case:
    """Return a Poisson regression whose last covariate is zero in most rows."""
    generator = np.random.default_rng(seed)
    rare = np.zeros(num_rows)
    rare[: round(RARE_SHARE * num_rows)] = 1.0
    x = np.column_stack([np.ones(num_rows), generator.normal(size=num_rows), rare])
    beta = np.array([0.5, 0.4, 0.8]) + 0.1 * generator.normal(size=3)
    rows = {"x": x, "y": generator.poisson(np.exp(x @ beta)).astype(float)}
    return _case(POISSON, rows, {"beta": beta}, seed, num_shards)


def _robust_log_prior(params):
    scale = params["scale"]
    return jnp.sum(norm.logpdf(params["beta"], scale=5.0)) - jnp.log1p((scale / 2.0) ** 2)


def _robust_log_likelihood(params, rows):
    residual = (rows["y"] - rows["x"] @ params["beta"]) / params["scale"]
    return -jnp.log(params["scale"]) - 0.5 * (DOF + 1) * jnp.log1p(residual**2 / DOF)


ROBUST = vcmc.Model(
    space={"beta": vcmc.Real(3), "scale": vcmc.Positive()},
    log_prior=_robust_log_prior,
    log_likelihood=_robust_log_likelihood,
)


def robust(seed: int, num_shards: int, num_rows: int) -> Case:
    """Return a regression with Student t noise of unknown scale."""
    generator = np.random.default_rng(seed)
    x = np.column_stack([np.ones(num_rows), generator.normal(size=(num_rows, 2))])
    beta, scale = generator.normal(size=3), generator.uniform(0.5, 3.0)
    rows = {"x": x, "y": x @ beta + scale * generator.standard_t(DOF, size=num_rows)}
    return _case(ROBUST, rows, {"beta": beta, "scale": scale}, seed, num_shards)


def _gamma_log_likelihood(params, rows):
    shape, rate = params["shape"], params["rate"]
    return shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * rows["log_y"] - rate * rows["y"]


GAMMA = vcmc.Model(
    space={"shape": vcmc.Positive(), "rate": vcmc.Positive()},
    log_prior=lambda params: -0.1 * (params["shape"] + params["rate"]),
    log_likelihood=_gamma_log_likelihood,
)


def gamma(seed: int, num_shards: int, num_rows: int) -> Case:
    """Return gamma distributed rows with unknown shape and rate, which are strongly correlated."""
    generator = np.random.default_rng(seed)
    shape, rate = generator.uniform(0.8, 5.0), generator.uniform(0.2, 5.0)
    y = generator.gamma(shape, 1 / rate, size=num_rows)
    rows = {"y": y, "log_y": np.log(y)}
    return _case(GAMMA, rows, {"shape": shape, "rate": rate}, seed, num_shards)


MIXTURE = vcmc.models.GaussianMixture(3, 1, prior_scale=5.0, noise_scale=1.0)


def mixture(seed: int, num_shards: int, num_rows: int) -> Case:
    """Return a mixture with three exchangeable centres, whose components overlap a little."""
    generator = np.random.default_rng(seed)
    centres = np.array([-4.0, 0.0, 4.0]) + 0.3 * generator.normal(size=3)
    x = centres[generator.integers(3, size=num_rows)] + generator.normal(size=num_rows)
    return _case(
        MIXTURE, {"x": x[:, None]}, {"centres": centres[:, None]}, seed, num_shards, "centres"
    )


SOUND: dict[str, Callable[[int, int, int], Case]] = {
    "logistic": logistic,
    "poisson": poisson,
    "robust": robust,
    "gamma": gamma,
    "mixture": mixture,
}
