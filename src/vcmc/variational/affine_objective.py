"""A target as seen from the frame of an affine aggregator: what Newton's method looks at, and the steps that it makes.

Inside the frame a draw is $u = a + V z$; `Place` is what the target says at a batch of draws, for some shift $a$ and scale $V$.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..aggregators.affine import Affine
from ..aggregators.base import AbstractAggregator
from ..aggregators.combinatorial import Combinatorial
from ..linalg.stein import Frame, conjugate_gradients, gap, root_of_inverse, symmetric
from ..target import Target
from .objective import Objective

LOW = 0.02  # the least curvature, relative to the consensus precision, that is taken for one
MAX_HALVINGS = 6
NOISE = 0.5  # nats per root of the dimension: a larger noise is no excuse for a fall
MORE = 4  # times as many draws in the last batch as make its noise the draws' own Monte Carlo error
LENGTHS = np.array(
    [2.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 1e-3]
)  # of steps to the summit, tried at once
MAX_CLIMB = 50

Vector = Float[np.ndarray, " dim"]
Matrix = Float[np.ndarray, "dim dim"]


class Place(NamedTuple):
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


class Walk(NamedTuple):
    """Where a walk ended, and by how much the objective rose on the way."""

    end: Place
    rise: float


class AffineObjective:
    """The target as seen from the frame of an affine aggregator, in NumPy."""

    def __init__(self, objective: Objective):
        affine, target = _affine(objective.aggregator), objective.target
        if affine is None or affine.per_shard or not isinstance(target, Target):
            raise TypeError(
                "Newton's method is for the family AffineFamily(per_shard=False) and all rows; for other families "
                f"use variational.Adaptive(). Got {type(objective.aggregator).__name__}."
            )
        self.affine = affine
        self.target = target
        self.white = np.sum(np.asarray(objective.prepared), axis=0)
        self.dim = self.white.shape[1]
        self.second = self.white.T @ self.white / len(self.white)  # moments of all draws
        self.frame = Frame(np.asarray(affine.centre), np.asarray(affine.frame))
        self.full = affine.is_full

    def look(self, shift: Vector, scale: np.ndarray, chosen: np.ndarray) -> Place:
        """Evaluate the target at some of the draws that a shift and a scale make."""
        return Place(shift, scale, *self._evaluate(shift + self.scaled(scale, self.white[chosen])))

    def _evaluate(self, inside: Float[np.ndarray, "point dim"]) -> tuple[np.ndarray, np.ndarray]:
        values, scores = self.target(jnp.asarray(self.frame.place(inside)))
        return np.asarray(values), self.frame.turned(np.asarray(scores))

    def scaled(self, scale: np.ndarray, white: Float[np.ndarray, "draw dim"]) -> np.ndarray:
        """White draws times a scale."""
        return white @ scale.T if self.full else white * scale

    def hessian_products(
        self, shift: Vector, directions: Float[np.ndarray, "direction dim"]
    ) -> np.ndarray:
        """Products of minus the Hessian with directions, all inside the frame."""
        outside = jnp.asarray(self.frame.outside(directions))
        return -self.frame.turned(
            np.asarray(self.target.hessian_products(jnp.asarray(self.frame.place(shift)), outside))
        )

    def curvature(self, shift: Vector) -> Matrix | None:
        """Minus the Hessian at a shift; above some number of coordinates it is left out."""
        if not self.full:
            return None
        return symmetric(lambda directions: self.hessian_products(shift, directions), self.dim)

    def guess(self) -> Matrix | None:
        """The curvature of a Gaussian with the averages' covariance."""
        return np.eye(self.dim) if self.full else None

    def scale_for(self, curvature: Matrix | None) -> np.ndarray:
        """The scale that suits a curvature, where it is positive; all else stays within bounds."""
        return np.ones(self.dim) if curvature is None else root_of_inverse(curvature, LOW)[0]

    def residuals(self, here: Place, curvature: Matrix | None, chosen: np.ndarray) -> np.ndarray:
        """What is left of the scores if the curvature is taken from them."""
        if curvature is None:
            return here.scores
        return here.scores + self.scaled(here.scale, self.white[chosen]) @ curvature

    def value(
        self, here: Place, curvature: Matrix | None, chosen: np.ndarray
    ) -> tuple[float, float]:
        """The objective and its Monte Carlo error."""
        heights, expected = self._hill(here, here.shift, curvature, chosen)
        single = here.values - heights
        entropy = self.log_det(here.scale) + self.log_det(self.frame.root)
        entropy += 0.5 * self.dim * np.log(2 * np.pi * np.e)
        return float(single.mean() + expected + entropy), _error(single)

    def _hill(
        self, here: Place, top: Vector, curvature: Matrix | None, chosen: np.ndarray
    ) -> tuple[np.ndarray | float, float]:
        """A quadratic about a point at the draws of a batch, and what it is on average over all draws."""
        if curvature is None:
            return 0.0, 0.0
        away = here.shift - top + self.scaled(here.scale, self.white[chosen])
        heights = -0.5 * np.sum((away @ curvature) * away, axis=1)
        bias, spread = here.shift - top, here.scale @ curvature @ here.scale.T
        return heights, float(-0.5 * (bias @ curvature @ bias + np.sum(spread * self.second)))

    def log_det(self, scale: np.ndarray) -> float:
        return float(np.linalg.slogdet(scale)[1] if self.full else np.sum(np.log(np.abs(scale))))

    def step(
        self, here: Place, curvature: Matrix | None, chosen: np.ndarray, careful: bool = False
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
        gain = 0.5 * (inverse @ found.slope) @ move + 0.5 * float(
            np.sum(spread - 1 - np.log(spread))
        )
        return Step(here.shift + move, root, gain, np.linalg.inv(root @ root))

    def _step_by_coordinate(self, here: Place, chosen: np.ndarray) -> Step:
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
        return conjugate_gradients(
            lambda direction: self.hessian_products(shift, direction[None])[0], goal, diagonal
        )

    def walk(self, here: Place, step: Step, chosen: np.ndarray, length: float = 1.0) -> Walk | None:
        """Go as far towards a step's end as the objective does not fall by more than its noise."""
        precision = step.precision if self.full else None
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
                    return Walk(there, float(rise))
            length /= 2
        return None

    def restart(self, shift: Vector, scale: np.ndarray, chosen: np.ndarray) -> Place:
        """A look around the summit of the target, with the scale that suits the curvature there."""
        summit = self.summit(shift, shift + self.scaled(scale, self.white[chosen]))
        return self.look(summit, self.scale_for(self.curvature(summit)), chosen)

    def is_lower(self, here: Place, shift: Vector, scale: np.ndarray, chosen: np.ndarray) -> bool:
        """Whether the objective is lower than at another shift and scale, where the target is finite too."""
        other = self.look(shift, scale, chosen)
        rise = (
            np.mean(here.values - other.values)
            + self.log_det(here.scale)
            - self.log_det(other.scale)
        )
        return other.is_finite and float(rise) < 0

    def distance(self, here: Place, there: Place) -> float:
        """How far a step went, in sds per coordinate."""
        away = there.shift - here.shift
        inside = np.linalg.solve(there.scale, away) if self.full else away / there.scale
        return float(np.sqrt(np.mean(inside**2)))

    def enough(self, here: Place, curvature: Matrix | None, chosen: np.ndarray) -> int:
        """How many draws make the noise of a step small beside the draws' own Monte Carlo error: where that is clear, no more than there are."""
        residuals = self.scaled(here.scale, self.residuals(here, curvature, chosen))
        share = min(1.0, MORE * float(np.mean(residuals.var(axis=0))))
        needed = int(share * len(self.white))
        if MORE * needed <= len(chosen):
            return len(chosen)
        return min(len(self.white), max(MORE * len(chosen), needed))

    def summit(self, shift: Vector, draws: Float[np.ndarray, "draw dim"]) -> Vector:
        """The highest point that a climb finds from a shift, or from the best of the shards' means and some draws."""
        starts = np.concatenate(
            [shift[None], self.frame.white(np.asarray(self.affine.means)), draws]
        )
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
