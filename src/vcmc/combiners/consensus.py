r"""Consensus Monte Carlo: average the shards' draws, weighted by precision.

Scott, Blocker, Bonassi, Chipman, George and McCulloch, *Bayes and big data: the consensus Monte
Carlo algorithm* (2016). For Gaussian shards of covariances $\Sigma_k$, the weights

$$W_k = \Bigl(\sum_j \Sigma_j^{-1}\Bigr)^{-1} \Sigma_k^{-1}$$

turn averages of independent draws into exact draws of the product. These averages are members of
the vector family (`aggregators/vector.py`); here they are computed shard by shard, so that the
draws of only one shard are held at a time.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..aggregators.weights import Precision
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussians


class Average(AbstractCombiner):
    """Unweighted averages of the shards' draws."""

    needs: ClassVar[Needs] = Needs(streams=True)

    def combine(self, shards: Subposteriors) -> Combined:
        shape = shards.num_shards, shards.space.dim
        return _averages(shards, np.full(shape, 1 / shards.num_shards))


class Consensus(AbstractCombiner):
    """Averages of the shards' draws, weighted by precision.

    Args:
        diagonal: weight each coordinate by its own variance, as the paper's baseline does, instead
            of by covariance matrices. Covariance matrices are shrunk towards the one that the
            shards have in common, the more so the fewer draws there are per dimension.
    """

    needs: ClassVar[Needs] = Needs(streams=True)

    diagonal: bool = False

    def combine(self, shards: Subposteriors) -> Combined:
        if self.diagonal:
            precisions = 1 / np.stack([draws.var(axis=0, ddof=1) for draws in shards])
            return _averages(shards, precisions / precisions.sum(axis=0))
        precisions = np.linalg.inv(Gaussians.of(shards).covariances)
        return _averages(shards, Precision().matrices(precisions))


def _averages(
    shards: Subposteriors,
    weights: Float[np.ndarray, "shard dim"] | Float[np.ndarray, "shard dim dim"],
) -> Combined:
    """Average the draws by vectors or matrices of weights."""
    merged = np.zeros((shards.num_draws, shards.space.dim))
    for weight, draws, indices in zip(weights, shards, shards.pairs, strict=True):
        weighted = draws @ weight.T if weight.ndim == 2 else draws * weight
        merged += weighted[indices]
        shards.advance()
    by_coordinate = weights if weights.ndim == 2 else np.diagonal(weights, axis1=1, axis2=2)
    return Combined(jnp.asarray(merged), jnp.asarray(by_coordinate), pairs=shards.pairs)
