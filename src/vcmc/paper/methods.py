"""The methods in every figure: the paper's baselines, the paper's method, and our default."""

from collections.abc import Mapping
from typing import NamedTuple

from ..aggregators.base import AbstractFamily, aggregate
from ..aggregators.weights import AbstractStart, Precision, Uniform
from ..combiners.base import AbstractCombiner, Combined, Subposteriors
from ..combiners.consensus import Consensus
from ..combiners.variational import Variational
from ..variational.adaptive import Adaptive
from .problem import Problem, Size

NUM_SAMPLES = 40  # draws per iteration, as in the paper


class Fixed(AbstractCombiner):
    """Aggregation with weights that are not optimized.

    Args:
        family: the family of aggregators.
        start: the rule for the weights.
    """

    family: AbstractFamily
    start: AbstractStart

    def combine(self, shards: Subposteriors) -> Combined:
        draws = shards.stacked
        aggregator = self.family.fit(shards.space, draws, self.start)
        return Combined(aggregate(aggregator, draws, shards.stacked_pairs), pairs=shards.pairs)


class Method(NamedTuple):
    """A combiner, and whether it needs shards sampled as in the paper."""

    combiner: AbstractCombiner
    as_paper: bool


def paper_method(problem: Problem, iterations: int) -> Variational:
    """Return the paper's method: its family, relaxed entropy, and numbers of draws and iterations.

    The paper does not give its step sizes. We use Adam, which gets further than projected gradients
    with AdaGrad: in the first 25 iterations these lower the objective of the spectral family.
    """
    optimizer = Adaptive(num_samples=NUM_SAMPLES, max_iterations=iterations)
    return Variational(problem.family, optimizer=optimizer)


def methods_of(problem: Problem, size: Size) -> Mapping[str, Method]:
    """Return all methods for a problem, by name; the draws of the last one are refined."""
    methods = {
        "uniform": Method(Fixed(problem.family, Uniform()), True),
        "Gaussian": Method(Fixed(problem.family, Precision()), True),
        "full Gaussian": Method(Consensus(), False),
        "VCMC": Method(paper_method(problem, size.iterations), True),
        "default": Method(Variational(), False),
    }
    if not problem.has_full_covariance:
        del methods["full Gaussian"]
    return methods
