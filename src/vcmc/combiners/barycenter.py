r"""The Wasserstein barycentre of the shards: the distribution whose mean squared distance to them is least.

Srivastava, Li and Dunson, *Scalable Bayes via barycenter in Wasserstein space* (2018). Every shard holds the full prior and its
likelihood to the power $K$, so that each is a noisy guess of the whole posterior, and the barycentre averages guesses. Where shards
differ by affine maps only, as Gaussians do, it has the mean of their means, and the covariance that solves

$$S = \frac 1 K \sum_k \bigl(S^{1/2} \Sigma_k S^{1/2}\bigr)^{1/2},$$

to which the iteration of Álvarez-Esteban, del Barrio, Cuesta-Albertos and Matrán, *A fixed-point approach to barycenters in
Wasserstein space* (2016), leads:

$$S \leftarrow S^{-1/2} \Bigl(\frac 1 K \sum_k \bigl(S^{1/2} \Sigma_k S^{1/2}\bigr)^{1/2}\Bigr)^2 S^{-1/2}.$$

Distances are those of coordinates in which the shards' covariances are the identity on average, so that they do not depend on the
parameters' units.

In one dimension the barycentre averages quantiles, whatever the shards look like: Li, Srivastava and Dunson, *Simple, scalable and
accurate posterior interval estimation* (2017).
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussian, Gaussians
from .pooling import moved, root, transports

MAX_STEPS = 100
TOLERANCE = 1e-10  # of the last step, where covariances are about one


class Barycenter(AbstractCombiner):
    """Draws of all shards, each shard's moved to the barycentre.

    Args:
        marginals: average the quantiles of every coordinate, which is right for shards of any shape, but says nothing of how
            coordinates go together: that is taken from the ranks of the moved draws.
    """

    needs: ClassVar[Needs] = Needs(prior="powered", streams=True)

    marginals: bool = False

    def combine(self, shards: Subposteriors) -> Combined:
        gaussians = Gaussians.of(shards)
        outside = np.linalg.cholesky(gaussians.covariances.mean(axis=0))
        inside = np.linalg.inv(outside)
        white = inside @ gaussians.covariances @ inside.T
        centre = barycenter(white)
        goal = Gaussian(gaussians.means.mean(axis=0), outside @ centre @ outside.T)
        draws = moved(shards, gaussians, goal, outside @ transports(white, centre) @ inside)
        if not self.marginals:
            return Combined(draws)
        ranks = np.argsort(np.argsort(draws, axis=0), axis=0)
        return Combined(jnp.asarray(np.take_along_axis(_mean_quantiles(shards), ranks, axis=0)))


def barycenter(covariances: Float[np.ndarray, "shard dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The covariance of the barycentre of centred Gaussians.

    >>> barycenter(np.array([[[1.0]], [[9.0]]]))  # in one dimension, sds are averaged
    array([[4.]])
    """
    centre = covariances.mean(axis=0)
    for _ in range(MAX_STEPS):
        half = root(centre)
        inverse = np.linalg.inv(half)
        mean = root(half @ covariances @ half).mean(axis=0)
        before, centre = centre, inverse @ mean @ mean @ inverse
        centre = (centre + centre.T) / 2
        if np.abs(centre - before).max() < TOLERANCE * np.abs(centre).max():
            break
    return centre


def _mean_quantiles(shards: Subposteriors) -> Float[np.ndarray, "draw dim"]:
    """The quantiles of every coordinate, averaged over the shards: as many as there are to be draws."""
    levels = (np.arange(shards.num_draws) + 0.5) / shards.num_draws
    quantiles = np.zeros((shards.num_draws, shards.space.dim))
    for draws in shards:
        quantiles += _quantiles(draws, levels) / shards.num_shards
    return quantiles


def _quantiles(
    draws: Float[np.ndarray, "draw dim"], levels: Float[np.ndarray, " level"]
) -> Float[np.ndarray, "level dim"]:
    """As NumPy's, with the method "hazen", but faster where there are many levels."""
    ordered = np.sort(draws, axis=0)
    places = np.clip(levels * len(draws) - 0.5, 0, len(draws) - 1)
    below = places.astype(int)
    above = np.minimum(below + 1, len(draws) - 1)
    return ordered[below] + (places - below)[:, None] * (ordered[above] - ordered[below])
