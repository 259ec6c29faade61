r"""Variational consensus Monte Carlo: learn how to aggregate the shards' draws.

Rabinovich, Angelino and Jordan, *Variational consensus Monte Carlo* (2015). Within a family of aggregators $F$, it looks for
the one whose draws $F(\theta_1, \ldots, \theta_K)$ are closest to the posterior, by raising a lower bound on the log evidence
(`objective.py`). The full-data target is seen through batches of log densities and scores.

The errata of the paper, and what is done in their place, are in `docs/errata.md`.
"""

from typing import ClassVar, cast

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..aggregators.affine import AffineFamily
from ..aggregators.base import AbstractAggregator, AbstractFamily
from ..aggregators.weights import (
    AbstractStart,
    AbstractWeights,
    Precision,
    weights_of,
    with_weights,
)
from ..space import Product
from ..target import Minibatch, Target
from ..variational.adaptive import Adaptive
from ..variational.entropies import AbstractEntropy, GaussianSum, Relaxed
from ..variational.newton import Newton
from ..variational.objective import Objective
from ..variational.optimizer import WINDOW, AbstractGradient, AbstractOptimizer, Climb, random_batch
from .base import AbstractCombiner, Combined, Needs, Subposteriors

MAX_ALIGNMENTS = 5
NUM_COMPARED = 10  # batches by which the end of a climb is compared with its start
SMALL_LOSS = 0.05  # nats that need no mention
MUCH_NOISE = 5.0  # nats of Monte Carlo error, beside which weights are guesses

Judged = tuple[Objective, list[AbstractWeights]]


class Variational(AbstractCombiner):
    """Aggregates with learned weights.

    Args:
        family: the aggregators to choose from; by default a shift and a scale on top of averages. The paper's families
            are `BlockFamily` (one for each parameter, as its space asks for), `VectorFamily` and others.
        entropy: the entropy of the combined draws; by default `GaussianSum` for affine maps, and the paper's `Relaxed`
            for other families.
        optimizer: how the objective is climbed; by default `Newton` where it can be used, `Adaptive` elsewhere.
        start: the weights to start from.
    """

    needs: ClassVar[Needs] = Needs(target=True, scores=True)

    family: AbstractFamily
    entropy: AbstractEntropy
    optimizer: AbstractOptimizer
    start: AbstractStart

    def __init__(
        self,
        family: AbstractFamily | None = None,
        entropy: AbstractEntropy | None = None,
        optimizer: AbstractOptimizer | None = None,
        start: AbstractStart | None = None,
    ):
        family = AffineFamily() if family is None else family
        entropy = entropy or (GaussianSum() if isinstance(family, AffineFamily) else Relaxed())
        one_scale = isinstance(family, AffineFamily) and not family.per_shard
        second_order = one_scale and isinstance(entropy, GaussianSum)
        self.family = family
        self.entropy = entropy
        self.optimizer = optimizer or (Newton() if second_order else Adaptive())
        self.start = start or Precision()

    def __check_init__(self) -> None:
        for name, kind, example in (
            ("family", AbstractFamily, "vcmc.aggregators.VectorFamily()"),
            ("entropy", AbstractEntropy, "vcmc.variational.entropies.Relaxed()"),
            ("optimizer", AbstractOptimizer, "vcmc.variational.Adaptive()"),
            ("start", AbstractStart, "vcmc.aggregators.Uniform()"),
        ):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be such as {example}; got {getattr(self, name)!r}.")

        if isinstance(self.optimizer, Newton) and not isinstance(self.entropy, GaussianSum):
            raise ValueError(
                f"Newton is for the entropy GaussianSum(); got {self.entropy!r}. Use Adaptive()."
            )

    def check(self, space: Product) -> None:
        self.family.check(space)

    def combine(self, shards: Subposteriors) -> Combined:
        target, draws = cast(Target, shards.target), shards.stacked
        aggregator = self.family.fit(shards.space, draws, self.start)
        weights = weights_of(aggregator)
        if (
            shards.learned is not None and not shards.space.labelled()
        ):  # labels may have been given otherwise
            weights = shards.learned
        climbs: list[Climb] = []
        for attempt in range(MAX_ALIGNMENTS):
            seen = self._seen(target, aggregator, draws, (shards.seed, attempt, 1))
            objective = Objective(seen, self.entropy, aggregator, draws)
            if not climbs:
                start = objective, weights
            climbs.append(
                self.optimizer.climb(objective, weights, (shards.seed, attempt), shards.advance)
            )
            weights = climbs[-1].weights
            learned = with_weights(aggregator, weights)
            aggregator = learned.realigned(draws)
            if climbs[-1].broken or aggregator is learned or eqx.tree_equal(aggregator, learned):
                break
        notes = [climb.trouble for climb in climbs if climb.trouble]
        optimizer = self.optimizer
        if (
            isinstance(
                optimizer, AbstractGradient
            )  # others see to it themselves that the objective does not fall
            and not climbs[-1].broken
            and (optimizer.data_fraction < 1 or not _clearly_rose(climbs))
        ):
            size = optimizer.batch_size(objective)
            gain, error = _gain(target, start, (objective, weights), size, shards.seed)
            if gain < -2 * error:
                objective, weights = start
                if gain < -SMALL_LOSS:
                    notes.append(
                        f"the objective fell by {-gain:.3g} ± {error:.2g} nats from its start, and the start's weights were "
                        "kept: try a smaller learning rate, or more samples in every iteration."
                    )
        notes += _noise(climbs[-1], shards.space.dim)
        return Combined(
            objective.merged(weights),
            with_weights(objective.aggregator, weights).shard_weights(),
            {
                "objective": np.concatenate([climb.values for climb in climbs]),
                "objective_error": np.concatenate([climb.errors for climb in climbs]),
            },
            notes,
            weights,
        )

    def _seen(
        self,
        target: Target,
        aggregator: AbstractAggregator,
        draws: Float[Array, "shard draw dim"],
        seed: tuple[int, ...],
    ) -> Target | Minibatch:
        """The target as an iteration sees it: all rows, or those of a few shards."""
        if not isinstance(self.optimizer, AbstractGradient):
            return target
        every = target.num_shards
        num_shards = int(np.ceil(round(self.optimizer.data_fraction * every, 6)))
        if num_shards == every:
            return target
        return Minibatch(target, aggregator(draws.mean(axis=1)), max(1, num_shards), seed)


def _clearly_rose(climbs: list[Climb]) -> bool:
    """Whether the last window is above the start by more than three errors: then there is no need to compare."""
    last = climbs[-1].values[-WINDOW:]
    if len(climbs[-1].values) < 2 * WINDOW:
        return False
    error = np.hypot(climbs[0].errors[0], np.std(last, ddof=1) / np.sqrt(len(last)))
    return bool(np.mean(last) - climbs[0].values[0] > 3 * error)


def _gain(
    target: Target, before: Judged, after: Judged, size: int, seed: int
) -> tuple[float, float]:
    """By how much the objective rose, and the error of that, on draws that both are judged by."""
    generator = np.random.default_rng((seed, MAX_ALIGNMENTS))
    gains = []
    for objective, _ in (before, after):
        objective.target = target
    for _ in range(NUM_COMPARED):
        batch = random_batch(before[0], size, generator)
        low, high = (objective.value(weights, batch) for objective, weights in (before, after))
        gains.append(high - low)
    return float(np.mean(gains)), float(np.std(gains, ddof=1) / np.sqrt(NUM_COMPARED))


def _noise(climb: Climb, dim: int) -> list[str]:
    """A warning if the last estimates were too noisy to tell good weights from bad ones."""
    error = float(np.median(climb.errors[-WINDOW:]))
    if not error > max(MUCH_NOISE, np.sqrt(dim)):
        return []
    return [
        f"the objective is known to ± {error:.2g} nats only at the end, too little to learn good weights by: the target falls off "
        "steeply at some combined draws. Try more samples in every iteration, or fewer shards, and doubt the result."
    ]
