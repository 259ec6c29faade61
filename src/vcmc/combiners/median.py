r"""The median posterior: a mixture of the shards that a few wrong shards hardly move.

Minsker, Srivastava, Lin and Dunson, *Scalable and robust Bayesian inference via the median
posterior* (2014). Every shard has the full prior and its likelihood to the power $K$. The geometric
median of the shards' posteriors $\Pi_k$ is the distribution with the least sum of distances to
them; it is a mixture of them, whose weights are found by Weiszfeld's algorithm:

$$M = \sum_k w_k \Pi_k, \qquad w_k \propto \lVert \Pi_k - M \rVert^{-1}, \qquad
\lVert P - Q \rVert = \lVert \mathbb E_P \phi - \mathbb E_Q \phi \rVert.$$

The features $\phi$ belong to a Gaussian kernel, whose bandwidth is the median distance between
draws in coordinates that whiten the shards. They are approximated by random Fourier features
(Rahimi and Recht, 2007), so that a shard is a vector.

The kernel is bounded, so that the weight of a shard does not vanish however far away it lies, and
its draws would contaminate the mixture. So shards whose draws are far from the centre in mean
square are dropped, and of the others those whose weight is below half of the mean weight.

The price of robustness is width. Powered shards are as wide as the posterior, but their means lie
$\sqrt K$ as far apart: the mixture is that wide unless the shards agree.
"""

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import chdtri  # scipy.stats takes a second to import

from ..samplers.proposals import systematic_resample
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussians
from .pooling import pool, thin

NUM_PILOT_DRAWS = 1000  # of all shards: their distances set the bandwidth
MAX_FEATURE_DRAWS = 1000  # of a shard, over which features are averaged
NUM_FREQUENCIES = 500  # of the random Fourier features
MAX_STEPS = 1000  # of Weiszfeld's algorithm
WEIGHT_TOLERANCE = 1e-8  # change of a weight at which it stops
MIN_RELATIVE_WEIGHT = 0.5  # to the mean weight
# Chance that a sound shard is called an outlier if the shards' means are Gaussian; for regressions
# with 50 rows per shard, it is 1e-2.
FALSE_ALARM_RATE = 1e-3
MAX_NAMED_SHARDS = 10  # in a warning


class Median(AbstractCombiner):
    """Pooled draws of all shards, fewer of those far from the others."""

    needs: ClassVar[Needs] = Needs(prior="powered", streams=True)

    def combine(self, shards: Subposteriors) -> Combined:
        generator = np.random.default_rng(shards.seed)
        gaussians = Gaussians.of(shards)
        whitening = np.linalg.inv(_robust_root(gaussians))
        outliers = _outliers(gaussians, whitening)
        features = _features(shards, whitening, generator)
        weights = np.zeros(shards.num_shards)
        weights[~outliers] = median_weights(features[~outliers])
        weights[weights < MIN_RELATIVE_WEIGHT * weights[~outliers].mean()] = 0
        weights /= weights.sum()
        indices = systematic_resample(weights, shards.num_draws, generator)
        counts = np.bincount(indices, minlength=shards.num_shards)
        return Combined(pool(shards, counts), notes=_warnings(np.flatnonzero(outliers)))


def median_weights(points: Float[np.ndarray, "point feature"]) -> Float[np.ndarray, " point"]:
    """Return the weights with which the mean of points is their geometric median.

    >>> corners = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [1.0, 100.0]])
    >>> (median_weights(corners) @ corners).round(1)
    array([1. , 1.6])
    """
    weights = np.full(len(points), 1 / len(points))
    for _ in range(MAX_STEPS):
        distances = np.linalg.norm(points - weights @ points, axis=1)
        previous, weights = weights, 1 / np.maximum(distances, 1e-12)
        weights /= weights.sum()
        if np.abs(weights - previous).max() < WEIGHT_TOLERANCE:
            break
    return weights


def _robust_root(gaussians: Gaussians) -> Float[np.ndarray, "dim dim"]:
    """Return a root of a typical covariance: sds are medians, correlations are means."""
    sds = np.sqrt(np.diagonal(gaussians.covariances, axis1=1, axis2=2))
    correlation = np.mean(gaussians.covariances / (sds[:, :, None] * sds[:, None, :]), axis=0)
    return np.median(sds, axis=0)[:, None] * np.linalg.cholesky(correlation)


def _features(
    shards: Subposteriors, whitening: Float[np.ndarray, "dim dim"], generator: np.random.Generator
) -> Float[np.ndarray, "shard feature"]:
    """Return the mean random Fourier features of every shard."""
    num_pilots = -(-NUM_PILOT_DRAWS // shards.num_shards)
    pilots = pool(shards, [num_pilots] * shards.num_shards)
    bandwidth = np.median(np.linalg.norm(np.diff(pilots, axis=0) @ whitening.T, axis=1))
    noise = generator.normal(size=(shards.space.dim, NUM_FREQUENCIES))
    frequencies = whitening.T @ noise / bandwidth
    features = np.empty((shards.num_shards, 2 * NUM_FREQUENCIES))
    for shard, draws in enumerate(shards):
        phases = thin(draws, min(len(draws), MAX_FEATURE_DRAWS)) @ frequencies
        features[shard] = np.concatenate([np.cos(phases).mean(axis=0), np.sin(phases).mean(axis=0)])
        shards.advance()
    return features / np.sqrt(NUM_FREQUENCIES)


def _outliers(
    gaussians: Gaussians, whitening: Float[np.ndarray, "dim dim"]
) -> Bool[np.ndarray, " shard"]:
    """Return which shards are farther from the centre than the scatter of their means explains."""
    num_shards, dim = gaussians.means.shape
    differences = (gaussians.means - np.median(gaussians.means, axis=0)) @ whitening.T
    variances = np.trace(whitening @ gaussians.covariances @ whitening.T, axis1=1, axis2=2)
    squares = np.sum(differences**2, axis=1) + variances
    # Means of sound powered shards scatter √K as widely as their draws.
    scatter = max(num_shards, np.median(squares) / chdtri(dim, 0.5))
    return squares > scatter * chdtri(dim, FALSE_ALARM_RATE / num_shards)


def _warnings(outliers: Int[np.ndarray, " outlier"]) -> list[str]:
    if not len(outliers):
        return []
    names = ", ".join(str(shard) for shard in outliers[:MAX_NAMED_SHARDS])
    num_left = len(outliers) - MAX_NAMED_SHARDS
    more = f" and {num_left} more" if num_left > 0 else ""
    return [
        f"Dropped shard{'s' * (len(outliers) > 1)} {names}{more}, which lie far from the others. "
        "Inspect their rows and chains."
    ]
