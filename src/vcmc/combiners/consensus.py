r"""Consensus Monte Carlo: average the shards' draws, each shard by how much it knows.

Scott, Blocker, Bonassi, Chipman, George and McCulloch, *Bayes and big data: the consensus Monte
Carlo algorithm* (2016). With Gaussian shards of covariances $\Sigma_k$ the weights

$$W_k = \Bigl(\sum_j \Sigma_j^{-1}\Bigr)^{-1} \Sigma_k^{-1}$$

make averages of independent draws exact draws of the product.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..aggregators.base import AbstractAggregator
from ..aggregators.vector import Vector
from ..typing import Scalar
from .base import AbstractCombiner


class Average(AbstractCombiner):
    """Uniform averages: every shard counts the same."""

    def aggregator(self, draws: Float[Array, "shard draw dim"]) -> AbstractAggregator:
        """The aggregator that these draws ask for."""
        return Vector.uniform(draws.shape[0], draws.shape[2])

    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, "draw dim"]:
        return aggregate(self.aggregator(draws), draws)


class Consensus(AbstractCombiner):
    """Averages weighted by the shards' precisions.

    Args:
        diagonal: weigh every coordinate by its own variance, as the paper's baseline does, in place
            of weighing by covariance matrices. Covariance matrices are shrunk towards the one that
            the shards have in common, the more so the fewer draws there are for each dimension.
    """

    diagonal: bool = False

    def aggregator(self, draws: Float[Array, "shard draw dim"]) -> AbstractAggregator:
        """The aggregator that these draws ask for."""
        if self.diagonal:
            return Vector.from_variance(jnp.var(draws, axis=1, ddof=1))
        return Vector.from_covariance(shrunk_covariances(draws))

    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, "draw dim"]:
        return aggregate(self.aggregator(draws), draws)


@jax.jit
def aggregate(
    aggregator: AbstractAggregator, draws: Float[Array, "shard draw dim"]
) -> Float[Array, "draw dim"]:
    """Apply an aggregator to the first draws of all shards, to the second draws, and so on."""
    return jax.vmap(aggregator, in_axes=1)(draws)


@jax.jit
def shrunk_covariances(
    draws: Float[Array, "shard draw dim"],
) -> Float[Array, "shard dim dim"]:
    r"""Covariances of the shards, each shrunk towards what the shards have in common.

    The pooled covariance is shrunk towards its diagonal; in coordinates that it whitens, every
    shard's covariance is shrunk towards a multiple of the identity. Both amounts are the oracle
    approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010), which vanishes as draws grow
    unless there is nothing to tell apart.
    """
    num_shards, num_draws, dim = draws.shape
    centred = draws - draws.mean(axis=1, keepdims=True)
    covariances = jnp.einsum("kti,ktj->kij", centred, centred) / (num_draws - 1)
    if dim == 1:
        return covariances
    pooled = covariances.mean(axis=0)
    scales = jnp.sqrt(jnp.diag(pooled))
    correlation = _shrink(pooled / jnp.outer(scales, scales), num_shards * num_draws)
    root = scales[:, None] * jnp.linalg.cholesky(correlation)
    inverse = jnp.linalg.inv(root)
    whitened = jnp.einsum("ij,kjl,ml->kim", inverse, covariances, inverse)
    shrunk = jax.vmap(lambda covariance: _shrink(covariance, num_draws))(whitened)
    return jnp.einsum("ij,kjl,ml->kim", root, shrunk, root)


def _shrink(covariance: Float[Array, "dim dim"], num_draws: int) -> Float[Array, "dim dim"]:
    """Oracle approximating shrinkage towards a multiple of the identity."""
    dim = covariance.shape[0]
    mean_variance: Scalar = jnp.trace(covariance) / dim
    mean_square = jnp.mean(covariance**2)
    excess = jnp.maximum(mean_square - mean_variance**2 / dim, 1e-300)
    amount = jnp.minimum((mean_square + mean_variance**2) / ((num_draws + 1) * excess), 1.0)
    return (1 - amount) * covariance + amount * mean_variance * jnp.eye(dim)
