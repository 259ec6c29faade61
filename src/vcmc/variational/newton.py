r"""Newton's method for affine maps: few passes over the data.

Each pass evaluates scores at one batch of draws, and the curvature at one point. In the whitened
coordinates of an `Affine` aggregator a draw is $u = a + V z$, where $z$ has mean zero and
covariance $I$. The objective $\mathbb E \log p(a + V z) + \log \det V$ has its maximum where, with
scores $g$ and $P = -\mathbb E [g z^\top] V^{-1}$,

$$\mathbb E g = 0, \qquad V P V = I,$$

so a step is $a \leftarrow a + P^{-1} \mathbb E g$, $V \leftarrow P^{-1/2}$, with the symmetric
root: of all scales with the right covariance, it moves draws least. With the Hessian $-P_0$ at $a$
as a control variate, both expectations are estimated from a batch by the residuals
$r = g + P_0 V z$, which vanish for a Gaussian target. A step that lowers the objective by more than
its noise is halved; after one that lowers it at all, steps are shorter and batches larger. If the
averaged curvature is indefinite, or the target is not finite at the draws, the method restarts
from the mode of the target and the curvature there.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .affine_objective import BATCH_GROWTH, AffineObjective, LineSearch
from .curvature import Evaluation, NewtonStep
from .marginal_shapes import MAX_SHAPED_DIM
from .objective import Objective
from .optimizer import AbstractOptimizer, OptimizationResult, Weights, check_counts

FIRST_BATCH = 32  # draws

MODE_NOT_BETTER = (
    "the full-data log density does not fall off around the averages, and an affine map around its "
    "mode is no better: the averages were kept; do not trust them."
)
SOME_NOT_FINITE = (
    "the full-data log density is not finite at some of the combined draws: is the model's domain "
    "smaller than the spaces of its parameters?"
)
NOT_FINITE = (
    "the full-data log density is not finite at the combined draws, nor at a mode of it: check the "
    "model there. The initial weights were kept."
)


@dataclass(frozen=True)
class NewtonTolerances:
    """Thresholds of Newton's method; gains are in nats per coordinate.

    Attributes:
        batch_gain: a step with a smaller predicted gain asks for the final batch.
        final_gain: a step with a smaller predicted gain, on the final batch, is the last.
        negligible_gain: a predicted gain below it, a seventh of an sd, is no cause for a warning
            if it is also within the noise.
        min_pace: the smallest share of a step that is taken after steps were too long.
        pace_growth: the factor by which that share grows again.
        max_distance: a longer step, in sds per coordinate, asks for the curvature at its end.
    """

    batch_gain: float = 1e-3
    final_gain: float = 5e-5
    negligible_gain: float = 1e-2
    min_pace: float = 1 / 8
    pace_growth: float = 1.2
    max_distance: float = 0.3


TOLERANCES = NewtonTolerances()


class Newton(AbstractOptimizer):
    """Newton steps, for `AffineFamily` with one scale for all shards.

    Args:
        num_samples: draws in the first batch; the last batch is as large as its noise requires.
        max_iterations: the largest number of steps.
        max_noise: standard error of a mean by the last batch, in posterior sds, unless that takes
            more than 1000 draws.
        max_unsettled: the largest batch: a search that needs a larger one ends before it has
            settled. None for as many draws as there are.
    """

    num_samples: int = FIRST_BATCH
    max_iterations: int = 20
    max_noise: float = 0.015
    max_unsettled: int | None = None

    def __check_init__(self) -> None:
        check_counts(self.num_samples, self.max_iterations)
        if not self.max_noise > 0:
            raise ValueError(f"max_noise must be above 0; got {self.max_noise!r}.")

    def maximize(
        self,
        objective: Objective,
        weights: Weights,
        seed: int | tuple[int, ...],
        advance: Callable[[], None] = lambda: None,
    ) -> OptimizationResult:
        ascent = _Ascent(
            AffineObjective(objective, self.max_noise),
            weights,
            np.random.default_rng(seed),
            self.num_samples,
            self.max_unsettled,
        )
        while not ascent.should_stop(self.max_iterations):
            ascent.step(advance)
        return ascent.result(self.max_iterations)


class _Ascent:
    """The state of Newton's method between two steps."""

    def __init__(
        self,
        objective: AffineObjective,
        weights: Weights,
        generator: np.random.Generator,
        num_samples: int,
        max_unsettled: int | None,
    ):
        self._objective = objective
        self._max_unsettled = max_unsettled or np.inf
        self._is_unsettled = False
        self._generator = generator
        self._initial_weights = weights
        self._initial = objective.start(weights)
        self._values: list[float] = []
        self._errors: list[float] = []
        self._warning = ""
        self._newton_step: NewtonStep | None = None
        self._pace = 1.0
        self._is_finished = False
        self._last: Evaluation | None = None

        batch = self._batch(num_samples)
        self._is_final_batch = len(batch) == objective.num_draws
        self._current = objective.evaluate(*self._initial, batch)
        self._has_restarted = not self._current.is_finite
        # the first step uses the averages' own precision; the curvature is computed at its end
        self._curvature_is_guess = not self._has_restarted
        self._curvature = objective.initial_curvature()
        if self._has_restarted:
            self._current = objective.restart(*self._initial, batch)
            if self._current.is_finite:
                self._update_curvature()

    def _batch(self, num_samples: int) -> np.ndarray:
        return self._objective.batch(num_samples, self._generator)

    def should_stop(self, max_iterations: int) -> bool:
        """Return whether there is no further step to make."""
        is_exhausted = len(self._values) >= max_iterations
        return self._is_finished or is_exhausted or not self._current.is_finite

    def step(self, advance: Callable[[], None]) -> None:
        """Record the objective, then move, or improve the curvature or the batch."""
        objective, current = self._objective, self._current
        value, error = objective.value(current, self._curvature)
        self._values.append(value)
        self._errors.append(error)
        self._newton_step = objective.newton_step(
            current, self._curvature, force=self._has_restarted
        )
        advance()
        is_small = self._is_small(self._newton_step)
        search = None
        if self._newton_step is not None and not is_small:
            search = objective.line_search(current, self._newton_step, self._pace)
        if search is not None:
            self._accept(search)
        elif self._curvature_is_guess:
            self._update_curvature()
        elif not is_small and not self._has_restarted and self._pace == 1:
            self._restart()
        elif not self._is_final_batch:
            self._is_final_batch = True
            self._go_on_with(objective.sufficient_draws(current, self._curvature))
        else:
            self._finish(is_small)

    def _is_small(self, step: NewtonStep | None) -> bool:
        """Return whether the predicted gain is too small for a step on this batch."""
        if step is None or self._curvature_is_guess:
            return False
        gain = TOLERANCES.final_gain if self._is_final_batch else TOLERANCES.batch_gain
        return step.gain < self._objective.dim * gain

    def _accept(self, search: LineSearch) -> None:
        """Move to the end of a line search."""
        distance = self._objective.distance(self._current, search.end)
        self._current = search.end
        if self._curvature_is_guess or distance > TOLERANCES.max_distance:
            self._update_curvature()
        self._pace = min(1.0, TOLERANCES.pace_growth * self._pace)
        if search.rise < 0:  # the step was too long, or the batch too small to find the way
            self._pace = max(TOLERANCES.min_pace, self._pace / 2)
            self._go_on_with(BATCH_GROWTH * len(self._current.white))

    def _go_on_with(self, num_draws: int) -> None:
        """Go on with a larger batch, or end if it would be too large."""
        self._is_unsettled = num_draws > self._max_unsettled
        if self._is_unsettled:
            self._finish(is_small=False)
        else:
            self._enlarge_batch(num_draws)

    def _update_curvature(self) -> None:
        """Compute the curvature at the current shift."""
        self._curvature = self._objective.curvature(self._current.shift)
        self._curvature_is_guess = False

    def _restart(self) -> None:
        """Start again from the mode of the target."""
        self._current = self._objective.restart(*self._initial, self._current.white)
        self._has_restarted = True
        self._update_curvature()

    def _enlarge_batch(self, num_draws: int) -> None:
        """Evaluate the target at a larger batch, if there are as many draws."""
        if min(num_draws, self._objective.num_draws) <= len(self._current.white):
            return
        evaluation = self._objective.evaluate(
            self._current.shift, self._current.scale, self._batch(num_draws)
        )
        if evaluation.is_finite:
            self._current = evaluation
        else:
            self._warning, self._is_finished = SOME_NOT_FINITE, True

    def _finish(self, is_small: bool) -> None:
        """End with a last step, too short to need an evaluation, or with a warning."""
        self._is_finished = True
        self._last = self._current
        if is_small and self._newton_step is not None:
            shift, scale = self._newton_step.shift, self._newton_step.scale
            self._current = self._current._replace(shift=shift, scale=scale)
        else:
            self._warning = (
                "Newton's method found no way to raise the objective further after "
                f"{len(self._values)} iterations, though its slope is not zero: do not trust the "
                "result without a diagnosis (vcmc.diagnose)."
            )

    def result(self, max_iterations: int) -> OptimizationResult:
        """Return the final weights, or the initial ones if nothing better was found."""
        current, initial = self._current, self._initial_weights
        if not current.is_finite:
            unknown = np.array([np.nan])
            return OptimizationResult(initial, unknown, unknown, NOT_FINITE, failed=True)
        values, errors = np.array(self._values), np.array(self._errors)
        if self._has_restarted and self._objective.is_below(current, *self._initial):
            return OptimizationResult(initial, values, errors, MODE_NOT_BETTER, failed=True)
        warning = self._warning
        if len(values) == max_iterations:
            warning = (
                f"Newton's method had not settled after {len(values)} iterations: raise its "
                "max_iterations."
            )
        if warning != SOME_NOT_FINITE and self._is_within_noise():
            warning = ""
        weights = self._objective.weights(current.shift, current.scale)
        evaluated = None
        if self._last is not None and self._objective.dim <= MAX_SHAPED_DIM:
            evaluated = self._objective.evaluated(self._last)
        return OptimizationResult(
            weights,
            values,
            errors,
            warning,
            evaluated=evaluated,
            is_unsettled=self._is_unsettled,
        )

    def _is_within_noise(self) -> bool:
        """Return whether the last predicted gain is too small for the draws to resolve."""
        if self._newton_step is None:
            return False
        negligible = TOLERANCES.negligible_gain * self._objective.dim
        return self._newton_step.gain < min(2 * self._errors[-1], negligible)
