"""The mixture of `mixture_1.py`, but with shards that start by themselves: what the paper's Figure 3 seems to have been made of.

vcmc starts the chains of all shards at one point, the mode of all rows, so that they sit in the same mode. Chains that are started one by one, as separate runs
of a sampler are, do not: here the centres of every shard start at eight of its rows, chosen at random. Some shards then have two centres in one cluster and one centre
between two others. The paper does not say where its chains start; the advantage that it reports for its method over Gaussian averages is seen here.
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
    """Gibbs sampling whose chains start at random rows of their own, wherever they are told to start."""

    def init(self, setup: Mixture, start: Point, key: Array) -> MixtureState:
        (generator,) = generators(key, 1)
        chosen = generator.choice(setup.x.shape[1], setup.num_components, replace=False)
        return super().init(setup, start, key)._replace(centres=setup.x[:-1, chosen].T)


EXPERIMENT = ErrorsByShards(
    "mixture-1-apart",
    "Mixture of Gaussians, noise sd 1, every shard started by itself",
    partial(problem, shard_sampler=FromOwnRows()),
    {name: replace(size, refined=size.shards[-1:]) for name, size in SIZES.items()},
)
