r"""Gaussian approximations of the shards, and the product of Gaussians.

$$\Lambda = \sum_k \Sigma_k^{-1}, \qquad \mu = \Lambda^{-1} \sum_k \Sigma_k^{-1} \mu_k.$$
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..linalg.shrinkage import means_and_covariances, shrinkage
from .base import Subposteriors

MIN_PRECISION_FACTOR = 0.5  # of the correction for few draws, negative below dim + 2 draws


class Gaussian(NamedTuple):
    """A mean and a covariance."""

    mean: Float[np.ndarray, " dim"]
    covariance: Float[np.ndarray, "dim dim"]

    def draws(
        self, num_draws: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "draw dim"]:
        """Draw independently."""
        noise = generator.normal(size=(num_draws, len(self.mean)))
        return self.mean + noise @ np.linalg.cholesky(self.covariance).T


class Gaussians(NamedTuple):
    """A Gaussian approximation of every shard.

    Attributes:
        means: means of the draws.
        covariances: covariances of the draws, shrunk towards their common structure.
        counts: number of draws of every shard.
        shrinkage: amount of shrinkage of every covariance, from 0 to 1.
    """

    means: Float[np.ndarray, "shard dim"]
    covariances: Float[np.ndarray, "shard dim dim"]
    counts: Int[np.ndarray, " shard"]
    shrinkage: Float[np.ndarray, " shard"]

    @classmethod
    def of(cls, shards: Subposteriors) -> "Gaussians":
        """Estimate means and shrunk covariances, reading the shards one by one."""
        counts = np.array(shards.counts)
        means, covariances = means_and_covariances(shards)
        shrunk, amounts = shrinkage(covariances, counts)
        return cls(means, shrunk, counts, amounts)

    @property
    def precisions(self) -> Float[np.ndarray, "shard dim dim"]:
        """Inverses of the covariances, corrected for the bias of an inverted estimate.

        A shrunk covariance rests on the draws of all shards, and so is corrected less.
        """
        unbiased = (self.counts - self.means.shape[1] - 2) / (self.counts - 1)
        unbiased = np.clip(unbiased, MIN_PRECISION_FACTOR, 1.0)
        factors = self.shrinkage + (1 - self.shrinkage) * unbiased
        return factors[:, None, None] * np.linalg.inv(self.covariances)

    def product(self) -> Gaussian:
        """Return the Gaussian proportional to the product of all."""
        precisions = self.precisions
        covariance = np.linalg.inv(precisions.sum(axis=0))
        return Gaussian(covariance @ np.einsum("kij,kj->i", precisions, self.means), covariance)
