r"""Monte Carlo errors of combined draws, which may share the draws of shards.

Shift and scale of combined draws are learned from full-data scores, and their skewness is known
(`quantiles.py`). What is left to chance is the rest of their shape. A statistic of $T$ draws has an
influence function $\psi(x_t)$, e.g. $(p - 1\{x \le q\}) / f(q)$ for the quantile $q$ at level $p$
of draws with density $f$, of which regression on $w$, $w^2$ and $w^3$ removes what is known, with
$w$ the direction in which the quantity grows.

Independent draws would give the statistic $s$ the variance $\operatorname{Var} \psi / T$. Paired
draws share the $n_k$ draws of each shard, which adds the part of the variance that one shard's draw
explains (Hájek's projection):

$$\operatorname{Var} s = \frac{\operatorname{Var} \psi} T
  + \sum_k \Bigl(\frac 1 {n_k} - \frac 1 T\Bigr)
  \operatorname{Var} \mathbb E [\psi \mid \text{draw of shard } k].$$

The conditional expectations are means over the tuples in which a draw occurs; the variance that
they have by chance is subtracted.
"""

from collections.abc import Mapping, Sequence
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
            draws of shards that they share; None if it is to be estimated from them.
        pairs: which draw of each shard went into each combined draw, if one of each did.
        shard_ess: effective draws of each shard.
        moment_draws: independent draws that means and sds rest on; None if they rest on the
            target, or on the combined draws themselves.
    """

    num_independent: float | None
    pairs: Int[np.ndarray, "shard draw"] | None = None
    shard_ess: Float[np.ndarray, " shard"] | None = None
    moment_draws: float | None = None

    @classmethod
    def of_shards(
        cls,
        pairs: Int[np.ndarray, "shard draw"] | None,
        ess: Mapping[str, np.ndarray],
        counts: Sequence[int] | np.ndarray,
        uses_target: bool,
    ) -> "DrawSource":
        """Return the source of draws that were combined from those of shards.

        Args:
            pairs: which draw of each shard went into each combined draw, if one of each did.
            ess: effective draws of every parameter in each shard, axes (shard, …).
            counts: draws of each shard.
            uses_target: whether the target was evaluated to combine them.
        """
        by_shard = [values.reshape(len(values), -1) for values in ess.values()]
        typical = np.nanmedian(np.concatenate(by_shard, axis=1), axis=1)
        typical = np.clip(np.nan_to_num(typical, nan=1.0), 1.0, np.asarray(counts, float))
        moment_draws = None if uses_target else float(1 / np.mean(1 / typical))
        return cls(None if pairs is None else pairs.shape[1], pairs, typical, moment_draws)

    def subset(self, indices: Int[np.ndarray, " chosen"]) -> "DrawSource":
        """Return the source of some of the draws."""
        pairs = None if self.pairs is None else self.pairs[:, indices]
        num_independent = min(self.num_independent or np.inf, len(indices))
        return self._replace(num_independent=num_independent, pairs=pairs)


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

    sorted_standard = (sorted_values - moments.mean) / scale
    fixed = _orthogonal([np.ones_like(white), white, white**2, white**3])
    return SamplingVariances(
        variance(_residuals(standard, fixed[:3])),
        variance(_residuals(standard**2 / 2, fixed[:3])),
        [
            variance(_residuals(_quantile_influence(standard, sorted_standard, level), fixed))
            for level in LEVELS
        ],
    )


def _quantile_influence(standard: Values, sorted_standard: Values, level: float) -> Values:
    """Return the influence function of a quantile."""
    low, quantile, high = (
        quantiles_at(sorted_standard, at)
        for at in (level - DENSITY_LEVELS, level, level + DENSITY_LEVELS)
    )
    density = 2 * DENSITY_LEVELS / np.maximum(high - low, TINY)
    return (level - (standard <= quantile)) / density


def _orthogonal(columns: list[Values]) -> list[Values]:
    """Return functions of the draws that are orthogonal for each quantity."""
    basis: list[Values] = []
    for column in columns:
        basis.append(_residuals(column, basis))
    return basis


def _residuals(values: Values, basis: list[Values]) -> Values:
    """Return what is left of values after regression on orthogonal functions."""
    for column in basis:
        norms = np.maximum(np.mean(column**2, axis=0), TINY)
        values = values - column * (np.mean(values * column, axis=0) / norms)
    return values


def _variance(influence: Values, source: DrawSource) -> Float[np.ndarray, " quantity"]:
    num_independent = source.num_independent or len(influence)
    return np.mean(influence**2, axis=0) / num_independent + _shared(influence, source)


def _shared(influence: Values, source: DrawSource) -> Float[np.ndarray, " quantity"]:
    """Return the variance that sharing draws of shards adds."""
    num_draws = len(influence)
    total = np.mean(influence**2, axis=0)
    if source.pairs is None or source.shard_ess is None:
        return np.zeros_like(total)
    num_shards = len(source.pairs)
    chosen = np.unique(np.linspace(0, num_shards - 1, MAX_SHARDS).round().astype(int))
    shared = np.zeros_like(total)
    for shard in chosen:
        explained = _explained_variance(influence, total, source.pairs[shard])
        shared += explained * max(0.0, 1 / source.shard_ess[shard] - 1 / num_draws)
    return np.maximum(shared, 0.0) * num_shards / len(chosen)


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
