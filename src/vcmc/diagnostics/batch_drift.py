r"""Whether batches of rows that came one after the other have the same parameters.

Shards of a batch are pooled: for a coordinate, with the means $m_k$ and variances $v_k$ of their
draws, $v_b^{-1} = \sum_k v_k^{-1}$ and $m_b = v_b \sum_k m_k / v_k$. If all rows have the same
parameters, $Q = \sum_b (m_b - \bar m)^2 / v_b$ is about $\chi^2_{B - 1}$, with the weighted mean
$\bar m$ of $B$ batches. Shards within batches tell by how much their means vary in truth: where
that is more than their draws do, as skewed posteriors of few rows, variances are larger by the same
factor. Coordinates are tested one by one, at a level divided by their number.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtrc, chdtri

from ..linalg.shrinkage import TINY

FALSE_ALARM_RATE = 1e-3  # per run; 1 % are allowed for posteriors that are not Gaussian
MAX_CHANCE = 0.05  # of shards as far apart within batches, before variances are made larger
MAX_NAMED = 3  # batches and coordinates, in a sentence

DRIFT = "The batches of rows disagree on"

Draws = Float[np.ndarray, "shard chain draw dim"]


class PooledBatches(NamedTuple):
    """Means and variances of each coordinate by batch, from the shards of each.

    Attributes:
        numbers: the batches, in ascending order.
        means: the means of their pooled shards.
        variances: the variances of these means, if all shards have the same parameters.
    """

    numbers: Int[np.ndarray, " batch"]
    means: Float[np.ndarray, "batch dim"]
    variances: Float[np.ndarray, "batch dim"]

    @classmethod
    def of(cls, draws: Draws, batches: Sequence[int] | np.ndarray) -> "PooledBatches":
        """Pool the draws of the shards of every batch."""
        of_shard = np.asarray(batches)
        points = draws.reshape(len(draws), -1, draws.shape[-1])
        # a mean of n draws has a Monte Carlo error, too
        shard_variances = points.var(axis=1, ddof=1) * (1 + 1 / points.shape[1])
        precisions = 1 / np.maximum(shard_variances, TINY)
        shard_means = points.mean(axis=1)
        numbers = np.unique(of_shard)
        members = numbers[:, None] == of_shard
        total = members @ precisions
        means = members @ (precisions * shard_means) / total
        own = means[np.searchsorted(numbers, of_shard)]
        within = np.sum(precisions * (shard_means - own) ** 2, axis=0)
        freedom = len(of_shard) - len(numbers)
        is_wider = within > chdtri(max(1, freedom), MAX_CHANCE)
        factor = np.where(is_wider, within / max(1, freedom), 1.0)
        return cls(numbers, means, factor / total)

    @property
    def p_values(self) -> Float[np.ndarray, " dim"]:
        """The probability that batches of the same parameters differ as much, by coordinate."""
        mean = np.sum(self.means / self.variances, axis=0) / np.sum(1 / self.variances, axis=0)
        squares = np.sum((self.means - mean) ** 2 / self.variances, axis=0)
        return np.asarray(chdtrc(len(self.numbers) - 1, squares))

    @property
    def deviations(self) -> Float[np.ndarray, "batch dim"]:
        """How far each batch is from the others together, in standard errors."""
        weights = 1 / self.variances
        others = weights.sum(axis=0) - weights
        weighted = weights * self.means
        means = (weighted.sum(axis=0) - weighted) / others
        return (self.means - means) / np.sqrt(self.variances + 1 / others)


def batch_drift(
    draws: Draws,
    batches: Sequence[int] | np.ndarray,
    coordinates: Sequence[str],
    names: Mapping[int, str] | None = None,
) -> str:
    """Return a sentence on batches that have other parameters than the rest; empty if none has.

    Args:
        draws: draws of all shards.
        batches: the batch of every shard.
        coordinates: the name of every coordinate.
        names: names of batches; others are called by their numbers.
    """
    if len(np.unique(batches)) < 2:
        return ""
    pooled = PooledBatches.of(draws, batches)
    p_values = pooled.p_values
    drifting = np.flatnonzero(p_values < FALSE_ALARM_RATE / len(coordinates))
    if not len(drifting):
        return ""
    deviations = pooled.deviations
    worst_first = drifting[np.argsort(-np.abs(deviations[:, drifting]).max(axis=0), kind="stable")]
    limit = chdtri(1, FALSE_ALARM_RATE / deviations.size) ** 0.5
    parts = [
        f"{coordinates[j]} ({_deviating(pooled.numbers, deviations[:, j], limit, names or {})})"
        for j in worst_first[:MAX_NAMED]
    ]
    if len(drifting) > MAX_NAMED:
        parts.append(f"{len(drifting) - MAX_NAMED} more")
    return (
        f"{DRIFT} {_joined(parts)}. If the parameters have changed, the "
        "result is an average over batches: compare runs of single batches, let the parameters "
        "differ by batch in the model, or leave out batches with vcmc.forget."
    )


def _deviating(
    numbers: Int[np.ndarray, " batch"],
    deviations: Float[np.ndarray, " batch"],
    limit: float,
    names: Mapping[int, str],
) -> str:
    """Return the batches that are apart from the others, at least one, with their distances."""
    order = np.argsort(-np.abs(deviations), kind="stable")
    if len(numbers) == 2:
        pair = _joined([_name(number, names) for number in numbers])
        return f"{pair} are {abs(deviations[0]):.1f} standard errors apart"
    apart = [b for b in order if abs(deviations[b]) > limit] or [order[0]]
    parts = [f"{_name(numbers[b], names)} by {deviations[b]:+.1f}" for b in apart[:MAX_NAMED]]
    more = len(apart) - MAX_NAMED
    others = f", and {more} more batch{'es' if more > 1 else ''}" if more > 0 else ""
    return f"{_joined(parts)} standard errors{others}"


def _name(number: int, names: Mapping[int, str]) -> str:
    return names.get(int(number)) or f"batch {number}"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
