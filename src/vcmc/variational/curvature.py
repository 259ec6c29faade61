"""The curvatures of Newton's method: a matrix, one number for each coordinate, or none.

All have one interface. `DenseCurvature` knows minus the Hessian as a matrix: it is a control
variate, and gives the shift and the scale of a step. `FrameCurvature` does the same with a diagonal
matrix, in a frame in which the curvature is close to the identity. `CoordinateCurvature` is for
dimensions in which no matrix can be computed: shifts come from conjugate gradients on products with
the Hessian, scales from the scores, and there is no control variate.
"""

import abc
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..linalg.operators import AbstractMatrix, DenseOperator, DiagonalOperator
from ..linalg.shrinkage import TINY
from ..linalg.stein import (
    MIN_CURVATURE,
    Draws,
    HessianProducts,
    Matrix,
    Vector,
    bounded_inverse_root,
    conjugate_gradients,
    diagonal_stein_estimate,
    matrix_from_products,
    stein_estimate,
)

MIN_STEP_PRECISION = 1e-6  # relative to the current scale; keeps the logarithm of a gain finite
# a step changes the variance of a coordinate by at most this factor
MAX_VARIANCE_RATIO = 5.0


class Evaluation(NamedTuple):
    """The target at the draws u = a + V z, for a shift a, a scale V and a batch of white draws z.

    Log densities are up to a constant; scores are in whitened coordinates.
    """

    shift: Vector
    scale: AbstractMatrix
    white: Draws
    values: Float[np.ndarray, " draw"]
    scores: Draws

    @property
    def is_finite(self) -> bool:
        """Whether all log densities and scores are finite."""
        return bool(np.isfinite(self.values).all() and np.isfinite(self.scores).all())

    @property
    def offsets(self) -> Draws:
        """The draws relative to the shift, V z."""
        return self.white @ self.scale.T


class NewtonStep(NamedTuple):
    """The end of a step, the predicted gain in nats, and the curvature that it was made with."""

    shift: Vector
    scale: AbstractMatrix
    gain: float
    curvature: "AbstractCurvature"


class AbstractCurvature(abc.ABC):
    """Minus the Hessian of the target, as far as it is known."""

    @classmethod
    @abc.abstractmethod
    def identity(cls, dim: int) -> "AbstractCurvature":
        """Return the curvature of a Gaussian with the averages' covariance."""

    @classmethod
    @abc.abstractmethod
    def from_products(cls, products: HessianProducts, dim: int) -> "AbstractCurvature":
        """Return the curvature with the given products."""

    @abc.abstractmethod
    def optimal_scale(self) -> AbstractMatrix:
        """Return the scale that fits the curvature, within bounds where it is not positive."""

    @abc.abstractmethod
    def ascent_direction(self, slope: Vector, products: HessianProducts) -> Vector:
        """Return the Newton direction from a point with the given slope and Hessian products."""

    @abc.abstractmethod
    def residual_scores(self, evaluation: Evaluation) -> Draws:
        """Return the scores without their linear part."""

    @abc.abstractmethod
    def control(
        self, evaluation: Evaluation, centre: Vector, second_moment: AbstractMatrix
    ) -> tuple[Float[np.ndarray, " draw"] | float, float]:
        """Return the quadratic about a centre at the draws, and its expectation over all draws.

        `second_moment` is that of all white draws.
        """

    @abc.abstractmethod
    def newton_step(
        self, evaluation: Evaluation, products: HessianProducts, force: bool
    ) -> NewtonStep | None:
        """Return the next step; None if the curvature is not positive, unless forced."""


class DenseCurvature(AbstractCurvature):
    """Minus the Hessian as a matrix."""

    def __init__(self, matrix: Matrix):
        self.matrix = matrix

    @classmethod
    def identity(cls, dim: int) -> "DenseCurvature":
        return cls(np.eye(dim))

    @classmethod
    def from_products(cls, products: HessianProducts, dim: int) -> "DenseCurvature":
        return cls(matrix_from_products(products, dim))

    def optimal_scale(self) -> DenseOperator:
        return DenseOperator(bounded_inverse_root(self.matrix, MIN_CURVATURE)[0])

    def ascent_direction(self, slope: Vector, products: HessianProducts) -> Vector:
        del products
        root, _ = bounded_inverse_root(self.matrix, MIN_CURVATURE)
        return root @ (root @ slope)

    def residual_scores(self, evaluation: Evaluation) -> Draws:
        return evaluation.scores + evaluation.offsets @ self.matrix

    def control(
        self, evaluation: Evaluation, centre: Vector, second_moment: AbstractMatrix
    ) -> tuple[Float[np.ndarray, " draw"] | float, float]:
        bias, scale = evaluation.shift - centre, evaluation.scale.dense()
        points = bias + evaluation.offsets
        values = -0.5 * np.sum((points @ self.matrix) * points, axis=1)
        variance = np.sum(scale @ self.matrix @ scale.T * second_moment.dense())
        return values, float(-0.5 * (bias @ self.matrix @ bias + variance))

    def newton_step(
        self, evaluation: Evaluation, products: HessianProducts, force: bool
    ) -> NewtonStep | None:
        del products
        scale = evaluation.scale.dense()
        estimate = stein_estimate(
            evaluation.white, evaluation.scores @ scale, scale @ self.matrix @ scale
        )
        inverse = np.linalg.inv(scale)
        precision = inverse @ estimate.precision @ inverse
        root, least = bounded_inverse_root(precision, MIN_CURVATURE)
        if least < MIN_CURVATURE and not force:
            precision = self.matrix
            root, least = bounded_inverse_root(precision, MIN_CURVATURE)
            if least < MIN_CURVATURE:
                return None
        slope = inverse @ estimate.mean_score
        move = root @ (root @ slope)
        ratios = np.maximum(np.linalg.eigvalsh(scale @ precision @ scale), MIN_STEP_PRECISION)
        gain = 0.5 * slope @ move + _scale_gain(ratios)
        shift = evaluation.shift + move
        curvature = DenseCurvature(np.linalg.inv(root @ root))
        return NewtonStep(shift, DenseOperator(root), gain, curvature)


class FrameCurvature(AbstractCurvature):
    """The diagonal of minus the Hessian, in a frame in which the rest of it is small."""

    def __init__(self, diagonal: Vector):
        self.diagonal = diagonal

    @classmethod
    def identity(cls, dim: int) -> "FrameCurvature":
        return cls(np.ones(dim))

    @classmethod
    def from_products(cls, products: HessianProducts, dim: int) -> "FrameCurvature":
        del products  # a frame is chosen such that they are close to the directions
        return cls.identity(dim)

    def optimal_scale(self) -> DiagonalOperator:
        return DiagonalOperator(self.diagonal**-0.5)

    def ascent_direction(self, slope: Vector, products: HessianProducts) -> Vector:
        return _solve(products, slope, 1 / self.diagonal)

    def residual_scores(self, evaluation: Evaluation) -> Draws:
        return evaluation.scores + evaluation.offsets * self.diagonal

    def control(
        self, evaluation: Evaluation, centre: Vector, second_moment: AbstractMatrix
    ) -> tuple[Float[np.ndarray, " draw"] | float, float]:
        bias, scale = evaluation.shift - centre, evaluation.scale.diagonals()
        values = -0.5 * (bias + evaluation.offsets) ** 2 @ self.diagonal
        squares = bias**2 + scale**2 * second_moment.diagonals()
        return values, float(-0.5 * squares @ self.diagonal)

    def newton_step(
        self, evaluation: Evaluation, products: HessianProducts, force: bool
    ) -> NewtonStep:
        del products, force
        scale = evaluation.scale.diagonals()
        estimate = diagonal_stein_estimate(
            evaluation.white, evaluation.scores * scale, scale**2 * self.diagonal
        )
        ratios = np.clip(estimate.precision, 1 / MAX_VARIANCE_RATIO, MAX_VARIANCE_RATIO)
        move = estimate.mean_score / ratios
        gain = 0.5 * estimate.mean_score @ move + _scale_gain(ratios)
        shift, precision = evaluation.shift + scale * move, ratios / scale**2
        curvature = FrameCurvature(precision)
        return NewtonStep(shift, DiagonalOperator(precision**-0.5), float(gain), curvature)


class CoordinateCurvature(AbstractCurvature):
    """No curvature but products with the Hessian: each coordinate has a scale of its own."""

    def __init__(self, dim: int):
        self.dim = dim

    @classmethod
    def identity(cls, dim: int) -> "CoordinateCurvature":
        return cls(dim)

    @classmethod
    def from_products(cls, products: HessianProducts, dim: int) -> "CoordinateCurvature":
        del products
        return cls(dim)

    def optimal_scale(self) -> DiagonalOperator:
        return DiagonalOperator.identity(self.dim)

    def ascent_direction(self, slope: Vector, products: HessianProducts) -> Vector:
        return _solve(products, slope, np.ones(self.dim))

    def residual_scores(self, evaluation: Evaluation) -> Draws:
        return evaluation.scores

    def control(
        self, evaluation: Evaluation, centre: Vector, second_moment: AbstractMatrix
    ) -> tuple[Float[np.ndarray, " draw"] | float, float]:
        del evaluation, centre, second_moment
        return 0.0, 0.0

    def newton_step(
        self, evaluation: Evaluation, products: HessianProducts, force: bool
    ) -> NewtonStep:
        del force
        offsets, variances = evaluation.offsets, evaluation.scale.diagonals() ** 2
        slope = evaluation.scores.mean(axis=0)
        terms = -(evaluation.scores - slope) * offsets
        noise = terms.var(axis=0).mean() / len(terms)
        ratios = terms.mean(axis=0)
        share = max(0.0, 1 - noise / max(np.var(ratios), TINY))
        ratios = np.clip(
            ratios.mean() + share * (ratios - ratios.mean()),
            1 / MAX_VARIANCE_RATIO,
            MAX_VARIANCE_RATIO,
        )
        move = _solve(products, slope, variances)
        gain = 0.5 * slope @ move + _scale_gain(ratios)
        shift = evaluation.shift + move + offsets.mean(axis=0)
        scale = DiagonalOperator(evaluation.scale.diagonals() / np.sqrt(ratios))
        return NewtonStep(shift, scale, gain, self)


def _scale_gain(ratios: Vector) -> float:
    """Return the gain in nats of a scale, from the target's precision relative to the current."""
    return 0.5 * float(np.sum(ratios - 1 - np.log(ratios)))


def _solve(products: HessianProducts, goal: Vector, preconditioner: Vector) -> Vector:
    return conjugate_gradients(lambda direction: products(direction[None])[0], goal, preconditioner)
