r"""Stein's identities: how far draws are from a target, by its scores at the draws alone.

In coordinates in which the draws $z$ have mean zero and covariance $I$, let $g$ be the target's scores there. If draws are right, $\mathbb E g = 0$
and $\mathbb E [g z^\top] = -I$. If the target is a Gaussian of precision $P$ whose mean is off by $\mu$, then

$$P = -\mathbb E [g z^\top], \qquad \mu = P^{-1} \mathbb E g.$$

All this holds for log densities that are smooth, and for densities that vanish at the edges of their domain.

With the Hessian $-P_0$ at the mean as a control variate both are estimated by residuals $r = g + P_0 z$, which vanish for a
Gaussian target: so what is seen is how far draws are off, and hardly which draws were looked at.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " dim"]
Matrix = Float[np.ndarray, "dim dim"]
Draws = Float[np.ndarray, "draw dim"]
Batch = Float[np.ndarray, "*batch dim"]
Directions = Float[np.ndarray, "direction dim"]
HessianProducts = Callable[[Directions], Directions]
"""Products of a matrix with directions: minus a Hessian, as a target's score bends along them."""


LARGE = 600  # coordinates: above, matrices of them take too long
ENOUGH = 1.5  # draws per coordinate: with fewer, their covariance has no inverse to speak of


class Frame(NamedTuple):
    """Coordinates in which draws are white: a centre, and a root of the covariance, or the sds alone."""

    centre: Vector
    root: Matrix | Vector

    @classmethod
    def of(cls, draws: Draws) -> "Frame":
        """The coordinates in which draws have mean zero and covariance I, or, if they are few for so many coordinates, variances of one."""
        num_draws, dim = draws.shape
        centre = draws.mean(axis=0)
        centred = draws - centre
        if dim <= LARGE and num_draws >= ENOUGH * dim:
            return cls(centre, np.linalg.cholesky(centred.T @ centred / num_draws))
        return cls(centre, centred.std(axis=0))

    @property
    def is_full(self) -> bool:
        """Whether covariances are white, not only variances."""
        return self.root.ndim == 2

    def white(self, points: Draws) -> Draws:
        """Points in white coordinates."""
        away = points - self.centre
        return np.linalg.solve(self.root, away.T).T if self.is_full else away / self.root

    def place(self, white: Batch) -> Batch:
        """Points from white coordinates."""
        return self.centre + self.outside(white)

    def outside(self, directions: Batch) -> Batch:
        """Directions from white coordinates."""
        return directions @ self.root.T if self.is_full else directions * self.root

    def turned(self, scores: Batch) -> Batch:
        """Scores in white coordinates."""
        return scores @ self.root if self.is_full else scores * self.root


def symmetric(hessian_products: HessianProducts, dim: int) -> Matrix:
    """The symmetric matrix whose products with directions are given."""
    products = hessian_products(np.eye(dim))
    return (products + products.T) / 2


class Gap(NamedTuple):
    """The mean score, the target's precision, and what the scores are besides linear: all in white coordinates."""

    slope: Vector
    precision: Matrix
    bent: Draws


def gap(white: Draws, scores: Draws, curvature: Matrix) -> Gap:
    """How far draws of mean zero and covariance I are from a target, whose curvature at zero is a first guess."""
    residuals = scores + white @ curvature
    slope = residuals.mean(axis=0)
    turn = _shrunk_mean(residuals - slope, white)
    turn = (turn + turn.T) / 2
    return Gap(slope, curvature - turn, residuals - slope - white @ turn)


def _shrunk_mean(residuals: Draws, white: Draws) -> Matrix:
    """The mean of r zᵀ, shrunk towards zero as far as it is noise (James and Stein)."""
    count = len(residuals)
    mean = residuals.T @ white / count
    squares = np.sum(np.sum(residuals**2, axis=1) * np.sum(white**2, axis=1)) / count
    noise = (squares - np.sum(mean**2)) / (count - 1)
    return max(0.0, 1 - noise / max(float(np.sum(mean**2)), 1e-300)) * mean


def root_of_inverse(precision: Matrix, least: float) -> tuple[Matrix, float]:
    """The symmetric root of the inverse of a matrix whose eigenvalues are kept above a bound, and the least of them.

    A matrix that is not finite is no precision: it counts as one that falls off everywhere.
    """
    if not np.isfinite(precision).all():
        return np.eye(len(precision)), -np.inf
    roots, vectors = np.linalg.eigh(precision)
    return (vectors / np.sqrt(np.maximum(np.abs(roots), least))) @ vectors.T, float(roots[0])


def conjugate_gradients(
    product: Callable[[Vector], Vector],
    goal: Vector,
    diagonal: Vector,
    steps: int = 20,
    tolerance: float = 0.02,
) -> Vector:
    """An approximate solution of P x = goal, by way of products with P; it ends where P is not positive."""
    found, rest = np.zeros_like(goal), goal.copy()
    ready = diagonal * rest
    direction, square = ready, float(rest @ ready)
    end = tolerance**2 * square
    for _ in range(steps):
        if not square > end:
            break
        image = product(direction)
        fall = float(direction @ image)
        if fall <= 0:
            return found if found.any() else diagonal * goal
        found = found + square / fall * direction
        rest = rest - square / fall * image
        ready = diagonal * rest
        before, square = square, float(rest @ ready)
        direction = ready + square / before * direction
    return found
