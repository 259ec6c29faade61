r"""A mode of the target, and the Gaussian that stands for it.

Laplace's approximation has the curvature at the mode. Where the top of a hill is flat, as it is
between two modes that are about to part, the curvature says nothing about the width of the hill. So
the scale $s$ along an eigenvector $e$ of the curvature is the one at which the log density has
fallen as that of a Gaussian would, by 2 nats at $2 s$, on average over both sides.

Coordinates may differ in scale by any factor, and eigenvectors depend on their units. A unit is the
sd by the curvature along the coordinate, or that of the draws if it is smaller: the top may be flat
along the coordinate, too.

A point on a ridge, such as a ring, is no mode: searches that start beside it along the ridge end
elsewhere.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..linalg.stein import Matrix
from ..samplers.start import climb_together
from ..target import Target

MAX_PROMISED_NATS = 0.1  # that a Newton step may still gain at a mode
MAX_CALIBRATED = 30  # directions whose scale is calibrated: those of the least curvature
STEPS_SD = 2.0 ** np.arange(-3, 5)  # of the fall along a direction: an eighth of an sd to 16
FALL, FALL_SD = 2.0, 2.0  # nats that a Gaussian falls by, at so many sds
MAX_SIDE_RATIO = 1.1  # of the scale to that of the steeper side: beyond, another hill is near
FLAT_CURVATURE = 0.05  # in calibrated sds: below, a mode may be a point of a ridge
MIN_RISE = 1e-6  # of curvature, relative to the largest: less is rounding
MAX_RETURN_SD = 0.3  # distance from a mode at which a search that starts an sd beside it ends

Vector = Float[np.ndarray, " dim"]
Draws = Float[np.ndarray, "draw dim"]


class Mode(NamedTuple):
    """A local maximum, the precision of the hill there, and the log of the hill's mass.

    The mass is that of a Gaussian of this height and precision, without the factor of 2π.
    """

    point: Vector
    curvature: Matrix
    log_mass: float

    def distance(self, point: Vector) -> float:
        """Return the distance of a point from the mode, in sds of the hill."""
        step = point - self.point
        return float(np.sqrt(max(step @ self.curvature @ step, 0.0)))


class _Axes(NamedTuple):
    """The directions of principal curvature at a point, in columns, with unit length in units."""

    curvatures: Vector
    directions: Matrix
    inverse: Matrix

    @classmethod
    def at(cls, target: Target, point: Vector, sds: Vector) -> "_Axes | None":
        """Return the axes at a point, the least curvature first; None if it is not finite."""
        hessian = target.curvature(point)
        if not np.isfinite(hessian).all():
            return None
        units = 1 / np.maximum(np.sqrt(np.abs(np.diag(hessian))), 1 / sds)
        curvatures, vectors = np.linalg.eigh(hessian * np.outer(units, units))
        return cls(curvatures, units[:, None] * vectors, vectors.T / units)


def mode_at(target: Target, point: Vector, sds: Vector) -> Mode | None:
    """Return the mode at the end of a search, or None if the point is not a maximum.

    Args:
        target: the full-data target.
        point: the end of a search.
        sds: those of draws, along coordinates.
    """
    value, score = (np.asarray(part)[0] for part in target(jnp.asarray(point[None])))
    axes = _Axes.at(target, point, sds)
    if axes is None or not np.isfinite(value):
        return None
    scales = _scales(target, point, float(value), axes)
    if scales is None:
        return None
    if np.sum((scales * (axes.directions.T @ score)) ** 2) > 2 * MAX_PROMISED_NATS:
        return None
    is_flat = axes.curvatures * scales**2 < FLAT_CURVATURE
    if is_flat.any() and not _returns(target, point, is_flat, axes, scales, sds):
        return None
    root = axes.inverse / scales[:, None]
    log_det = float(np.linalg.slogdet(axes.directions)[1] + np.log(scales).sum())
    return Mode(point, root.T @ root, float(value) + log_det)


def step_off_pass(target: Target, point: Vector, sds: Vector) -> Vector | None:
    """Return a step in the direction in which the log density rises to both sides, if one does."""
    axes = _Axes.at(target, point, sds)
    if axes is None or not -axes.curvatures[0] > MIN_RISE * abs(axes.curvatures[-1]):
        return None
    return axes.directions[:, 0] / np.sqrt(-axes.curvatures[0])


def _scales(target: Target, point: Vector, height: float, axes: _Axes) -> Vector | None:
    """Return the scale along every axis; None where there is no fall."""
    curvatures = axes.curvatures
    largest = curvatures.max()
    if largest <= 0:
        return None
    floor = 1e-6 * largest  # a flat direction is tried with a large scale first
    scales = 1 / np.sqrt(np.maximum(curvatures, floor))
    if (curvatures[MAX_CALIBRATED:] <= floor).any():
        return None
    count = min(len(scales), MAX_CALIBRATED)
    for number in np.arange(count)[curvatures[:count] <= FLAT_CURVATURE * largest]:
        # from the narrowest scale outwards, so that the fall along a flat direction is not missed
        direction = axes.directions[:, number]
        scales[number] = _flat_scale(target, point, height, direction, scales[number])
    if not np.isfinite(scales).all():
        return None
    steps = FALL_SD * STEPS_SD
    offsets = (steps[:, None] * np.array([1.0, -1.0])).ravel()
    directions = (axes.directions * scales).T[:count]
    points = point + (offsets[:, None] * directions[:, None]).reshape(-1, len(point))
    values = np.asarray(target(jnp.asarray(points))[0]).reshape(count, len(steps), 2)
    falls = height - np.where(np.isfinite(values), values, -np.inf)
    for number in range(count):
        distances = [_crossing(steps, falls[number, :, side]) for side in (0, 1)]
        if not np.isfinite(distances).all():
            return None
        scale = min(float(np.mean(distances)), MAX_SIDE_RATIO * float(np.min(distances)))
        scales[number] *= scale / FALL_SD
    return scales


def _flat_scale(
    target: Target, point: Vector, height: float, direction: Vector, largest: float
) -> float:
    """Return roughly the scale along a direction of little curvature; infinity if there is none."""
    steps = 16 * largest * 4.0 ** -np.arange(14)
    points = point + (steps[:, None] * np.array([1.0, -1.0])).reshape(-1, 1) * direction
    values = np.asarray(target(jnp.asarray(points))[0]).reshape(-1, 2)
    falls = height - np.where(np.isfinite(values), values, -np.inf).min(axis=1)
    fallen = np.flatnonzero(falls >= FALL)
    return float(steps[fallen[-1]] / FALL_SD) if len(fallen) else np.inf


def _crossing(steps: Vector, falls: Vector) -> float:
    """Return the distance at which the log density has fallen by `FALL`; infinity if nowhere."""
    first = int(np.argmax(falls >= FALL))
    if falls[first] < FALL:
        return np.inf
    if first == 0:
        return float(steps[0])
    # in squared distance, a Gaussian's fall is linear
    low, high = max(falls[first - 1], 0.0), min(falls[first], 1e6)
    share = (FALL - low) / max(high - low, 1e-12)
    squares = steps[first - 1] ** 2 + share * (steps[first] ** 2 - steps[first - 1] ** 2)
    return float(np.sqrt(squares))


def _returns(
    target: Target, point: Vector, is_flat: np.ndarray, axes: _Axes, scales: Vector, sds: Vector
) -> bool:
    """Return whether searches that start beside a mode, along flat directions, end at the mode."""
    steps = (axes.directions * scales).T[is_flat]
    starts = [point + sign * step for step in steps for sign in (0.5, -0.5)]
    ends = climb_together(target, starts, target.model.space.curved, sds)
    distances = [np.linalg.norm(axes.inverse @ (end - point) / scales) for end in ends]
    return bool(max(distances) < MAX_RETURN_SD)
