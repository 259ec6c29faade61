r"""The Wasserstein barycentre: the distribution of least mean squared distance to the shards.

Srivastava, Li and Dunson, *Scalable Bayes via barycenter in Wasserstein space* (2018). Every shard
has the full prior and its likelihood to the power $K$, so that each is a noisy estimate of the
whole posterior, and the barycentre averages these estimates. If shards differ by affine maps only,
as Gaussians do, its mean is the mean of their means, and its covariance solves

$$S = \frac 1 K \sum_k \bigl(S^{1/2} \Sigma_k S^{1/2}\bigr)^{1/2},$$

by the iteration of Álvarez-Esteban, del Barrio, Cuesta-Albertos and Matrán, *A fixed-point approach
to barycenters in Wasserstein space* (2016):

$$S \leftarrow S^{-1/2}
\Bigl(\frac 1 K \sum_k \bigl(S^{1/2} \Sigma_k S^{1/2}\bigr)^{1/2}\Bigr)^2 S^{-1/2}.$$

Distances are those of coordinates in which the mean covariance of the shards is the identity, so
that the result does not depend on the units of the parameters.

In one dimension the barycentre averages quantiles, whatever the shape of the shards: Li, Srivastava
and Dunson, *Simple, scalable and accurate posterior interval estimation* (2017).
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussians
from .pooling import symmetric_root, transport, transport_maps

MAX_STEPS = 100  # of the iteration, which normally ends by its tolerance
RELATIVE_TOLERANCE = 1e-10  # of the last step


class Barycenter(AbstractCombiner):
    """Pooled draws, transported to the Wasserstein barycentre of the shards.

    Args:
        marginals: average the quantiles of each coordinate. This is right for shards of any shape,
            but leaves the dependence of coordinates open: it is taken from the ranks of the
            transported draws.
    """

    needs: ClassVar[Needs] = Needs(prior="powered", streams=True)

    marginals: bool = False

    def combine(self, shards: Subposteriors) -> Combined:
        gaussians = Gaussians.of(shards)
        root = np.linalg.cholesky(gaussians.covariances.mean(axis=0))
        inverse = np.linalg.inv(root)
        white = inverse @ gaussians.covariances @ inverse.T
        maps = root @ transport_maps(white, barycenter(white)) @ inverse
        draws = transport(shards, gaussians.means, gaussians.means.mean(axis=0), maps)
        if not self.marginals:
            return Combined(draws)
        ranks = np.argsort(np.argsort(draws, axis=0), axis=0)
        return Combined(jnp.asarray(np.take_along_axis(_mean_quantiles(shards), ranks, axis=0)))


def barycenter(covariances: Float[np.ndarray, "shard dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """Return the covariance of the barycentre of centred Gaussians.

    >>> barycenter(np.array([[[1.0]], [[9.0]]]))  # in one dimension, sds are averaged
    array([[4.]])
    """
    covariance = covariances.mean(axis=0)
    for _ in range(MAX_STEPS):
        root = symmetric_root(covariance)
        inverse = np.linalg.inv(root)
        mean = symmetric_root(root @ covariances @ root).mean(axis=0)
        previous, covariance = covariance, inverse @ mean @ mean @ inverse
        covariance = (covariance + covariance.T) / 2
        step = np.abs(covariance - previous).max()
        if step < RELATIVE_TOLERANCE * np.abs(covariance).max():
            break
    return covariance


def _mean_quantiles(shards: Subposteriors) -> Float[np.ndarray, "draw dim"]:
    """Return `num_draws` quantiles of each coordinate, averaged over the shards."""
    levels = (np.arange(shards.num_draws) + 0.5) / shards.num_draws
    quantiles = np.zeros((shards.num_draws, shards.space.dim))
    for draws in shards:
        quantiles += _quantiles(draws, levels) / shards.num_shards
    return quantiles


def _quantiles(
    draws: Float[np.ndarray, "draw dim"], levels: Float[np.ndarray, " level"]
) -> Float[np.ndarray, "level dim"]:
    """Return NumPy's quantiles by the method "hazen", faster for many levels."""
    ordered = np.sort(draws, axis=0)
    positions = np.clip(levels * len(draws) - 0.5, 0, len(draws) - 1)
    below = positions.astype(int)
    above = np.minimum(below + 1, len(draws) - 1)
    return ordered[below] + (positions - below)[:, None] * (ordered[above] - ordered[below])
