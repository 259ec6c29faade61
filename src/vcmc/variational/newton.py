r"""Newton's method for affine maps: few passes over the data, each one batch of scores and the curvature at one point.

In the frame of an `Affine` aggregator a draw is $u = a + V z$, where $z$ has mean zero and covariance $I$. The objective
$\mathbb E \log p(a + V z) + \log \det V$ is highest where, with scores $g$ and $P = -\mathbb E [g z^\top] V^{-1}$,

$$\mathbb E g = 0, \qquad V P V = I,$$

so a step is $a \leftarrow a + P^{-1} \mathbb E g$, $V \leftarrow P^{-1/2}$, with the symmetric root: of all scales with the right covariance
it is the one that leaves draws closest to where they were. With the Hessian $-P_0$ at $a$ as a control variate, both expectations
are estimated from a batch by the residuals $r = g + P_0 V z$, which vanish for a Gaussian target. A step that
lowers the objective by more than its noise is halved; one that lowers it at all is followed by shorter ones, from more draws. Where the averaged curvature is indefinite, or the target is not finite at
the draws, the method starts again from the highest point of the target and the curvature there.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from ..aggregators.weights import Free
from .affine_objective import MORE, AffineObjective
from .objective import Objective
from .optimizer import AbstractOptimizer, Climb, Weights, check_counts

FIRST = 32  # draws in the first batches
NEAR, NEARER = (
    1e-3,
    5e-5,
)  # nats per coordinate that a step promises: then take a larger batch, or stop
SLIGHT = 1e-2  # nats per coordinate: a seventh of an sd, for which more steps are not asked for if draws cannot tell
# how much of a step is gone at least, after some were too long, and by which factor that grows
SLOWEST, QUICKER = 1 / 8, 1.2
FAR = 0.3  # sds per coordinate: a longer step asks for the curvature anew


class Newton(AbstractOptimizer):
    """Newton steps, for `AffineFamily` with one scale for all shards.

    Args:
        num_samples: draws in the first batches; the last batch is as large as its noise asks for.
        max_iterations: steps at most.
    """

    num_samples: int = FIRST
    max_iterations: int = 20

    def __check_init__(self) -> None:
        check_counts(self.num_samples, self.max_iterations)

    def climb(
        self,
        objective: Objective,
        weights: Weights,
        seed: int | tuple[int, ...],
        advance: Callable[[], None] = lambda: None,
    ) -> Climb:
        """Raise an objective until a step promises less than what matters."""
        view = AffineObjective(objective)
        generator = np.random.default_rng(seed)
        everyone = len(view.white)
        chosen = generator.permutation(everyone)[: self.num_samples]
        shift, scale = (np.asarray(part.values) for part in weights)
        values: list[float] = []
        errors: list[float] = []
        trouble, step = "", None
        last, restarted, pace = len(chosen) == everyone, False, 1.0

        here = view.look(shift, scale, chosen)
        if not here.is_finite:
            here, restarted = view.restart(shift, scale, chosen), True
        # the first step takes the averages' own precision for the curvature: where it leads to, the curvature is asked for
        curvature = view.curvature(here.shift) if restarted and here.is_finite else view.guess()
        guessed = not restarted
        while here.is_finite and len(values) < self.max_iterations:
            value, error = view.value(here, curvature, chosen)
            values.append(value)
            errors.append(error)
            step = view.step(here, curvature, chosen, careful=restarted)
            advance()
            small = (
                not guessed
                and step is not None
                and step.gain < view.dim * (NEARER if last else NEAR)
            )
            more = 0
            walk = None if step is None or small else view.walk(here, step, chosen, pace)
            if walk is not None:
                if guessed or view.distance(here, walk.end) > FAR:
                    curvature, guessed = view.curvature(walk.end.shift), False
                here = walk.end
                pace = min(1.0, QUICKER * pace)
                if walk.rise < 0:  # the step was too long, or too few draws told where to go
                    pace, more = max(SLOWEST, pace / 2), MORE * len(chosen)
            elif guessed:
                curvature, guessed = view.curvature(here.shift), False
            elif not small and not restarted and pace == 1:
                here, restarted = view.restart(shift, scale, chosen), True
                curvature = view.curvature(here.shift)
            elif not last:
                more, last = view.enough(here, curvature, chosen), True
            elif small and step is not None:
                here = here._replace(
                    shift=step.shift, scale=step.scale
                )  # so short that it needs no look
                break
            else:
                trouble = _stuck(len(values))
                break
            if min(more, everyone) > len(chosen):
                chosen = generator.permutation(everyone)[:more]
                closer = view.look(here.shift, here.scale, chosen)
                if not closer.is_finite:
                    trouble = SOME_NOT_FINITE
                    break
                here = closer
        if not here.is_finite:
            return Climb(weights, np.array([np.nan]), np.array([np.nan]), NOT_FINITE, True)
        if restarted and view.is_lower(here, shift, scale, chosen):
            return Climb(weights, np.array(values), np.array(errors), NO_GAIN, True)
        if len(values) == self.max_iterations:
            trouble = f"Newton's method had not settled after {len(values)} iterations: raise its max_iterations."
        if (
            trouble != SOME_NOT_FINITE
            and step
            and step.gain < min(2 * errors[-1], SLIGHT * view.dim)
        ):
            trouble = ""  # what is promised is less than what so many draws can tell
        found: Weights = [Free(jnp.asarray(here.shift)), Free(jnp.asarray(here.scale))]
        return Climb(found, np.array(values), np.array(errors), trouble)


NO_GAIN = (
    "the target is no hill where the averages are, and an affine map around its summit is no better: the averages were kept, "
    "and are to be doubted."
)
SOME_NOT_FINITE = (
    "the full-data log density is not finite at some of the combined draws: does the model end somewhere where its "
    "parameters' spaces do not?"
)
NOT_FINITE = (
    "the full-data log density is not finite at the combined draws, nor where it was looked for instead: look at the "
    "model there. The start was kept."
)


def _stuck(count: int) -> str:
    return (
        f"Newton's method found no way to raise the objective further after {count} iterations, though its slope is not "
        "zero: doubt the result, and see what diagnose says."
    )
