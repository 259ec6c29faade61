r"""Estimate the error of quantiles: what a shift and a scale do not correct.

Let $w$ be the direction in which a quantity grows, in coordinates in which the draws have mean zero
and covariance $I$. A posterior of skewness $\kappa$ along $w$ has the score
$-w + \frac \kappa 2 (w^2 - 1)$ to first order, so that the regression of the scores' nonlinear part
$r$ on $w^2 - 1$ estimates its skewness:

$$\kappa = 2 \, \frac{\mathbb E [r \, (w^2 - 1)]}{\mathbb E [(w^2 - 1)^2]}.$$

Where the draws have another skewness, their quantiles are off by
$\frac 1 6 \Delta\kappa \, (z^2 - 1)$ sds, with $z$ that of a standard normal (Cornish and Fisher).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from ..linalg.shrinkage import TINY

LEVELS = (0.05, 0.95)
MAX_SKEWNESS = 1.0  # of draws or posterior: beyond, the expansion is not monotone

Values = Float[np.ndarray, "draw quantity"]


class Moments(NamedTuple):
    """Means and sds of quantities."""

    mean: Float[np.ndarray, " quantity"]
    sd: Float[np.ndarray, " quantity"]

    @classmethod
    def of(cls, values: Values) -> "Moments":
        """Return the moments of draws."""
        return cls(values.mean(axis=0), values.std(axis=0))

    def stretched(self, factors: Float[np.ndarray, " quantity"]) -> "Moments":
        """Return the moments with other sds."""
        return Moments(self.mean, self.sd * factors)


def missing_skewness(
    white: Values,
    white_points: Float[np.ndarray, "point quantity"],
    nonlinear_scores: Float[np.ndarray, "point quantity"],
    samples: list[np.ndarray],
) -> Float[np.ndarray, "sample quantity"]:
    """Return the skewness of the posterior less that of the draws, from samples of the points.

    Args:
        white: all draws along the direction in which each quantity grows.
        white_points: the same of the draws at which the target was evaluated.
        nonlinear_scores: the nonlinear part of the scores along these directions.
        samples: indices of points.
    """
    squares = white_points**2 - 1
    products = nonlinear_scores * squares
    own = _bounded(np.mean(white**3, axis=0))
    posterior = [
        2 * products[sample].mean(axis=0) / np.maximum((squares[sample] ** 2).mean(axis=0), TINY)
        for sample in samples
    ]
    return _bounded(np.stack(posterior)) - own


def _bounded(skewness: np.ndarray) -> np.ndarray:
    return np.clip(skewness, -MAX_SKEWNESS, MAX_SKEWNESS)


def corrected_quantile(
    sorted_values: Values,
    level: float,
    skewness: Float[np.ndarray, "sample quantity"],
    moments: Moments,
    corrected: list[Moments],
) -> Float[np.ndarray, "sample quantity"]:
    """Return a quantile of quantities with the posterior's skewness, mean and sd.

    The quantities grow with their directions, so that a quantile is moved by reading it at another
    level.

    Args:
        sorted_values: draws, sorted.
        level: the level of the quantile.
        skewness: skewness that the draws lack.
        moments: moments of the draws.
        corrected: moments of the posterior, by sample.
    """
    z = ndtri(level)
    levels = ndtr(z + skewness * (z**2 - 1) / 6)
    read = np.stack([quantiles_at(sorted_values, row) for row in levels])
    means, sds = (np.stack(parts) for parts in zip(*corrected, strict=True))
    return means + (read - moments.mean) * sds / np.maximum(moments.sd, TINY)


def quantiles_at(
    sorted_values: Values, levels: Float[np.ndarray, " quantity"] | float
) -> Float[np.ndarray, " quantity"]:
    """Return the quantile of each column of sorted values at a level of its own."""
    count, num_columns = sorted_values.shape
    positions = np.broadcast_to(np.asarray(levels) * (count - 1), num_columns)
    below = np.clip(positions.astype(int), 0, count - 2)
    share = positions - below
    columns = np.arange(num_columns)
    low, high = sorted_values[below, columns], sorted_values[below + 1, columns]
    return low + share * (high - low)
