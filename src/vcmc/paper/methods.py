"""The methods of every figure: the paper's baselines, the paper's own, and what vcmc has beyond them."""

from collections.abc import Mapping
from typing import NamedTuple

from ..aggregators.base import AbstractFamily, aggregate
from ..aggregators.weights import AbstractStart, Precision, Uniform
from ..combiners.base import AbstractCombiner, Combined, Subposteriors
from ..combiners.consensus import Consensus
from ..combiners.variational import Variational
from ..variational.adaptive import Adaptive
from .problem import Problem, Size

NUM_SAMPLES = 40  # of an iteration, as in the paper


class Fixed(AbstractCombiner):
    """Aggregates with weights of a rule of thumb.

    Args:
        family: the aggregators.
        start: the rule.
    """

    family: AbstractFamily
    start: AbstractStart

    def combine(self, shards: Subposteriors) -> Combined:
        draws = shards.stacked
        return Combined(aggregate(self.family.fit(shards.space, draws, self.start), draws))


class Method(NamedTuple):
    """A combiner, and whether its shards are sampled as the paper's aggregators ask for."""

    combiner: AbstractCombiner
    as_paper: bool


def paper_method(problem: Problem, iterations: int) -> Variational:
    """The paper's method: its family, its relaxed entropy, its number of samples and iterations.

    The paper does not say its step sizes. Steps are Adam's, which come further here than projected gradients with AdaGrad's: these
    lower the objective of the spectral family in its first 25 iterations.
    """
    optimizer = Adaptive(num_samples=NUM_SAMPLES, max_iterations=iterations)
    return Variational(problem.family, optimizer=optimizer)


def methods_of(problem: Problem, size: Size) -> Mapping[str, Method]:
    """All methods for a problem, by name; the refinement of the last is made of its draws."""
    methods = {
        "uniform": Method(Fixed(problem.family, Uniform()), True),
        "Gaussian": Method(Fixed(problem.family, Precision()), True),
        "full Gaussian": Method(Consensus(), False),
        "VCMC": Method(paper_method(problem, size.iterations), True),
        "default": Method(Variational(), False),
    }
    return {
        name: method for name, method in methods.items() if problem.full or name != "full Gaussian"
    }
