r"""Variational consensus Monte Carlo: learn how to aggregate the shards' draws.

Rabinovich, Angelino and Jordan, *Variational consensus Monte Carlo* (2015). Within a family of
aggregators $F$, the method looks for the one whose draws $F(\theta_1, \ldots, \theta_K)$ are
closest to the posterior, by maximizing a lower bound on the log evidence
(`variational/objective.py`). The full-data target enters through log densities and scores at
batches of points.

The errata of the paper, and their corrections, are in `docs/errata.md`.
"""

from dataclasses import replace
from typing import ClassVar, NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
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
from ..variational.optimizer import (
    WINDOW,
    AbstractGradient,
    AbstractOptimizer,
    OptimizationResult,
    random_batch,
)
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .shapes import Shaped, is_cheap, shaped

MAX_ALIGNMENTS = 5  # rounds of learning weights and aligning labels again
NUM_COMPARISONS = 10  # batches by which the final weights are compared with the initial ones
MAX_SILENT_LOSS = 0.05  # nats; a smaller loss needs no warning
# Draws of a batch of Newton's method, where a bent map may be learned in its place: no affine map
# settles on a bent posterior, and larger batches take longer than learning the map.
MAX_BEFORE_BEND = 512
MAX_ERROR = 5.0  # nats of Monte Carlo error, above which weights are guesses


class _Candidate(NamedTuple):
    """Weights, and the objective of the aggregator that they belong to."""

    objective: Objective
    weights: list[AbstractWeights]


class Variational(AbstractCombiner):
    """Aggregates with learned weights.

    Args:
        family: the aggregators to choose from; by default a shift and a scale on top of averages.
            The paper's families are `BlockFamily` (a family for each parameter, by its space),
            `VectorFamily` and others.
        entropy: the entropy of the combined draws; by default `GaussianSum` for affine maps, and
            the paper's `Relaxed` for other families.
        optimizer: the method that maximizes the objective; by default `Newton` for affine maps
            with `GaussianSum`, else `Adaptive`.
        start: the initial weights.
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
        for name, kind, noun, example in (
            ("family", AbstractFamily, "a family", "vcmc.aggregators.VectorFamily()"),
            ("entropy", AbstractEntropy, "an entropy", "vcmc.variational.Relaxed()"),
            ("optimizer", AbstractOptimizer, "an optimizer", "vcmc.variational.Adaptive()"),
            ("start", AbstractStart, "initial weights", "vcmc.aggregators.Uniform()"),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be {noun}, e.g. {example}; got {value!r}.")

        if isinstance(self.optimizer, Newton) and not isinstance(self.entropy, GaussianSum):
            raise ValueError(
                f"Newton is for the entropy GaussianSum(); got {self.entropy!r}. Use Adaptive()."
            )

    def check(self, space: Product) -> None:
        self.family.check(space)

    def combine(self, shards: Subposteriors) -> Combined:
        is_newton = isinstance(self.optimizer, Newton) and self.optimizer.max_unsettled is None
        if is_newton and is_cheap(cast(Target, shards.target)):
            brief = replace(cast(Newton, self.optimizer), max_unsettled=MAX_BEFORE_BEND)
            shorter = Variational(self.family, self.entropy, brief, self.start)
            combined, is_unsettled = shorter._combine(shards)
            if combined.exact or not is_unsettled:
                return combined
            shards = replace(shards, learned=combined.learned)
        return self._combine(shards)[0]

    def _combine(self, shards: Subposteriors) -> tuple[Combined, bool]:
        """Return combined draws, and whether the optimizer ended before it settled."""
        initial, final, results = self._optimize(shards)
        notes = [result.warning for result in results if result.warning]
        if self._needs_comparison(results):
            final, loss = self._better(cast(Target, shards.target), initial, final, shards.seed)
            notes += loss
        notes += _noise_note(results[-1], shards.space.dim)
        objective, weights = final
        draws = np.asarray(objective.aggregate(weights))
        result = Shaped(draws)
        if isinstance(self.optimizer, Newton):
            result = shaped(draws, shards, results[-1].evaluated)
        is_average = not result.exact
        combined = Combined(
            jnp.asarray(result.draws),
            with_weights(objective.aggregator, weights).shard_weights() if is_average else None,
            {
                "objective": np.concatenate([result.values for result in results]),
                "objective_error": np.concatenate([result.errors for result in results]),
            },
            notes,
            weights,
            shards.pairs if is_average else None,
            result.exact,
            result.settings,
        )
        return combined, results[-1].is_unsettled

    def _optimize(
        self, shards: Subposteriors
    ) -> tuple[_Candidate, _Candidate, list[OptimizationResult]]:
        """Learn weights and align labels in turn; return the initial and the final candidate."""
        target, draws = cast(Target, shards.target), shards.stacked
        aggregator = self._fit(shards.space, draws, target)
        weights = weights_of(aggregator)
        # weights of an earlier run may be those of other labels of exchangeable components
        if shards.learned is not None and not shards.space.labelled():
            weights = shards.learned
        candidates: list[_Candidate] = []
        results: list[OptimizationResult] = []
        for attempt in range(MAX_ALIGNMENTS):
            log_density = self._log_density(target, aggregator, draws, (shards.seed, attempt, 1))
            objective = Objective(
                log_density, self.entropy, aggregator, draws, shards.stacked_pairs
            )
            result = self.optimizer.maximize(
                objective, weights, (shards.seed, attempt), shards.advance
            )
            candidates += [_Candidate(objective, weights), _Candidate(objective, result.weights)]
            results.append(result)
            weights = result.weights
            learned = with_weights(aggregator, weights)
            aggregator = learned.realigned(draws)
            if result.failed or aggregator is learned or eqx.tree_equal(aggregator, learned):
                break
        return candidates[0], candidates[-1], results

    def _fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], target: Target
    ) -> AbstractAggregator:
        """Return the family's member to start from; affine maps may need the target's curvature."""
        if isinstance(self.family, AffineFamily) and isinstance(self.optimizer, Newton):
            return self.family.fit(space, draws, self.start, target.frame_near)
        return self.family.fit(space, draws, self.start)

    def _log_density(
        self,
        target: Target,
        aggregator: AbstractAggregator,
        draws: Float[Array, "shard draw dim"],
        seed: tuple[int, ...],
    ) -> Target | Minibatch:
        """Return the target of an iteration: all rows, or those of a few shards."""
        if not isinstance(self.optimizer, AbstractGradient):
            return target
        num_shards = int(np.ceil(round(self.optimizer.data_fraction * target.num_shards, 6)))
        if num_shards == target.num_shards:
            return target
        return Minibatch(target, aggregator(draws.mean(axis=1)), max(1, num_shards), seed)

    def _needs_comparison(self, results: list[OptimizationResult]) -> bool:
        """Return whether the objective may have fallen; other optimizers check that themselves."""
        if not isinstance(self.optimizer, AbstractGradient) or results[-1].failed:
            return False
        return self.optimizer.data_fraction < 1 or not _has_clearly_risen(results)

    def _better(
        self, target: Target, initial: _Candidate, final: _Candidate, seed: int
    ) -> tuple[_Candidate, list[str]]:
        """Return the better of two candidates, and a note if it is the initial one."""
        size = cast(AbstractGradient, self.optimizer).batch_size(final.objective)
        gain, error = _gain(target, initial, final, size, seed)
        if not gain < -2 * error:
            return final, []
        if not gain < -MAX_SILENT_LOSS:
            return initial, []
        note = (
            f"the objective fell by {-gain:.3g} ± {error:.2g} nats from its start, and the start's "
            "weights were kept: try a smaller learning rate, or more samples in every iteration."
        )
        return initial, [note]


def _has_clearly_risen(results: list[OptimizationResult]) -> bool:
    """Return whether the last window exceeds the first value by more than three errors."""
    first, last = results[0], results[-1].values[-WINDOW:]
    if len(results[-1].values) < 2 * WINDOW:
        return False
    error = np.hypot(first.errors[0], np.std(last, ddof=1) / np.sqrt(len(last)))
    return bool(np.mean(last) - first.values[0] > 3 * error)


def _gain(
    target: Target, initial: _Candidate, final: _Candidate, size: int, seed: int
) -> tuple[float, float]:
    """Return the rise of the objective on all rows, and its error, from common batches."""
    generator = np.random.default_rng((seed, MAX_ALIGNMENTS))
    before, after = (candidate.objective.with_target(target) for candidate in (initial, final))
    gains = []
    for _ in range(NUM_COMPARISONS):
        batch = random_batch(before, size, generator)
        low = before.value(initial.weights, batch)
        gains.append(after.value(final.weights, batch) - low)
    return float(np.mean(gains)), float(np.std(gains, ddof=1) / np.sqrt(NUM_COMPARISONS))


def _noise_note(result: OptimizationResult, dim: int) -> list[str]:
    """Return a warning if the last estimates were too noisy to tell good weights from bad ones."""
    error = float(np.median(result.errors[-WINDOW:]))
    if not error > max(MAX_ERROR, np.sqrt(dim)):
        return []
    return [
        f"the objective is known only to ± {error:.2g} nats at the end, too imprecisely to learn "
        "good weights: the target falls off steeply at some combined draws. Try more samples in "
        "every iteration, or fewer shards, and do not trust the result."
    ]
