r"""Monte Carlo errors of combined draws, which may share the draws of shards.

Shift and scale of combined draws are learned from full-data scores. What is left to chance is their
shape: a statistic $s$ of $T$ draws whose mean and sd are given has an influence function
$\psi(x_t)$, e.g. for the quantile $q$ at level $p$ of standardized draws with density $f$

$$\psi(x) = \frac{p - 1\{x \le q\}}{f(q)} - x - \tfrac 1 2 q (x^2 - 1)
  - \tfrac 1 6 (q^2 - 1) (x^3 - 3 x),$$

where the last term is the effect of the draws' skewness, which is known, too (`quantiles.py`).

Independent draws would give $s$ the variance $\operatorname{Var} \psi / T$. Paired draws share the
$n_k$ draws of each shard, which adds the part of the variance that one shard's draw explains
(Hájek's projection):

$$\operatorname{Var} s = \frac{\operatorname{Var} \psi} T
  + \sum_k \Bigl(\frac 1 {n_k} - \frac 1 T\Bigr)
  \operatorname{Var} \mathbb E [\psi \mid \text{draw of shard } k].$$

The conditional expectations are means over the tuples in which a draw occurs; the variance that
they have by chance is subtracted.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..linalg.shrinkage import TINY
from .quantiles import LEVELS, Moments, quantiles_at

MAX_SHARDS = 20  # whose share of the variance is computed; that of others is extrapolated
DENSITY_LEVELS = 0.02  # on both sides of a quantile, from which the density there is estimated

Values = Float[np.ndarray, "draw quantity"]


class DrawSource(NamedTuple):
    """Where combined draws come from.

    Attributes:
        num_independent: number of independent draws that the combined ones are worth, apart from
            draws of shards that they share.
        pairs: which draw of each shard went into each combined draw, if one of each did.
        shard_ess: effective draws of each shard.
    """

    num_independent: float
    pairs: Int[np.ndarray, "shard draw"] | None = None
    shard_ess: Float[np.ndarray, " shard"] | None = None

    def subset(self, indices: Int[np.ndarray, " chosen"]) -> "DrawSource":
        """Return the source of some of the draws."""
        pairs = None if self.pairs is None else self.pairs[:, indices]
        return DrawSource(min(self.num_independent, len(indices)), pairs, self.shard_ess)


class SamplingVariances(NamedTuple):
    """Variances of mean, sd and quantiles by chance, for a mean and a covariance that are given.

    Means and quantiles are in sds, sds relative.
    """

    mean: Float[np.ndarray, " quantity"]
    sd: Float[np.ndarray, " quantity"]
    quantiles: list[Float[np.ndarray, " quantity"]]


def sampling_variances(
    values: Values, sorted_values: Values, white: Values, source: DrawSource
) -> SamplingVariances:
    """Return the variances of statistics of combined draws.

    Args:
        values: draws of quantities.
        sorted_values: the same, sorted.
        white: draws along the direction in which each quantity grows.
        source: where the draws come from.
    """
    moments = Moments.of(values)
    scale = np.maximum(moments.sd, TINY)
    standard = (values - moments.mean) / scale

    def variance(influence: Values) -> Float[np.ndarray, " quantity"]:
        return _variance(influence - influence.mean(axis=0), source)

    quantile_variances = []
    for level in LEVELS:
        low, quantile, high = (
            (quantiles_at(sorted_values, at) - moments.mean) / scale
            for at in (level - DENSITY_LEVELS, level, level + DENSITY_LEVELS)
        )
        density = 2 * DENSITY_LEVELS / np.maximum(high - low, TINY)
        influence = (level - (standard <= quantile)) / density
        influence -= standard + quantile * (standard**2 - 1) / 2
        influence -= (quantile**2 - 1) / 6 * (standard**3 - 3 * standard)
        quantile_variances.append(variance(influence))
    return SamplingVariances(
        variance(_not_quadratic(standard, white)),
        variance(_not_quadratic(standard**2 / 2, white)),
        quantile_variances,
    )


def _not_quadratic(values: Values, white: Values) -> Values:
    """Return what is left of values after regression on w and w², which scores fix."""
    basis = [np.ones_like(white), white, white**2 - 1]
    basis[2] = basis[2] - white * np.mean(basis[2] * white, axis=0)
    for column in basis:
        norms = np.maximum(np.mean(column**2, axis=0), TINY)
        values = values - column * (np.mean(values * column, axis=0) / norms)
    return values


def _variance(influence: Values, source: DrawSource) -> Float[np.ndarray, " quantity"]:
    num_draws = len(influence)
    total = np.mean(influence**2, axis=0)
    variance = total / source.num_independent
    if source.pairs is None or source.shard_ess is None:
        return variance
    num_shards = len(source.pairs)
    chosen = np.unique(np.linspace(0, num_shards - 1, MAX_SHARDS).round().astype(int))
    shared = np.zeros_like(total)
    for shard in chosen:
        explained = _explained_variance(influence, total, source.pairs[shard])
        shared += explained * max(0.0, 1 / source.shard_ess[shard] - 1 / num_draws)
    return variance + np.maximum(shared, 0.0) * num_shards / len(chosen)


def _explained_variance(
    influence: Values, total: Float[np.ndarray, " quantity"], indices: Int[np.ndarray, " draw"]
) -> Float[np.ndarray, " quantity"]:
    """Return the variance that the draws of one shard explain, by analysis of variance."""
    from scipy.sparse import csr_array  # here, as it adds to the time of `import vcmc`

    num_draws = len(indices)
    counts = np.bincount(indices)
    ones = np.ones(num_draws)
    sums = csr_array((ones, (indices, np.arange(num_draws)))) @ influence
    used = counts > 0
    means, counts = sums[used] / counts[used, None], counts[used]
    by_chance = total * np.mean(1 / counts)
    return np.mean(means**2, axis=0) - by_chance
