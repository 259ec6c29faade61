r"""Variational consensus Monte Carlo: learn how to aggregate the shards' draws.

Rabinovich, Angelino and Jordan, *Variational consensus Monte Carlo* (2015). Within a family of aggregators $F$, it looks for
the one whose draws $F(\theta_1, \ldots, \theta_K)$ are closest to the posterior, by raising a lower bound on the log evidence
(`objective.py`). The full-data target is seen through batches of log densities and scores.

The errata of the paper, and what is done in their place, are in `docs/errata.md`.
"""

from typing import ClassVar

import equinox as eqx
import numpy as np

from ..aggregators.base import AbstractAggregator, AbstractFamily
from ..aggregators.blocks import BlockFamily
from ..aggregators.weights import AbstractStart, AbstractWeights, Precision, weights_of, with_weights
from ..objective import AbstractEntropy, Objective, Relaxed
from ..optimizers.adaptive import Adaptive
from ..optimizers.base import WINDOW, AbstractOptimizer, Climb, random_batch
from ..target import Minibatch, Target
from .base import AbstractCombiner, Combined, Subposteriors

MAX_ALIGNMENTS = 5
NUM_COMPARED, SIZE_COMPARED = 4, 20  # batches by which the end of a climb is compared with its start


class Variational(AbstractCombiner):
    """Aggregates with learned weights.

    Args:
        family: the aggregators to choose from; by default a family for each parameter, as its space asks for.
        entropy: the bound on the entropy of the combined draws.
        optimizer: how the objective is climbed.
        start: the weights to start from.
    """

    needs_target: ClassVar[bool] = True

    family: AbstractFamily = eqx.field(default_factory=BlockFamily)
    entropy: AbstractEntropy = eqx.field(default_factory=Relaxed)
    optimizer: AbstractOptimizer = eqx.field(default_factory=Adaptive)
    start: AbstractStart = eqx.field(default_factory=Precision)

    def __call__(self, shards: Subposteriors) -> Combined:
        if shards.target is None:
            raise ValueError(
                "Variational needs the full-data log density, and there are no rows to compute it from. Give "
                "combine a model and its rows: vcmc.combine(draws, combiner=..., model=model, rows=rows)."
            )
        aggregator = self.family.fit(shards.space, shards.draws, self.start)
        if len(shards.draws) == 1:
            return Combined(shards.draws[0], aggregator.shard_weights())
        start = weights_of(aggregator)
        climbs: list[Climb] = []
        for _ in range(MAX_ALIGNMENTS):
            objective = Objective(self._seen(shards, aggregator), self.entropy, aggregator, shards.draws)
            weights = climbs[-1].weights if climbs else start
            climbs.append(self.optimizer.climb(objective, weights, shards.seed, shards.advance))
            learned = with_weights(aggregator, climbs[-1].weights)
            aggregator = learned.realigned(shards.draws)
            if eqx.tree_equal(aggregator, learned):
                break
        weights = climbs[-1].weights
        notes = [climb.trouble for climb in climbs[-1:] if climb.trouble]
        if not notes and not _clearly_rose(climbs):
            objective.target = shards.target
            gain, error = _gain(objective, start, weights, shards.seed)
            if gain < -2 * error:
                weights = start
                notes = [
                    f"the objective fell by {-gain:.3g} ± {error:.2g} nats from its start, and the start's weights were "
                    "kept: try a smaller learning rate, or more samples in every iteration."
                ]
        return Combined(
            objective.merged(weights),
            with_weights(aggregator, weights).shard_weights(),
            {
                "objective": np.concatenate([climb.values for climb in climbs]),
                "objective_error": np.concatenate([climb.errors for climb in climbs]),
            },
            notes,
        )

    def _seen(self, shards: Subposteriors, aggregator: AbstractAggregator) -> Target | Minibatch:
        """The target as an iteration sees it: all rows, or those of a few shards."""
        assert shards.target is not None
        num_shards = int(np.ceil(self.optimizer.data_fraction * len(shards.target.densities)))
        if num_shards == len(shards.target.densities):
            return shards.target
        return Minibatch(shards.target, aggregator(shards.draws.mean(axis=1)), num_shards, shards.seed)


def _clearly_rose(climbs: list[Climb]) -> bool:
    """Whether the last window is above the start by more than three errors: then there is no need to compare."""
    last = climbs[-1].values[-WINDOW:]
    error = np.hypot(climbs[0].errors[0], np.std(last, ddof=1) / np.sqrt(len(last)))
    return bool(np.mean(last) - climbs[0].values[0] > 3 * error)


def _gain(
    objective: Objective,
    before: list[AbstractWeights],
    after: list[AbstractWeights],
    seed: int,
) -> tuple[float, float]:
    """By how much the objective rose, and the error of that, on draws that both weights are judged by."""
    generator = np.random.default_rng((seed, 1))
    batches = [random_batch(objective, SIZE_COMPARED, generator) for _ in range(NUM_COMPARED)]
    gains = [float(objective(after, batch).value - objective(before, batch).value) for batch in batches]
    return float(np.mean(gains)), float(np.std(gains, ddof=1) / np.sqrt(NUM_COMPARED))
