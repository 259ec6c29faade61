r"""SwISS: transform the shards' draws to one mean and covariance, and pool them.

Vyner, Nemeth and Sherlock, *SwISS: a scalable Markov chain Monte Carlo divide-and-conquer strategy*
(2023). Every shard has the full prior and its likelihood to the power $K$. For Gaussian shards of
means $\mu_k$ and covariances $\Sigma_k$ the posterior has

$$\Sigma^{-1} = \frac 1 K \sum_k \Sigma_k^{-1}, \qquad
\mu = \Sigma \, \frac 1 K \sum_k \Sigma_k^{-1} \mu_k,$$

as the mean of the shards' log densities is that of all data. In coordinates in which $\Sigma = I$,
draws are scaled by $\Sigma_k^{-1/2}$: they keep their skewness and tails, and the result does not
depend on the units of the parameters.
"""

from typing import ClassVar

import numpy as np

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussian, Gaussians
from .pooling import transport, transport_maps


class Swiss(AbstractCombiner):
    """Pooled draws, transformed to the mean and covariance of the posterior."""

    needs: ClassVar[Needs] = Needs(prior="powered", streams=True)

    def combine(self, shards: Subposteriors) -> Combined:
        gaussians = Gaussians.of(shards)
        product = gaussians.product()
        posterior = Gaussian(product.mean, product.covariance * shards.num_shards)
        root = np.linalg.cholesky(posterior.covariance)
        inverse = np.linalg.inv(root)
        white = inverse @ gaussians.covariances @ inverse.T
        maps = root @ transport_maps(white, np.eye(shards.space.dim)) @ inverse
        return Combined(transport(shards, gaussians.means, posterior.mean, maps))
