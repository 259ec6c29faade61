r"""How many draws each shard makes.

Shift and scale of the combined draws are learned from full-data scores, whatever the number of
draws. The draws of the shards carry the shape. If shard $k$ has the share $\lambda_k$ of the
variance of the combined draws, and $n_k$ effective draws, their skewness has the variance

$$\sum_k \lambda_k^3 \, \frac 6 {n_k},$$

or $6 / (n K^2)$ for $K$ equal shards. With $n K^2 = 5000$, the 5 % and 95 % quantiles have a
standard error of 0.01 sd by it. A single shard makes all draws of the posterior.
"""

import numpy as np
from jaxtyping import Float

from ..linalg.shrinkage import TINY

MIN_SHARD_DRAWS = 100  # enough for the mean and the spread of a shard, and to notice stuck chains
MOMENT_DRAWS = 1000  # of a shard, for means to 0.03 sd, if no scores correct them
SHAPE_DRAWS = 5000  # draws of a shard times the square of the number of shards
MAX_SHARD_DRAWS = 1600  # that the library chooses by itself
DRAWS_GROWTH = 2  # factor between rounds
SKEWNESS_EFFECT = 0.28  # sds by which the 5 % and 95 % quantiles move per unit of skewness
# Standard error of a 5 % or 95 % quantile by the shards' draws, in sds, above which they go on: as
# large as that of the default number of combined draws. One coordinate in ten may exceed it.
MAX_SHAPE_SE = 0.02
COORDINATE_SHARE = 0.9


def initial_shard_draws(
    num_shards: int, num_draws: int, num_chains: int, fits_moments: bool = True
) -> int:
    """Return the number of draws of every chain to begin with.

    Args:
        num_shards: number of shards.
        num_draws: draws of the posterior.
        num_chains: chains of every shard.
        fits_moments: whether the combiner learns means and covariances from full-data scores; if
            not, they are as accurate as the shards' draws are many.

    >>> [initial_shard_draws(count, 5000, 1) for count in (1, 2, 5, 20)]
    [5000, 1250, 200, 100]
    """
    if num_shards == 1:
        return -(-num_draws // num_chains)
    least = MIN_SHARD_DRAWS if fits_moments else MOMENT_DRAWS
    per_shard = max(least, -(-SHAPE_DRAWS // num_shards**2))
    return -(-per_shard // num_chains)


def needs_more_draws(
    weights: Float[np.ndarray, "shard dim"],
    variances: Float[np.ndarray, "shard dim"],
    shard_ess: Float[np.ndarray, " shard"],
) -> bool:
    """Return whether the shards' draws are too few for the shape of the combined ones.

    Args:
        weights: weights of the shards, by coordinate.
        variances: variances of the shards' draws.
        shard_ess: effective draws of each shard.
    """
    parts = weights**2 * variances
    shares = parts / np.maximum(parts.sum(axis=0), TINY)
    skewness_variance = np.sum(6 * shares**3 / shard_ess[:, None], axis=0)
    standard_errors = SKEWNESS_EFFECT * np.sqrt(skewness_variance)
    return bool(np.nanquantile(standard_errors, COORDINATE_SHARE) > MAX_SHAPE_SE)
