r"""Aggregate vectors by weighted averages.

$$F(\theta_1, \ldots, \theta_K) = \sum_k W_k \theta_k, \qquad \sum_k W_k = I.$$

With diagonal $W_k$ every coordinate is averaged by itself. Uniform averaging and consensus Monte
Carlo are members of this family.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..typing import Point
from .base import AbstractAggregator


class Vector(AbstractAggregator):
    """Weighted averages of points, with a weight per coordinate or a matrix per shard.

    >>> Vector.uniform(num_shards=2, dim=3)(jnp.array([[0.0, 0.0, 0.0], [2.0, 4.0, 6.0]])).tolist()
    [1.0, 2.0, 3.0]
    """

    weights: Float[Array, "shard dim"] | Float[Array, "shard dim dim"]

    @classmethod
    def uniform(cls, num_shards: int, dim: int) -> "Vector":
        """The same weight for every shard."""
        return cls(jnp.full((num_shards, dim), 1 / num_shards))

    @classmethod
    def from_variance(cls, variances: Float[Array, "shard dim"]) -> "Vector":
        """Weight each coordinate of a shard by its precision."""
        precisions = 1 / variances
        return cls(precisions / precisions.sum(axis=0))

    @classmethod
    def from_covariance(cls, covariances: Float[Array, "shard dim dim"]) -> "Vector":
        """Weight each shard by its precision matrix."""
        precisions = jnp.linalg.inv(covariances)
        return cls(jnp.linalg.solve(precisions.sum(axis=0), precisions))

    def __call__(self, points: Float[Array, "shard dim"]) -> Point:
        if self.weights.ndim == 2:
            return jnp.sum(self.weights * points, axis=0)
        return jnp.einsum("kij,kj->i", self.weights, points)
