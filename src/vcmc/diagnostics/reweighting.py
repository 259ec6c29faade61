r"""Estimate the error of combined draws by importance sampling, without assuming a shape.

Points of a Student t with the draws' mean and covariance, and of one three times as wide, are
weighted by the full-data density. Where the weights can be trusted, which is in few dimensions,
their mean and sd are those of the posterior up to Monte Carlo error, however nonlinear its scores
are.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..samplers.proposals import Proposal
from ..target import Target
from .coordinates import Quantities
from .importance import smoothed_weights
from .quantiles import LEVELS
from .selfcheck import ROUNDING, Errors

MAX_PARETO_K = 0.5  # below it, the variance of the weights is finite
MIN_EFFECTIVE = 200.0  # proposals, for standard errors below 0.1 sd


class Effort(NamedTuple):
    """The number of proposals, and the scale of half of them, in scales of the draws.

    Those look for mass beyond the draws.
    """

    num_proposals: int
    wide: float


QUICK = Effort(1000, 3.0)
# For draws that importance weights have made: quantiles of a thousand of them to 0.1 sd.
THOROUGH = Effort(3000, 2.0)


def reweighted_errors(
    draws: Float[np.ndarray, "draw dim"],
    target: Target,
    quantities: Quantities,
    seed: int,
    effort: Effort = QUICK,
) -> Errors | None:
    """Return the errors of draws by importance sampling, or None if its weights are too uneven."""
    generator = np.random.default_rng((seed, 2))
    proposal = Proposal.of(draws, wide=effort.wide)
    points, log_ratios = proposal.propose(effort.num_proposals, target, generator)
    if not np.isfinite(log_ratios).any():
        return None
    weights, shape = smoothed_weights(log_ratios)
    if not (shape < MAX_PARETO_K and 1 / np.sum(weights**2) > MIN_EFFECTIVE):
        return None
    values, original = quantities(jnp.asarray(points)), quantities(jnp.asarray(draws))
    means = weights @ values
    deviations = values - means
    variances = weights @ deviations**2
    sds = np.sqrt(variances)
    sds = np.where(sds > ROUNDING * np.abs(values).max(axis=0), sds, np.nan)  # constants have none
    mean_se = np.sqrt(weights**2 @ deviations**2) / sds
    sd_se = np.sqrt(weights**2 @ (deviations**2 - variances) ** 2) / (2 * sds**2)
    quantile_errors = []
    for level in LEVELS:
        quantile, standard_error = _weighted_quantile(values, weights, level)
        error = np.quantile(original, level, axis=0) - quantile
        quantile_errors += [error / sds, standard_error / sds]
    return Errors(
        (original.mean(axis=0) - means) / sds,
        mean_se,
        original.std(axis=0) / sds - 1,
        sd_se,
        *quantile_errors,
    )


def _weighted_quantile(
    values: Float[np.ndarray, "draw quantity"], weights: Float[np.ndarray, " draw"], level: float
) -> tuple[Float[np.ndarray, " quantity"], Float[np.ndarray, " quantity"]]:
    """Return quantiles of weighted draws, and their standard errors.

    A standard error is half the distance between the quantiles at levels one standard error of the
    level apart.
    """
    order = np.argsort(values, axis=0)
    sorted_values = np.take_along_axis(values, order, axis=0)
    shares = np.cumsum(weights[order], axis=0) - 0.5 * weights[order]
    spread = np.sqrt(level * (1 - level) * np.sum(weights**2))
    low, quantile, high = (
        np.array(
            [
                np.interp(at, share, column)
                for share, column in zip(shares.T, sorted_values.T, strict=True)
            ]
        )
        for at in (max(level - spread, 0.0), level, min(level + spread, 1.0))
    )
    return quantile, (high - low) / 2
