r"""Consensus Monte Carlo: average the shards' draws, each shard by how much it knows.

Scott, Blocker, Bonassi, Chipman, George and McCulloch, *Bayes and big data: the consensus Monte
Carlo algorithm* (2016). With Gaussian shards of covariances $\Sigma_k$ the weights

$$W_k = \Bigl(\sum_j \Sigma_j^{-1}\Bigr)^{-1} \Sigma_k^{-1}$$

make averages of independent draws exact draws of the product. These averages are members of the vector family
(`aggregators/vector.py`); here they are made shard by shard, so that no more than one shard need be held.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..aggregators.weights import Precision
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussians


class Average(AbstractCombiner):
    """Uniform averages: every shard counts the same."""

    needs: ClassVar[Needs] = Needs(streams=True)

    def combine(self, shards: Subposteriors) -> Combined:
        return _averages(
            shards, np.full((shards.num_shards, shards.space.dim), 1 / shards.num_shards)
        )


class Consensus(AbstractCombiner):
    """Averages weighted by the shards' precisions.

    Args:
        diagonal: weigh every coordinate by its own variance, as the paper's baseline does, in place
            of weighing by covariance matrices. Covariance matrices are shrunk towards the one that
            the shards have in common, the more so the fewer draws there are for each dimension.
    """

    needs: ClassVar[Needs] = Needs(streams=True)

    diagonal: bool = False

    def combine(self, shards: Subposteriors) -> Combined:
        if self.diagonal:
            precisions = 1 / np.stack([draws.var(axis=0, ddof=1) for draws in shards])
            return _averages(shards, precisions / precisions.sum(axis=0))
        return _averages(
            shards, Precision().matrices(np.linalg.inv(Gaussians.of(shards).covariances))
        )


def _averages(
    shards: Subposteriors,
    weights: Float[np.ndarray, "shard dim"] | Float[np.ndarray, "shard dim dim"],
) -> Combined:
    from scipy.linalg.blas import dgemm  # here, not above: it adds to the time of `import vcmc`

    merged = np.zeros((shards.num_draws, shards.space.dim))
    for weight, draws in zip(weights, shards, strict=True):
        even = shards.stretched(draws)
        if (
            weight.ndim == 2
        ):  # added up in place, as a product of its own would be written and read once more
            dgemm(1.0, weight, even.T, beta=1.0, c=merged.T, overwrite_c=True)
        else:
            merged += even * weight
        shards.advance()
    of_coordinates = weights if weights.ndim == 2 else np.diagonal(weights, axis1=1, axis2=2)
    return Combined(jnp.asarray(merged), jnp.asarray(of_coordinates))
