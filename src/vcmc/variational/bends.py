r"""Learn a triangular map (`triangular.py`) where draws lack the bends of the target.

The objective is the one of affine maps, $\mathbb E \log p(u) + \mathbb E \log |\det du/dz|$, at a
fixed batch of evenly spaced base points. Its gradient comes from full-data scores, and L-BFGS
climbs from the affine map with the draws' mean and covariance, in coordinates in which the
objective would be round if the target were normal, which takes about half as many steps.

Whether there is anything to learn shows at draws at which scores are known. To first order, the
scores of a target with third cumulants $\kappa_{ijk}$ in white coordinates have the nonlinear part
$r_i = \frac 1 2 \sum_{jk} \kappa_{ijk} (w_j w_k - \delta_{jk})$, so that
$\kappa_{ijj} = \mathbb E [r_i (w_j^2 - 1)]$. A bend is missing where the draws have other ones.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri

from ..linalg.shrinkage import TINY
from ..linalg.sobol import sobol_points
from ..linalg.stein import Draws, Matrix
from ..linalg.whitening import Whitening
from ..target import Target
from .marginal_shapes import lack_shapes
from .triangular import KNOTS, TriangularMap

MIN_CUMULANT = 0.2  # that draws lack: 5 % quantiles are then off by 0.06 sd
MIN_SIGNIFICANCE = 4.0  # standard errors
BATCH_PER_DIM, MIN_BATCH = 128, 256  # base points
MAX_ITERATIONS = 150
ROUGHNESS = 1e-3  # nats per squared change of the slope of log h' at a knot
RIDGE = 1e-5  # nats per squared parameter
TOLERANCE = 1e-4  # nats of a step, above which the climb goes on
MIN_GAIN = 0.01  # nats above the affine map
NO_VALUE = 1e10  # of maps whose points have no finite density


class BentFit(NamedTuple):
    """A learned map.

    Attributes:
        map: the map.
        objective: its objective, which is at most the log integral of the target.
        gain: the rise of the objective above that of the affine map, and its standard error.
        num_evaluations: points at which the target was evaluated.
    """

    map: TriangularMap
    objective: float
    gain: tuple[float, float]
    num_evaluations: int

    @property
    def is_better(self) -> bool:
        """Whether the map is better than an affine one by more than the noise."""
        rise, error = self.gain
        return rise > max(MIN_GAIN, 2 * error)


def lack_bends(draws: Draws, points: Draws, scores: Draws) -> bool:
    """Return whether draws clearly lack the target's shape, judged by its scores at some points."""
    if not np.isfinite(scores).all() or lack_shapes(draws, points, scores):
        return True
    return bool(_missing(draws, points, scores)[1].any())


def orders(draws: Draws, points: Draws, scores: Draws) -> list[tuple[int, ...]]:
    """Return orders of the coordinates to try, the likeliest first.

    A coordinate whose square drives others comes before them in a bend, and after them in a
    funnel, where they drive its scale.
    """
    dim = draws.shape[1]
    is_finite = np.isfinite(scores).all(axis=1)
    if is_finite.sum() <= dim + 1:
        return [tuple(range(dim)), tuple(reversed(range(dim)))][: min(dim, 2)]
    sizes = np.abs(_missing(draws, points[is_finite], scores[is_finite])[0])
    np.fill_diagonal(sizes, 0.0)
    first = tuple(np.argsort(sizes.sum(axis=1) - sizes.sum(axis=0), kind="stable").tolist())
    return [first, first[::-1]][: min(dim, 2)]


def _missing(
    draws: Draws, points: Draws, scores: Draws
) -> tuple[Matrix, Bool[np.ndarray, "dim dim"]]:
    """Return the cumulants κ_ijj that the draws lack, and which of them are clearly not zero."""
    whitening = Whitening.from_draws(draws)
    white, white_points = whitening.whiten(draws), whitening.whiten(points)
    design = np.column_stack([np.ones(len(points)), white_points])
    white_scores = whitening.whiten_scores(scores)
    nonlinear = white_scores - design @ np.linalg.lstsq(design, white_scores, rcond=None)[0]
    squares = white_points**2 - 1
    count = len(points)
    target = nonlinear.T @ squares / count
    variances = (nonlinear**2).T @ squares**2 / count - target**2
    errors = np.sqrt(np.maximum(variances, 0.0) / count)
    missing = target - white.T @ (white**2 - 1) / len(white)
    least = np.maximum(MIN_CUMULANT, MIN_SIGNIFICANCE * np.maximum(errors, TINY))
    return missing, np.abs(missing) > least


def fit_bend(
    draws: Draws, order: tuple[int, ...], target: Target, generator: np.random.Generator
) -> BentFit:
    """Learn the map with an order of the coordinates, from the affine map that draws suggest."""
    from scipy.optimize import minimize  # here, as it adds to the time of `import vcmc`

    dim = draws.shape[1]
    covariance = np.cov(draws, rowvar=False).reshape(dim, dim)
    affine = TriangularMap.affine(draws.mean(axis=0), covariance, order)
    base = ndtri(sobol_points(max(MIN_BATCH, BATCH_PER_DIM * dim), dim, generator))
    climb = _Climb(affine, base, target)
    start = climb.terms(affine)
    climb.reference = float(np.nan_to_num(start.mean(), neginf=0.0, posinf=0.0))
    with np.errstate(all="ignore"):  # far from all mass
        end = minimize(
            climb.white_loss,
            np.zeros_like(affine.parameters),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": MAX_ITERATIONS, "maxcor": 30, "ftol": TOLERANCE},
        )
    learned = affine.with_parameters(climb.root.T @ end.x)
    terms = climb.terms(learned)
    gain = -np.inf, np.inf
    if np.isfinite(start).all() and np.isfinite(terms).all():
        rises = terms - start
        gain = float(rises.mean()), float(rises.std() / len(rises) ** 0.5)
    objective = float(terms.mean()) + 0.5 * dim * np.log(2 * np.pi * np.e)
    return BentFit(learned, objective, gain, climb.num_evaluations)


class _Climb:
    """The objective of maps at a fixed batch of base points."""

    def __init__(self, affine: TriangularMap, base: Draws, target: Target):
        self.affine = affine
        self.base = base
        self.target = target
        self.num_evaluations = 0
        self.penalty = _penalty(affine)
        self.root = np.linalg.inv(np.linalg.cholesky(affine.curvature(base) + self.penalty))
        self.reference = 0.0  # is subtracted from the objective

    def terms(self, bent: TriangularMap) -> Float[np.ndarray, " draw"]:
        """Return log density plus log determinant at every base point."""
        points, log_det = bent(self.base)
        return self._evaluate(points)[0] + log_det

    def _evaluate(self, points: Draws) -> tuple[Float[np.ndarray, " draw"], Draws]:
        self.num_evaluations += len(points)
        values, scores = self.target(jnp.asarray(points))
        return np.asarray(values), np.asarray(scores)

    def white_loss(
        self, white: Float[np.ndarray, " parameter"]
    ) -> tuple[float, Float[np.ndarray, " parameter"]]:
        """Return the loss and its gradient in coordinates in which it is about round."""
        loss, gradient = self.loss(self.root.T @ white)
        return loss, self.root @ gradient

    def loss(
        self, parameters: Float[np.ndarray, " parameter"]
    ) -> tuple[float, Float[np.ndarray, " parameter"]]:
        """Return minus the objective, with a penalty, and its gradient."""
        bent = self.affine.with_parameters(parameters)
        forward = bent.forward(self.base)
        if not np.isfinite(forward.white).all():
            return NO_VALUE, np.zeros_like(parameters)
        values, scores = self._evaluate(bent.points(forward.white))
        objective = float(np.mean(values + forward.log_det))
        gradient = bent.gradient(forward, bent.white_scores(scores))
        if not (np.isfinite(objective) and np.isfinite(gradient).all()):
            return NO_VALUE, np.zeros_like(parameters)
        slope = self.penalty @ parameters
        loss = float(0.5 * parameters @ slope) - (objective - self.reference)
        return loss, slope - gradient


def _penalty(affine: TriangularMap) -> Matrix:
    """Return the matrix of the quadratic penalty on parameters.

    Where there are no points, beyond the batch, log h' goes on with the slope that it had.
    """
    slopes = np.diff(np.eye(len(KNOTS)), axis=0) / np.diff(KNOTS)[:, None]
    changes = np.diff(slopes, axis=0)
    matrix = RIDGE * np.eye(len(affine.parameters))
    for shape in affine.shape_slices():
        matrix[shape, shape] += ROUGHNESS * changes.T @ changes
    return matrix
