r"""Frames: coordinates in which the curvature of a log density is the identity, in any dimension.

Minus the Hessian at a centre $c$ is $P = A A^\top$, by one Cholesky factorization. The frame is
$u = c + R z$ with $R = A^{-\top}$. In it, the density is close to a standard normal and a shard of
random rows to a normal of covariance $K I$, so that one number per coordinate describes what is
left, in place of a matrix per shard.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .operators import (
    AbstractMatrix,
    AbstractOperator,
    DenseOperator,
    DiagonalOperator,
    Values,
)
from .whitening import MIN_RELATIVE_CURVATURE, Whitening

MAX_FRAME_DIM = 6000  # coordinates: two matrices of 288 MB; their factorization takes seconds
MAX_FRAME_DISTANCE_SD = 0.5  # per coordinate: a frame serves points that are as near as this
MAX_FRAMES = 3  # on the way to a point with a short Newton step
MAX_CHORD_STEPS = 10  # Newton steps with the curvature of one frame
CHORD_LENGTHS = np.array([1.0, 0.5, 0.25, 0.1, 0.03])  # of Newton's step, tried at once

Vector = Float[np.ndarray, " dim"]


class FrameOperator(AbstractOperator):
    """A matrix that is kept with its inverse, so that nothing is solved for twice.

    >>> operator = FrameOperator(np.diag([2.0, 4.0]), np.diag([0.5, 0.25]), np.log(8.0))
    >>> (operator @ np.ones(2)).tolist(), operator.solve(np.ones(2)).tolist()
    ([2.0, 4.0], [0.5, 0.25])
    """

    values: Float[Values, "dim dim"]
    inverse_values: Float[Values, "dim dim"]
    log_abs_det: Float[Values, ""]

    @property
    def T(self) -> "FrameOperator":  # noqa: N802
        return FrameOperator(self.values.T, self.inverse_values.T, self.log_abs_det)

    def __matmul__(self, vectors: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        return self.values @ vectors

    def __rmatmul__(self, rows: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        return rows @ self.values

    def solve(self, rows: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        return rows @ self.inverse_values.T

    def inverse(self) -> "FrameOperator":
        return FrameOperator(self.inverse_values, self.values, -self.log_abs_det)

    def log_det(self) -> Float[Values, ""]:
        return self.log_abs_det

    def congruence(self, inner: AbstractMatrix) -> DenseOperator:
        return DenseOperator((self.values @ inner) @ self.values.T)

    def similarity(self, inner: AbstractMatrix) -> DenseOperator:
        return DenseOperator((self.values @ inner) @ self.inverse_values)

    def similar_diagonals(self, inner: DiagonalOperator) -> Float[Values, "shard dim"]:
        r"""Return the diagonals of $R D_k R^{-1}$ for diagonal matrices $D_k$."""
        return inner.values @ (self.values * self.inverse_values.T).T

    def scaled(self, scales: Vector) -> "FrameOperator":
        """Return the operator times a diagonal matrix."""
        return FrameOperator(
            self.values * scales,
            self.inverse_values / scales[:, None],
            self.log_abs_det + np.sum(np.log(scales)),
        )


def frame_of_curvature(centre: Vector, curvature: Float[np.ndarray, "dim dim"]) -> Whitening | None:
    """Return coordinates at a centre in which a curvature is the identity; None if not finite.

    Directions of negative curvature are scaled by its absolute value. They cost an
    eigendecomposition, a minute for 5 000 coordinates.
    """
    if not np.isfinite(curvature).all():
        return None
    try:
        return Whitening(centre, _inverse_transpose(np.linalg.cholesky(curvature)))
    except np.linalg.LinAlgError:
        eigenvalues, vectors = np.linalg.eigh(curvature)
    sizes = np.abs(eigenvalues)
    sizes = np.sqrt(np.maximum(sizes, MIN_RELATIVE_CURVATURE * sizes.max()))
    log_det = -np.sum(np.log(sizes))
    return Whitening(centre, FrameOperator(vectors / sizes, (vectors * sizes).T, log_det))


def _inverse_transpose(factor: Float[np.ndarray, "dim dim"]) -> FrameOperator:
    """Return the inverse of a Cholesky factor's transpose."""
    # imported here: SciPy adds to the time of `import vcmc`
    from scipy.linalg.lapack import dtrtri

    root, failed = dtrtri(factor.T, lower=0)
    if failed:
        raise np.linalg.LinAlgError("a Cholesky factor has a zero on its diagonal")
    return FrameOperator(root, factor.T, -np.sum(np.log(np.diag(factor))))


def is_near(frame: Whitening, point: Vector) -> bool:
    """Return whether a frame serves a point."""
    return _root_mean_square(frame.whiten(point)) <= MAX_FRAME_DISTANCE_SD


class LocalDensity(NamedTuple):
    """A log density by its values and scores at points, and minus its Hessian at a point."""

    evaluate: Callable[[Float[np.ndarray, "point dim"]], tuple[np.ndarray, np.ndarray]]
    curvature: Callable[[Vector], Float[np.ndarray, "dim dim"]]


def find_frame(density: LocalDensity, point: Vector) -> Whitening | None:
    """Return a frame at a point, or at one uphill from which Newton's step is short.

    The curvature far from where a density has its mass says little about its shape. Steps uphill
    use the curvature of the last frame; a new one is made where they end far from it.
    """
    frame = None
    for _ in range(MAX_FRAMES):
        frame = frame_of_curvature(point, density.curvature(point))
        if frame is None:
            return None
        point = _climb(density, frame)
        if is_near(frame, point):
            break
    return frame


def _climb(density: LocalDensity, frame: Whitening) -> Vector:
    """Take Newton steps with the curvature of a frame until they are short."""
    point = np.asarray(frame.centre)
    values, scores = density.evaluate(point[None])
    value, slope = values[0], frame.whiten_scores(scores[0])
    for _ in range(MAX_CHORD_STEPS):
        if not _root_mean_square(slope) > MAX_FRAME_DISTANCE_SD:
            break
        ends = point + frame.unwhiten_directions(CHORD_LENGTHS[:, None] * slope)
        values, scores = density.evaluate(ends)
        best = int(np.argmax(np.nan_to_num(values, nan=-np.inf)))
        if not values[best] > value:
            break
        point, value, slope = ends[best], values[best], frame.whiten_scores(scores[best])
    return point


def _root_mean_square(values: Vector) -> float:
    return float(np.sqrt(np.mean(values**2)))
