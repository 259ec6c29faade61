r"""Regression of a binary outcome: probit and logistic.

$$\beta \sim N(0, \sigma^2 I), \qquad P(y_n = 1 \mid x_n, \beta) = G(x_n^\top \beta),$$

where $G(t)$ is the standard normal distribution function (`Probit`) or $1 / (1 + e^{-t})$
(`Logistic`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc
from jax.scipy.stats import norm
from jaxtyping import Array

from ..data.shard import Shards
from ..model import Model
from ..samplers.nuts import NUTS
from ..samplers.probit_gibbs import ProbitGibbs
from ..space import Params, Real
from .moments import moments
from .simulated import Simulated, check_columns

# Share of the rarer outcome below which Gibbs sampling mixes too slowly (Johndrow, Smith, Pillai
# and Dunson 2019).
MIN_OUTCOME_SHARE = 0.1
MAX_SERIES_ARGUMENT = -20.0  # below, the asymptotic series; above, erfc does not underflow
HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


def log_sigmoid(t: Array) -> Array:
    """Return `jax.nn.log_sigmoid(t)` in half its time, gradient included."""
    return jnp.minimum(t, 0) - jnp.log1p(jnp.exp(-jnp.abs(t)))


@jax.custom_jvp
def log_normal_cdf(t: Array) -> Array:
    """Return `jax.scipy.special.log_ndtr(t)` to an absolute error of 1e-12.

    It takes a third of the time, gradient included.
    """
    tail = t < MAX_SERIES_ARGUMENT
    s = 1 / jnp.where(tail, t, MAX_SERIES_ARGUMENT) ** 2
    series = 1 - s * (1 - 3 * s * (1 - 5 * s * (1 - 7 * s * (1 - 9 * s * (1 - 11 * s)))))
    scaled = jnp.where(tail, series / -t, 0.5 * erfc(-t * np.sqrt(0.5)))
    return jnp.log(scaled) - jnp.where(tail, 0.5 * t**2 + HALF_LOG_2PI, 0.0)


@log_normal_cdf.defjvp
def _log_normal_cdf_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (t,), (dt,) = primals, tangents
    value = log_normal_cdf(t)
    return value, dt * jnp.exp(-0.5 * t**2 - HALF_LOG_2PI - value)


class BinaryRegression(Model):
    """Regression of a binary outcome.

    Rows are `x`, an array (row, dim), and `y`, zeros and ones; the parameter is `beta`.
    """

    def __init__(self, dim: int, prior_scale: float, log_link: Callable[[Array], Array]):
        if not prior_scale > 0:
            raise ValueError(f"prior_scale must be positive; got {prior_scale}.")
        super().__init__(
            space={"beta": Real(dim)},
            log_prior=lambda params: jnp.sum(norm.logpdf(params["beta"], scale=prior_scale)),
            log_likelihood=lambda params, rows: log_link(
                jnp.where(jnp.asarray(rows["y"]) > 0, 1.0, -1.0)
                * (jnp.asarray(rows["x"]) @ params["beta"])
            ),
        )
        self.dim = dim
        self.prior_scale = prior_scale
        self._log_link = log_link

    def fitted(self, shards: Shards) -> "BinaryRegression":
        """Check the rows, and return the model itself: it has no point estimates."""
        check_columns(shards, self.dim)
        for rows in (shard.rows for shard in shards):
            if "y" not in rows:
                raise ValueError(f"rows must be named x and y; got {sorted(rows)}.")
            if rows["y"].ndim != 1 or not bool(jnp.all((rows["y"] == 0) | (rows["y"] == 1))):
                raise ValueError(
                    "rows['y'] must be one 0 or 1 (or False or True) per row; got the values "
                    f"{np.unique(rows['y'])[:5].tolist()} and shape {rows['y'].shape}."
                )
        return self

    def simulate(
        self, seed: int, num_rows: int, params: Mapping[str, Any] | None = None
    ) -> Simulated:
        """Simulate standard normal covariates, and outcomes given `params`.

        By default, `params` are a draw from the prior.
        """
        generator = np.random.default_rng(seed)
        beta = self.prior_scale * generator.normal(size=self.dim)
        beta = beta if params is None else np.asarray(params["beta"], float)
        x = generator.normal(size=(num_rows, self.dim))
        probability = np.exp(self._log_link(jnp.asarray(x @ beta)))
        return Simulated(
            {"beta": beta}, {"x": x, "y": (generator.random(num_rows) < probability).astype(float)}
        )

    def test_functions(self, params: Params) -> dict[str, Array]:
        """Return moments of the coefficients."""
        return moments(params["beta"])


class Probit(BinaryRegression):
    """Probit regression, sampled by Gibbs sampling, or by NUTS if one outcome is rare.

    >>> Probit(5)
    Probit(beta: Real(shape=(5,)))
    """

    exact_sampler = ProbitGibbs

    def __init__(self, dim: int, prior_scale: float = 1.0):
        super().__init__(dim, prior_scale, log_normal_cdf)

    def suited_sampler(self, shards: Shards) -> ProbitGibbs | None:
        sums = [
            (float(jnp.sum(s.weights * s.rows["y"])), float(jnp.sum(s.weights))) for s in shards
        ]
        ones, count = np.sum(sums, axis=0)
        is_balanced = MIN_OUTCOME_SHARE <= ones / count <= 1 - MIN_OUTCOME_SHARE
        return ProbitGibbs() if is_balanced else None


class Logistic(BinaryRegression):
    """Logistic regression, sampled by NUTS, or by HMC if shards are large and nearly normal.

    Pólya–Gamma Gibbs sampling gave far fewer effective draws per second: see
    `benchmarks/README.md`. The posterior is log-concave, so that steps may be larger than usual.
    """

    def suited_sampler(self, shards: Shards) -> NUTS:
        del shards
        return NUTS(target_accept=0.7)

    def __init__(self, dim: int, prior_scale: float = 1.0):
        super().__init__(dim, prior_scale, log_sigmoid)


def rare_covariate(seed: int, num_rows: int) -> dict[str, np.ndarray]:
    """Simulate rows with an intercept and four binary covariates, one rare but informative.

    The design of Scott et al. (2016): frequencies (0.2, 0.3, 0.5, 0.01), coefficients
    (−3, 1.2, −0.5, 0.8, 3).
    """
    generator = np.random.default_rng(seed)
    covariates = generator.random((num_rows, 4)) < [0.2, 0.3, 0.5, 0.01]
    x = np.column_stack([np.ones(num_rows), covariates])
    latent = x @ [-3.0, 1.2, -0.5, 0.8, 3.0] + generator.normal(size=num_rows)
    return {"x": x, "y": (latent > 0).astype(float)}
