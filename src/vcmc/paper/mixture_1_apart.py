"""The mixture of `mixture_1.py` with separately started shards: the likely setting of Figure 3.

vcmc starts the chains of all shards at one point, the mode of all rows, so that they are in the
same mode. Separately started chains are not: here the centres of every shard start at eight of its
rows, chosen at random. Some shards then have two centres in one cluster and one centre between two
others. The paper does not say where its chains start; its reported advantage over Gaussian averages
appears in this setting.
"""

from dataclasses import replace
from functools import partial

from jaxtyping import Array

from ..samplers.mixture_gibbs import Mixture, MixtureGibbs, MixtureState
from ..samplers.ranges import generators
from ..space import Point
from .errors_by_shards import ErrorsByShards
from .mixture_1 import SIZES, problem


class FromOwnRows(MixtureGibbs):
    """Gibbs sampling whose chains start at random rows of their shard, not at the common start."""

    def init(self, setup: Mixture, start: Point, key: Array) -> MixtureState:
        (generator,) = generators(key, 1)
        indices = generator.choice(setup.x.shape[1], setup.num_components, replace=False)
        return super().init(setup, start, key)._replace(centres=setup.x[:-1, indices].T)


EXPERIMENT = ErrorsByShards(
    "mixture-1-apart",
    "Mixture of Gaussians, noise sd 1, every shard started by itself",
    partial(problem, shard_sampler=FromOwnRows()),
    {name: replace(size, refined=size.shards[-1:]) for name, size in SIZES.items()},
)
