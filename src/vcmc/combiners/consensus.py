r"""Consensus Monte Carlo: average the shards' draws, each shard by how much it knows.

Scott, Blocker, Bonassi, Chipman, George and McCulloch, *Bayes and big data: the consensus Monte
Carlo algorithm* (2016). With Gaussian shards of covariances $\Sigma_k$ the weights

$$W_k = \Bigl(\sum_j \Sigma_j^{-1}\Bigr)^{-1} \Sigma_k^{-1}$$

make averages of independent draws exact draws of the product.
"""

from ..aggregators.base import AbstractAggregator, aggregate
from ..aggregators.vector import VectorFamily
from ..aggregators.weights import Precision, Uniform
from .base import AbstractCombiner, Combined, Subposteriors


class Average(AbstractCombiner):
    """Uniform averages: every shard counts the same."""

    def __call__(self, shards: Subposteriors) -> Combined:
        return _combine(VectorFamily(full=False).fit(shards.space, shards.draws, Uniform()), shards)


class Consensus(AbstractCombiner):
    """Averages weighted by the shards' precisions.

    Args:
        diagonal: weigh every coordinate by its own variance, as the paper's baseline does, in place
            of weighing by covariance matrices. Covariance matrices are shrunk towards the one that
            the shards have in common, the more so the fewer draws there are for each dimension.
    """

    diagonal: bool = False

    def __call__(self, shards: Subposteriors) -> Combined:
        family = VectorFamily(full=not self.diagonal)
        return _combine(family.fit(shards.space, shards.draws, Precision()), shards)


def _combine(aggregator: AbstractAggregator, shards: Subposteriors) -> Combined:
    return Combined(aggregate(aggregator, shards.draws), aggregator.shard_weights())
