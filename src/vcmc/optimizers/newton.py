r"""Newton's method for affine maps: few passes over the data, each one batch of scores and the curvature at one point.

In the frame of an `Affine` aggregator a draw is $u = a + V z$, where $z$ has mean zero and covariance $I$. The objective
$\mathbb E \log p(a + V z) + \log \det V$ is highest where, with scores $g$ and $P = -\mathbb E [g z^\top] V^{-1}$,

$$\mathbb E g = 0, \qquad V P V = I,$$

so a step is $a \leftarrow a + P^{-1} \mathbb E g$, $V \leftarrow P^{-1/2}$, with the symmetric root: of all scales with the right covariance
it is the one that leaves draws closest to where they were. With the Hessian $-P_0$ at $a$ as a control variate, both expectations
are estimated from a batch by the residuals $r = g + P_0 V z$, which vanish for a Gaussian target. A step that
lowers the objective by more than its noise is halved. Where the averaged curvature is indefinite, or the target is not finite at
the draws, the method starts again from the highest point of the target and the curvature there.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..aggregators.affine import Affine
from ..aggregators.base import AbstractAggregator
from ..aggregators.combinatorial import Combinatorial
from ..aggregators.weights import Free
from ..objective import Objective
from ..stein import conjugate_gradients, gap, root_of_inverse
from ..target import Target
from .base import AbstractOptimizer, Climb, Weights

FIRST = 64  # draws in the first batches
MORE = 4  # times as many draws in the last batch as make its noise the draws' own Monte Carlo error
NEAR, NEARER = 1e-3, 5e-5  # nats per coordinate that a step promises: then take a larger batch, or stop
FAR = 0.3  # sds per coordinate: a longer step asks for the curvature anew
MAX_HALVINGS = 6
NOISE = 0.5  # nats per root of the dimension: a larger noise is no excuse for a fall
LOW = 0.02  # the least curvature, relative to the consensus precision, that is taken for one
LENGTHS = np.array([2.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 1e-3])  # of steps to the summit, tried at once
MAX_CLIMB = 50

Vector = Float[np.ndarray, " dim"]
Matrix = Float[np.ndarray, "dim dim"]


class Look(NamedTuple):
    """A shift and a scale, and what the target says at the draws that they make."""

    shift: Vector
    scale: np.ndarray
    values: Float[np.ndarray, " draw"]
    scores: Float[np.ndarray, "draw dim"]

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.values).all() and np.isfinite(self.scores).all())


class Step(NamedTuple):
    """Where to go, the rise of the objective that this promises, and the precision that it is computed with."""

    shift: Vector
    scale: np.ndarray
    gain: float
    precision: np.ndarray


class Newton(AbstractOptimizer):
    """Newton steps, for `AffineFamily` with one scale for all shards.

    Args:
        num_samples: draws in the first batches; the last batch is as large as its noise asks for.
        max_iterations: steps at most.
    """

    num_samples: int = FIRST
    max_iterations: int = 20

    def __check_init__(self) -> None:
        if self.num_samples < 2:
            raise ValueError(f"num_samples must be 2 or more; got {self.num_samples}.")
        if self.max_iterations < 1:
            raise ValueError(f"max_iterations must be 1 or more; got {self.max_iterations}.")

    def climb(
        self,
        objective: Objective,
        weights: Weights,
        seed: int | tuple[int, ...],
        advance: Callable[[], None] = lambda: None,
    ) -> Climb:
        """Raise an objective until a step promises less than what matters."""
        view = View(objective)
        generator = np.random.default_rng(seed)
        chosen = generator.permutation(len(view.white))[: self.num_samples]
        shift, scale = (np.asarray(part.values) for part in weights)
        values: list[float] = []
        errors: list[float] = []
        trouble = ""
        last = len(chosen) == len(view.white)
        restarted = False

        def restart() -> Look:
            summit = view.summit(shift, shift + view.scaled(scale, view.white[chosen]))
            return view.look(summit, view.scale_for(view.curvature(summit)), chosen)

        here = view.look(shift, scale, chosen)
        if not here.is_finite:
            here, restarted = restart(), True
        curvature = view.curvature(here.shift) if here.is_finite else None
        while here.is_finite and len(values) < self.max_iterations:
            value, error = view.value(here, curvature, chosen)
            values.append(value)
            errors.append(error)
            step = view.step(here, curvature, chosen)
            if step is None and not restarted:
                here, restarted = restart(), True
                curvature = view.curvature(here.shift)
                continue
            if step is None:
                step = view.step(here, curvature, chosen, careful=True)
            assert step is not None
            advance()
            if step.gain < view.dim * (NEARER if last else NEAR):
                if last:
                    break
                size = view.enough(here, curvature, chosen)
                chosen, last = generator.permutation(len(view.white))[:size], True
                closer = view.look(here.shift, here.scale, chosen)
                if not closer.is_finite:
                    trouble = SOME_NOT_FINITE
                    break
                here = closer
                continue
            there = view.walk(here, step, chosen)
            if there is None and not restarted:
                here, restarted = restart(), True
                curvature = view.curvature(here.shift)
                continue
            if there is None:
                trouble = "" if last else _stuck(len(values))
                break
            if view.distance(here, there) > FAR:
                curvature = view.curvature(there.shift)
            here = there
        if not here.is_finite:
            return Climb(weights, np.array([np.nan]), np.array([np.nan]), NOT_FINITE, True)
        start = view.look(shift, scale, chosen) if restarted else here
        if restarted and start.is_finite and view.rise(start, here) < 0:
            return Climb(weights, np.array(values), np.array(errors), NO_GAIN, True)
        if len(values) == self.max_iterations:
            trouble = (
                f"Newton's method had not settled after {len(values)} iterations: raise its max_iterations."
            )
        found: Weights = [Free(jnp.asarray(here.shift)), Free(jnp.asarray(here.scale))]
        return Climb(found, np.array(values), np.array(errors), trouble)


class View:
    """The target as seen from the frame of an affine aggregator, in NumPy."""

    def __init__(self, objective: Objective):
        affine, target = _affine(objective.aggregator), objective.target
        if affine is None or affine.per_shard or not isinstance(target, Target):
            raise TypeError(
                "Newton's method is for the family AffineFamily(per_shard=False) and all rows; for other families "
                f"use optimizers.Adaptive(). Got {type(objective.aggregator).__name__}."
            )
        self.affine = affine
        self.target = target
        self.white = np.asarray(jnp.sum(objective.prepared, axis=0))
        self.dim = self.white.shape[1]
        self.frame = np.asarray(affine.frame)
        self.full = affine.is_full

    def look(self, shift: Vector, scale: np.ndarray, chosen: np.ndarray) -> Look:
        """Evaluate the target at some of the draws that a shift and a scale make."""
        return Look(shift, scale, *self._evaluate(shift + self.scaled(scale, self.white[chosen])))

    def _evaluate(self, inside: Float[np.ndarray, "point dim"]) -> tuple[np.ndarray, np.ndarray]:
        values, scores = self.target(self.affine.place(jnp.asarray(inside)))
        turned = np.asarray(scores) @ self.frame if self.full else np.asarray(scores) * self.frame
        return np.asarray(values), turned

    def scaled(self, scale: np.ndarray, white: Float[np.ndarray, "draw dim"]) -> np.ndarray:
        """White draws times a scale."""
        return white @ scale.T if self.full else white * scale

    def bend(self, shift: Vector, directions: Float[np.ndarray, "direction dim"]) -> np.ndarray:
        """Products of minus the Hessian with directions, all inside the frame."""
        outside = directions @ self.frame.T if self.full else directions * self.frame
        products = np.asarray(self.target.bend(self.affine.place(jnp.asarray(shift)), jnp.asarray(outside)))
        return -(products @ self.frame if self.full else products * self.frame)

    def curvature(self, shift: Vector) -> Matrix | None:
        """Minus the Hessian at a shift; above some number of coordinates it is left out."""
        if not self.full:
            return None
        products = self.bend(shift, np.eye(self.dim))
        return (products + products.T) / 2

    def scale_for(self, curvature: Matrix | None) -> np.ndarray:
        """The scale that suits a curvature, where it is positive; all else stays within bounds."""
        return np.ones(self.dim) if curvature is None else root_of_inverse(curvature, LOW)[0]

    def residuals(self, here: Look, curvature: Matrix | None, chosen: np.ndarray) -> np.ndarray:
        """What is left of the scores if the curvature is taken from them."""
        if curvature is None:
            return here.scores
        return here.scores + self.scaled(here.scale, self.white[chosen]) @ curvature

    def value(self, here: Look, curvature: Matrix | None, chosen: np.ndarray) -> tuple[float, float]:
        """The objective and its Monte Carlo error."""
        heights, expected = self._hill(here, here.shift, curvature, chosen)
        single = here.values - heights
        entropy = self.log_det(here.scale) + self.log_det(self.frame)
        entropy += 0.5 * self.dim * np.log(2 * np.pi * np.e)
        return float(single.mean() + expected + entropy), _error(single)

    def _hill(
        self, here: Look, top: Vector, curvature: Matrix | None, chosen: np.ndarray
    ) -> tuple[np.ndarray | float, float]:
        """A quadratic about a point at the draws of a batch, and what it is on average over all draws."""
        if curvature is None:
            return 0.0, 0.0
        away = here.shift - top + self.scaled(here.scale, self.white[chosen])
        heights = -0.5 * np.sum((away @ curvature) * away, axis=1)
        bias, spread = here.shift - top, here.scale @ curvature @ here.scale.T
        second = self.white.T @ self.white / len(self.white)
        return heights, float(-0.5 * (bias @ curvature @ bias + np.sum(spread * second)))

    def log_det(self, scale: np.ndarray) -> float:
        return float(np.linalg.slogdet(scale)[1] if self.full else np.sum(np.log(np.abs(scale))))

    def step(
        self, here: Look, curvature: Matrix | None, chosen: np.ndarray, careful: bool = False
    ) -> Step | None:
        """Where to go next; nothing if the curvature is not that of a hill, unless told to be careful."""
        if curvature is None:
            return self._step_by_coordinate(here, chosen)
        scale = here.scale
        found = gap(self.white[chosen], here.scores @ scale, scale @ curvature @ scale)
        inverse = np.linalg.inv(scale)
        precision = inverse @ found.precision @ inverse
        root, least = root_of_inverse(precision, LOW)
        if least < LOW and not careful:
            precision = curvature
            root, least = root_of_inverse(precision, LOW)
            if least < LOW:
                return None
        move = root @ (root @ (inverse @ found.slope))
        spread = np.linalg.eigvalsh(scale @ precision @ scale)
        spread = np.maximum(spread, 1e-6)
        gain = 0.5 * (inverse @ found.slope) @ move + 0.5 * float(np.sum(spread - 1 - np.log(spread)))
        return Step(here.shift + move, root, gain, np.linalg.inv(root @ root))

    def _step_by_coordinate(self, here: Look, chosen: np.ndarray) -> Step:
        """A step with a scale for every coordinate: the shift by conjugate gradients on products with the Hessian."""
        moved = self.scaled(here.scale, self.white[chosen])
        slope = here.scores.mean(axis=0)
        each = -(here.scores - slope) * moved
        noise = each.var(axis=0).mean() / len(each)
        spread = each.mean(axis=0)
        share = max(0.0, 1 - noise / max(np.var(spread), 1e-300))
        spread = np.clip(spread.mean() + share * (spread - spread.mean()), 0.2, 5.0)
        move = self._solve(here.shift, slope, here.scale**2)
        gain = 0.5 * slope @ move + 0.5 * float(np.sum(spread - 1 - np.log(spread)))
        shift = here.shift + move + moved.mean(axis=0)
        return Step(shift, here.scale / np.sqrt(spread), gain, spread / here.scale**2)

    def _solve(self, shift: Vector, goal: Vector, diagonal: Vector) -> Vector:
        return conjugate_gradients(lambda direction: self.bend(shift, direction[None])[0], goal, diagonal)

    def walk(self, here: Look, step: Step, chosen: np.ndarray) -> Look | None:
        """Go as far towards a step's end as the objective does not fall by more than its noise."""
        precision = step.precision if self.full else None
        length = 1.0
        for _ in range(MAX_HALVINGS):
            shift = here.shift + length * (step.shift - here.shift)
            there = self.look(shift, here.scale + length * (step.scale - here.scale), chosen)
            if there.is_finite:
                low, expected_low = self._hill(here, step.shift, precision, chosen)
                high, expected_high = self._hill(there, step.shift, precision, chosen)
                single = there.values - here.values - high + low
                rise = single.mean() + expected_high - expected_low
                rise += self.log_det(there.scale) - self.log_det(here.scale)
                if rise > -2 * min(_error(single), NOISE * self.dim**0.5):
                    return there
            length /= 2
        return None

    def rise(self, here: Look, there: Look) -> float:
        """How much higher the objective is at another look at the same draws."""
        rise = np.mean(there.values - here.values) + self.log_det(there.scale) - self.log_det(here.scale)
        return float(rise)

    def distance(self, here: Look, there: Look) -> float:
        """How far a step went, in sds per coordinate."""
        away = there.shift - here.shift
        inside = np.linalg.solve(there.scale, away) if self.full else away / there.scale
        return float(np.sqrt(np.mean(inside**2)))

    def enough(self, here: Look, curvature: Matrix | None, chosen: np.ndarray) -> int:
        """How many draws make the noise of a step small beside the draws' own Monte Carlo error."""
        residuals = self.scaled(here.scale, self.residuals(here, curvature, chosen))
        share = min(1.0, MORE * float(np.mean(residuals.var(axis=0))))
        return min(len(self.white), max(MORE * len(chosen), int(share * len(self.white))))

    def summit(self, shift: Vector, draws: Float[np.ndarray, "draw dim"]) -> Vector:
        """The highest point that a climb finds from a shift, or from the best of the shards' means and some draws."""
        means = np.asarray(self.affine.means - self.affine.centre)
        inverse = np.asarray(self.affine.inverse)
        means = means @ inverse.T if self.full else means * inverse
        starts = np.concatenate([shift[None], means, draws])
        values = np.nan_to_num(self._evaluate(starts)[0], nan=-np.inf)
        here, height = starts[int(np.argmax(values))], values.max()
        for _ in range(MAX_CLIMB if np.isfinite(height) else 0):
            slope = self._evaluate(here[None])[1][0]
            curvature = self.curvature(here)
            if curvature is None:
                move = self._solve(here, slope, np.ones(self.dim))
            else:
                root, _ = root_of_inverse(curvature, LOW)
                move = root @ (root @ slope)
            tried = here + LENGTHS[:, None] * move
            values = np.nan_to_num(self._evaluate(tried)[0], nan=-np.inf)
            rise, best = values.max() - height, int(np.argmax(values))
            if not rise > 0:
                break
            here, height = tried[best], values[best]
            if rise < 1e-3:
                break
        return here


def _affine(aggregator: AbstractAggregator) -> Affine | None:
    while isinstance(aggregator, Combinatorial):
        aggregator = aggregator.inner
    return aggregator if isinstance(aggregator, Affine) else None


def _error(values: Float[np.ndarray, " draw"]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


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
