r"""Stein's identities: the distance between draws and a target, from scores at the draws.

In coordinates in which the draws $z$ have mean zero and covariance $I$, let $g$ be the target's
scores. If the draws are exact, $\mathbb E g = 0$ and $\mathbb E [g z^\top] = -I$. If the target is
a Gaussian of precision $P$ whose mean is off by $\mu$, then

$$P = -\mathbb E [g z^\top], \qquad \mu = P^{-1} \mathbb E g.$$

The identities hold for smooth log densities, and for densities that vanish at the boundary of
their domain.

With the Hessian $-P_0$ at the mean as a control variate, both expectations are estimated from the
residuals $r = g + P_0 z$, which vanish for a Gaussian target: estimates then depend on the error of
the draws, and hardly on which draws were evaluated.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .shrinkage import TINY

MIN_CURVATURE = 0.02  # relative to the draws; a smaller eigenvalue is not taken for a precision

Vector = Float[np.ndarray, " dim"]
Matrix = Float[np.ndarray, "dim dim"]
Draws = Float[np.ndarray, "draw dim"]
Batch = Float[np.ndarray, "*batch dim"]
Directions = Float[np.ndarray, "direction dim"]
HessianProducts = Callable[[Directions], Directions]
"""Products of minus a Hessian with directions."""


def matrix_from_products(hessian_products: HessianProducts, dim: int) -> Matrix:
    """Return the symmetric matrix that has the given products with directions."""
    products = hessian_products(np.eye(dim))
    return (products + products.T) / 2


class SteinEstimate(NamedTuple):
    """The mean score, the target's precision and the nonlinear part of the scores, whitened.

    `shrinkage` is the factor by which the scores' slope was multiplied.
    """

    mean_score: Vector
    precision: Matrix
    nonlinear_scores: Draws
    shrinkage: float


def stein_estimate(
    white: Draws, scores: Draws, curvature: Matrix, shrinkage: float | None = None
) -> SteinEstimate:
    """Estimate a target's mean score and precision from its scores at whitened draws.

    Args:
        white: draws of mean zero and covariance I.
        scores: the target's scores at the draws.
        curvature: minus the target's Hessian at zero, the control variate.
        shrinkage: the factor of the residuals' slope; by default that of James and Stein.
    """
    residuals = scores + white @ curvature
    mean_score = residuals.mean(axis=0)
    centred = residuals - mean_score
    slope = centred.T @ white / len(white)
    factor = _shrinkage(slope, centred, white) if shrinkage is None else shrinkage
    slope = factor * (slope + slope.T) / 2
    return SteinEstimate(mean_score, curvature - slope, centred - white @ slope, factor)


class DiagonalSteinEstimate(NamedTuple):
    """The mean score, the diagonal of the precision, and the nonlinear part of the scores."""

    mean_score: Vector
    precision: Vector
    nonlinear_scores: Draws


def diagonal_stein_estimate(
    white: Draws, scores: Draws, curvature: Vector
) -> DiagonalSteinEstimate:
    """Estimate a target's mean score and the diagonal of its precision from scores at draws.

    Differences between coordinates are shrunk by their noise.

    Args:
        white: draws of mean zero and variances one.
        scores: the target's scores at the draws.
        curvature: the diagonal of minus the target's Hessian at zero, the control variate.
    """
    residuals = scores + white * curvature
    mean_score = residuals.mean(axis=0)
    centred = residuals - mean_score
    terms = centred * white
    slopes = terms.mean(axis=0)
    noise = terms.var(axis=0).mean() / len(terms)
    share = max(0.0, 1 - noise / max(float(np.var(slopes)), TINY))
    slopes = slopes.mean() + share * (slopes - slopes.mean())
    return DiagonalSteinEstimate(mean_score, curvature - slopes, centred - white * slopes)


def _shrinkage(mean: Matrix, residuals: Draws, white: Draws) -> float:
    """Return the factor that shrinks the mean of r zᵀ by its noise (James and Stein)."""
    count = len(residuals)
    squares = np.sum(np.sum(residuals**2, axis=1) * np.sum(white**2, axis=1)) / count
    noise = (squares - np.sum(mean**2)) / (count - 1)
    return max(0.0, 1 - noise / max(float(np.sum(mean**2)), TINY))


def bounded_inverse_root(precision: Matrix, min_eigenvalue: float) -> tuple[Matrix, float]:
    """Return the symmetric root of the inverse of |P|, and the least eigenvalue of P.

    Absolute eigenvalues are bounded from below. A matrix that is not finite counts as negative
    definite: its least eigenvalue is minus infinity.
    """
    if not np.isfinite(precision).all():
        return np.eye(len(precision)), -np.inf
    values, vectors = np.linalg.eigh(precision)
    root = (vectors / np.sqrt(np.maximum(np.abs(values), min_eigenvalue))) @ vectors.T
    return root, float(values[0])


def conjugate_gradients(
    product: Callable[[Vector], Vector],
    goal: Vector,
    preconditioner: Vector,
    max_steps: int = 20,
    tolerance: float = 0.02,
) -> Vector:
    """Solve P x = goal approximately, from products with P.

    The iteration stops early where P is not positive definite.

    Args:
        product: the product of P with a vector.
        goal: the right-hand side.
        preconditioner: the diagonal of an approximate inverse of P.
        max_steps: the largest number of products.
        tolerance: the norm of the residual to stop at, relative to that of the goal.
    """
    solution, residual = np.zeros_like(goal), goal.copy()
    scaled = preconditioner * residual
    direction, square = scaled, float(residual @ scaled)
    final_square = tolerance**2 * square
    for _ in range(max_steps):
        if not square > final_square:
            break
        image = product(direction)
        curvature = float(direction @ image)
        if curvature <= 0:
            return solution if solution.any() else preconditioner * goal
        solution = solution + square / curvature * direction
        residual = residual - square / curvature * image
        scaled = preconditioner * residual
        previous, square = square, float(residual @ scaled)
        direction = scaled + square / previous * direction
    return solution
