r"""The median of the shards' posteriors, which a few shards that are wrong hardly move.

Minsker, Srivastava, Lin and Dunson, *Scalable and robust Bayesian inference via the median posterior* (2014). Every shard holds the
full prior and its likelihood to the power $K$. Of all distributions, the geometric median has the least sum of distances to the
shards' posteriors $\Pi_k$; it is a mixture of them, and Weiszfeld's algorithm finds its weights:

$$M = \sum_k w_k \Pi_k, \qquad w_k \propto \lVert \Pi_k - M \rVert^{-1}, \qquad \lVert P - Q \rVert = \lVert \mathbb E_P \phi - \mathbb E_Q \phi \rVert.$$

The features $\phi$ belong to a Gaussian kernel, whose bandwidth is the median distance of the shards' draws in coordinates in which
shards are white; random Fourier features (Rahimi and Recht, 2007) stand for them, so that a shard is a vector.

The kernel is bounded, so that the weight of a shard does not vanish however far away it lies, and its draws would be seen. So shards
whose draws are far from the centre in mean square are left out, and of the others those whose weight is below half of an even one.

The price of being robust is width. Powered shards are as wide as the posterior, but their means lie $\sqrt K$ as far apart: a mixture
is as wide as that, unless the shards agree.
"""

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import chdtri  # scipy.stats has it too, and takes a second to import

from ..samplers.proposals import resampled
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussians
from .pooling import pooled, thinned

NUM_PILOTS = 1000  # draws of all shards, whose distances the bandwidth is chosen by
MAX_DRAWS = 1000  # of a shard, that stand for it when distances are measured
NUM_FREQUENCIES = 500
MAX_STEPS, TOLERANCE = 1000, 1e-8
SURPRISE = 1e-3  # chance that a shard is called far though the shards' means scatter like a Gaussian; in regressions of 50 rows a shard, 1e-2
MAX_NAMED = 10


class Median(AbstractCombiner):
    """Draws of all shards, of every shard the fewer the farther it is from the others."""

    needs: ClassVar[Needs] = Needs(prior="powered", streams=True)

    def combine(self, shards: Subposteriors) -> Combined:
        generator = np.random.default_rng(shards.seed)
        gaussians = Gaussians.of(shards)
        inside = np.linalg.inv(_outside(gaussians))
        far = _far(gaussians, inside)
        weights = np.zeros(shards.num_shards)
        weights[~far] = median_weights(_features(shards, inside, generator)[~far])
        weights[weights < 0.5 * weights[~far].mean()] = 0
        weights /= weights.sum()
        counts = np.bincount(
            resampled(weights, shards.num_draws, generator), minlength=shards.num_shards
        )
        return Combined(pooled(shards, counts), notes=_named(np.flatnonzero(far)))


def median_weights(points: Float[np.ndarray, "point feature"]) -> Float[np.ndarray, " point"]:
    """The weights of points whose weighted mean is their geometric median.

    >>> corners = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [1.0, 100.0]])
    >>> (median_weights(corners) @ corners).round(1)
    array([1. , 1.6])
    """
    weights = np.full(len(points), 1 / len(points))
    for _ in range(MAX_STEPS):
        distances = np.linalg.norm(points - weights @ points, axis=1)
        before, weights = weights, 1 / np.maximum(distances, 1e-12)
        weights /= weights.sum()
        if np.abs(weights - before).max() < TOLERANCE:
            break
    return weights


def _outside(gaussians: Gaussians) -> Float[np.ndarray, "dim dim"]:
    """A root of a covariance such as the shards', of which no shard can change much: sds are medians, correlations are averages."""
    sds = np.sqrt(np.diagonal(gaussians.covariances, axis1=1, axis2=2))
    correlation = np.mean(gaussians.covariances / (sds[:, :, None] * sds[:, None, :]), axis=0)
    return np.median(sds, axis=0)[:, None] * np.linalg.cholesky(correlation)


def _features(
    shards: Subposteriors, inside: Float[np.ndarray, "dim dim"], generator: np.random.Generator
) -> Float[np.ndarray, "shard feature"]:
    """The mean of random Fourier features over the draws of every shard."""
    pilots = pooled(shards, [-(-NUM_PILOTS // shards.num_shards)] * shards.num_shards)
    bandwidth = np.median(np.linalg.norm(np.diff(pilots, axis=0) @ inside.T, axis=1))
    frequencies = inside.T @ generator.normal(size=(shards.space.dim, NUM_FREQUENCIES)) / bandwidth
    features = np.empty((shards.num_shards, 2 * NUM_FREQUENCIES))
    for shard, draws in enumerate(shards):
        phases = thinned(draws, min(len(draws), MAX_DRAWS)) @ frequencies
        features[shard] = np.concatenate([np.cos(phases).mean(axis=0), np.sin(phases).mean(axis=0)])
        shards.advance()
    return features / np.sqrt(NUM_FREQUENCIES)


def _far(gaussians: Gaussians, inside: Float[np.ndarray, "dim dim"]) -> Bool[np.ndarray, " shard"]:
    """Which shards' draws are, in mean square, farther from the centre than the scatter of the shards' means explains."""
    num_shards, dim = gaussians.means.shape
    away = (gaussians.means - np.median(gaussians.means, axis=0)) @ inside.T
    widths = np.trace(inside @ gaussians.covariances @ inside.T, axis1=1, axis2=2)
    squares = np.sum(away**2, axis=1) + widths
    # means of powered shards scatter √K as widely as draws do, if nothing is wrong
    scatter = max(num_shards, np.median(squares) / chdtri(dim, 0.5))
    return squares > scatter * chdtri(dim, SURPRISE / num_shards)


def _named(outliers: Int[np.ndarray, " outlier"]) -> list[str]:
    if not len(outliers):
        return []
    names = ", ".join(str(shard) for shard in outliers[:MAX_NAMED])
    more = f" and {len(outliers) - MAX_NAMED} more" if len(outliers) > MAX_NAMED else ""
    return [
        f"far from the others, and left out: shard{'s' if len(outliers) > 1 else ''} {names}{more}. Look at the rows there, and at the "
        "chains."
    ]
