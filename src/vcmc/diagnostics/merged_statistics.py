r"""Statistics of a response that are computed by shard and merged: moments, extremes, quantiles.

A summary is what travels: `reduce` makes it from the rows of a shard, for all replicates at once,
and `merge` puts those of all shards together. Means and sums of squares are merged by the formula
of Chan, Golub and LeVeque (*Algorithms for computing the sample variance*, 1983),

$$n = \sum_k n_k, \quad \bar y = \sum_k \frac{n_k}{n} \bar y_k, \quad
  S = \sum_k \bigl[S_k + n_k (\bar y_k - \bar y)^2\bigr].$$

Quantiles need the order statistics. Of a shard with more than `MAX_POINTS` rows, as many evenly
spaced ones are kept. Each stands for $n_k / m$ neighbours, so that the level of a merged quantile
is off by less than $1 / m$, and by some $1 / (m \sqrt{12 K})$ as errors of $K$ shards cancel. Of
rows that come in many blocks, summaries are merged two by two and thinned to $m$ points, so that a
value is thinned as often as the number of blocks can be halved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

MAX_POINTS = 10_000  # order statistics of a shard that are kept: 80 kB for each replicate

Values = Float[np.ndarray, "value draw"]
Result = Float[np.ndarray, " draw"]


class Moments(NamedTuple):
    """Counts, means, sums of squared deviations and extremes of each replicate."""

    num_values: int
    num_zeros: Result
    mean: Result
    squares: Result
    smallest: Result
    largest: Result

    @classmethod
    def reduce(cls, values: Values) -> "Moments":
        """Return the moments of some rows."""
        mean = values.mean(axis=0)
        return cls(
            len(values),
            np.count_nonzero(values == 0, axis=0).astype(float),
            mean,
            np.sum((values - mean) ** 2, axis=0),
            values.min(axis=0),
            values.max(axis=0),
        )

    @classmethod
    def merge(cls, parts: "Sequence[Moments]") -> "Moments":
        """Return the moments of the rows of all parts."""
        counts = np.array([part.num_values for part in parts])
        means = np.stack([part.mean for part in parts])
        mean = counts @ means / counts.sum()
        return cls(
            int(counts.sum()),
            np.sum([part.num_zeros for part in parts], axis=0),
            mean,
            np.sum([part.squares for part in parts], axis=0) + counts @ (means - mean) ** 2,
            np.min([part.smallest for part in parts], axis=0),
            np.max([part.largest for part in parts], axis=0),
        )

    @classmethod
    def join(cls, blocks: "Sequence[Moments]") -> "Moments":
        """Return the moments of the same rows for all replicates of some blocks."""
        return cls(
            blocks[0].num_values,
            *(
                np.concatenate(arrays)
                for arrays in zip(*(block[1:] for block in blocks), strict=True)
            ),
        )

    def thinned(self, max_points: int) -> "Moments":
        """Return the same moments, which are few numbers."""
        del max_points
        return self

    @property
    def sd(self) -> Result:
        """The standard deviation, with denominator n - 1; NaN of a single value."""
        if self.num_values < 2:
            return np.full(self.mean.shape, np.nan)
        return np.asarray(np.sqrt(self.squares / (self.num_values - 1)))


class OrderStatistics(NamedTuple):
    """Sorted values of each replicate, or evenly spaced ones of them with their weights."""

    points: Values
    weights: Float[np.ndarray, " value"]

    @classmethod
    def reduce(cls, values: Values) -> "OrderStatistics":
        """Return the order statistics of some rows: at most `MAX_POINTS`."""
        count = len(values)
        num_points = min(count, MAX_POINTS)
        places = ((np.arange(num_points) + 0.5) * count / num_points).astype(int)
        return cls(np.sort(values, axis=0)[places], np.full(num_points, count / num_points))

    @classmethod
    def merge(cls, parts: "Sequence[OrderStatistics]") -> "OrderStatistics":
        """Return the order statistics of all parts, no longer sorted."""
        return cls(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )

    @classmethod
    def join(cls, blocks: "Sequence[OrderStatistics]") -> "OrderStatistics":
        """Return the order statistics of the same rows for all replicates of some blocks."""
        return cls(np.concatenate([block.points for block in blocks], axis=1), blocks[0].weights)

    def thinned(self, max_points: int) -> "OrderStatistics":
        """Return at most so many values, each at the middle of an equal share of the weight."""
        if len(self.points) <= max_points:
            return self
        order = np.argsort(self.points, axis=0)
        ends = np.cumsum(self.weights[order], axis=0)
        total = self.weights.sum()
        levels = (np.arange(max_points) + 0.5) * total / max_points
        places = np.stack([np.searchsorted(column, levels) for column in ends.T], axis=1)
        chosen = np.take_along_axis(order, np.minimum(places, len(order) - 1), axis=0)
        points = np.take_along_axis(self.points, chosen, axis=0)
        return OrderStatistics(points, np.full(max_points, total / max_points))

    def quantile(self, level: float) -> Result:
        """Return a quantile of each replicate: NumPy's, if no value was left out."""
        if (self.weights == 1).all():
            return np.asarray(np.quantile(self.points, level, axis=0))
        order = np.argsort(self.points, axis=0)
        sorted_points = np.take_along_axis(self.points, order, axis=0)
        weights = self.weights[order]
        middles = (np.cumsum(weights, axis=0) - weights / 2) / self.weights.sum()
        return np.array(
            [np.interp(level, middles[:, i], column) for i, column in enumerate(sorted_points.T)]
        )


Kind = type[Moments] | type[OrderStatistics]


@dataclass(frozen=True)
class MergedStatistic:
    """A statistic that is computed from merged summaries of the shards.

    Attributes:
        summary: the kind of summary that it needs.
        value: from the merged summary to one value for each replicate.
    """

    summary: Kind
    value: Callable[[Any], Result]


def _quantile(level: float) -> MergedStatistic:
    return MergedStatistic(OrderStatistics, lambda summary: summary.quantile(level))


STATISTICS = {
    "mean": MergedStatistic(Moments, lambda summary: summary.mean),
    "sd": MergedStatistic(Moments, lambda summary: summary.sd),
    "share of zeros": MergedStatistic(
        Moments,
        lambda summary: summary.num_zeros / summary.num_values,
    ),
    "smallest": MergedStatistic(Moments, lambda summary: summary.smallest),
    "q05": _quantile(0.05),
    "q50": _quantile(0.5),
    "q95": _quantile(0.95),
    "largest": MergedStatistic(Moments, lambda summary: summary.largest),
}
