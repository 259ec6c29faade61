r"""The shards as Gaussians: means and covariances, read off one shard after the other, and the Gaussian that they multiply to.

$$\Lambda = \sum_k \Sigma_k^{-1}, \qquad \mu = \Lambda^{-1} \sum_k \Sigma_k^{-1} \mu_k.$$
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..linalg.shrinkage import means_and_covariances, shrinkage
from .base import Subposteriors


class Gaussian(NamedTuple):
    """A mean and a covariance."""

    mean: Float[np.ndarray, " dim"]
    covariance: Float[np.ndarray, "dim dim"]

    def draws(
        self, num_draws: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "draw dim"]:
        """Independent draws."""
        noise = generator.normal(size=(num_draws, len(self.mean)))
        return self.mean + noise @ np.linalg.cholesky(self.covariance).T


class Gaussians(NamedTuple):
    """A Gaussian for every shard."""

    means: Float[np.ndarray, "shard dim"]
    covariances: Float[np.ndarray, "shard dim dim"]
    counts: Int[np.ndarray, " shard"]
    shrinkage: Float[np.ndarray, " shard"]

    @classmethod
    def of(cls, shards: Subposteriors) -> "Gaussians":
        """Means and covariances of the shards' draws; covariances are shrunk towards what the shards have in common."""
        counts = np.array(shards.counts)
        means, covariances = means_and_covariances(shards)
        shrunk, amounts = shrinkage(covariances, counts)
        return cls(means, shrunk, counts, amounts)

    @property
    def precisions(self) -> Float[np.ndarray, "shard dim dim"]:
        """The inverses of the covariances, less what the inverse of an estimate is too large by on average.

        As far as a covariance was shrunk, it rests on the draws of all shards, and is not too large.
        """
        rest = np.clip((self.counts - self.means.shape[1] - 2) / (self.counts - 1), 0.5, 1.0)
        factors = self.shrinkage + (1 - self.shrinkage) * rest
        return factors[:, None, None] * np.linalg.inv(self.covariances)

    def product(self) -> Gaussian:
        """The Gaussian that is proportional to the product of all."""
        precisions = self.precisions
        covariance = np.linalg.inv(precisions.sum(axis=0))
        return Gaussian(covariance @ np.einsum("kij,kj->i", precisions, self.means), covariance)
