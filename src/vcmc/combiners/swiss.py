r"""SwISS: shards whose likelihood is inflated, scaled and shifted to one mean and covariance, and pooled.

Vyner, Nemeth and Sherlock, *SwISS: a scalable Markov chain Monte Carlo divide-and-conquer strategy* (2023). Every shard holds the
full prior and its likelihood to the power $K$. With Gaussian shards of means $\mu_k$ and covariances $\Sigma_k$ the posterior is

$$\Sigma^{-1} = \frac 1 K \sum_k \Sigma_k^{-1}, \qquad \mu = \Sigma \, \frac 1 K \sum_k \Sigma_k^{-1} \mu_k,$$

as the mean of the shards' log densities is that of all data. In coordinates in which $\Sigma = I$, shards are moved there by
$\Sigma_k^{-1/2}$: draws keep their skewness and their tails, and nothing depends on the parameters' units.
"""

from typing import ClassVar

import numpy as np

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussian, Gaussians
from .pooling import moved, transports


class Swiss(AbstractCombiner):
    """Draws of all shards, each shard's moved to the posterior's mean and covariance."""

    needs: ClassVar[Needs] = Needs(prior="powered", streams=True)

    def combine(self, shards: Subposteriors) -> Combined:
        gaussians = Gaussians.of(shards)
        product = gaussians.product()
        goal = Gaussian(product.mean, product.covariance * shards.num_shards)
        root = np.linalg.cholesky(goal.covariance)
        inverse = np.linalg.inv(root)
        maps = transports(inverse @ gaussians.covariances @ inverse.T, np.eye(shards.space.dim))
        return Combined(moved(shards, gaussians, goal, root @ maps @ inverse))
