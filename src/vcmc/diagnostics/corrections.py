"""The shift and the scale that would make draws right, from scores at some of them."""

from typing import NamedTuple

import numpy as np

from ..linalg.operators import AbstractMatrix, DenseOperator, DiagonalOperator
from ..linalg.shrinkage import TINY
from ..linalg.stein import (
    MIN_CURVATURE,
    Draws,
    HessianProducts,
    SteinEstimate,
    Vector,
    bounded_inverse_root,
    conjugate_gradients,
    diagonal_stein_estimate,
    matrix_from_products,
    stein_estimate,
)
from .coordinates import Coordinates

NUM_GROUPS = 10  # of the jackknife
MIN_CURVATURE_SHARE = 0.8  # of the curvature at the draws' mean, which scores have on average
NUM_CURVATURE_ERRORS = 3.0  # standard errors by which a curvature must be below the least


class Correction(NamedTuple):
    """The shift and the scale, in whitened coordinates, that would make draws right."""

    shift: Vector
    scale: AbstractMatrix

    @property
    def size(self) -> float:
        """The largest change of a mean, or of an entry of the scale, in sds."""
        identity = self.scale.identity(len(self.shift)).values
        return max(np.abs(self.shift).max(), np.abs(self.scale.values - identity).max())


class CorrectionEstimate(NamedTuple):
    """Corrections from all points and from jackknife samples, and the scores that resist them.

    Attributes:
        corrections: from all points first, then with each tenth left out.
        nonlinear_scores: the part of the scores that is not linear in the draws.
        least_curvature: the least curvature, averaged over the points; it is shrunk towards that
            at the draws' mean.
        curvature_bound: the largest curvature in the same direction that scores alone allow.
    """

    corrections: list[Correction]
    nonlinear_scores: Draws
    least_curvature: float
    curvature_bound: float


def estimate_corrections(
    coordinates: Coordinates, white: Draws, scores: Draws, hessian_products: HessianProducts
) -> CorrectionEstimate:
    """Estimate corrections of whitened draws, as their coordinates allow.

    Args:
        coordinates: the coordinates in which draws and scores are given.
        white: the draws.
        scores: the target's scores at them.
        hessian_products: products of the target's negative Hessian at the draws' mean.
    """
    if coordinates.curvature is not None:
        return _frame_corrections(white, scores, coordinates.curvature)
    is_dense = coordinates.whitening.is_dense
    estimator = _dense_corrections if is_dense else _coordinate_corrections
    return estimator(white, scores, hessian_products)


def _dense_corrections(
    white: Draws, scores: Draws, hessian_products: HessianProducts
) -> CorrectionEstimate:
    """Estimate corrections with a dense scale."""
    curvature = matrix_from_products(hessian_products, white.shape[1])
    curvature = _curvature_share(white, scores, curvature) * curvature
    estimates: list[SteinEstimate] = []
    for sample in jackknife_samples(len(white)):
        shrinkage = estimates[0].shrinkage if estimates else None
        estimates.append(stein_estimate(white[sample], scores[sample], curvature, shrinkage))
    roots = [bounded_inverse_root(estimate.precision, MIN_CURVATURE) for estimate in estimates]
    corrections = [
        Correction(root @ (root @ estimate.mean_score), DenseOperator(root))
        for (root, _), estimate in zip(roots, estimates, strict=True)
    ]
    least = roots[0][1]
    bound = max(least, _curvature_bound(white, scores, estimates[0].precision))
    return CorrectionEstimate(corrections, estimates[0].nonlinear_scores, least, bound)


def _curvature_share(white: Draws, scores: Draws, curvature: np.ndarray) -> float:
    """Return the share of the curvature at the draws' mean that scores have, by least squares.

    It is taken for one where it is near, as for a Gaussian. Heavy tails are less curved than the
    centre, and an estimate that is shrunk towards the curvature there calls exact draws too wide.
    """
    linear = white @ curvature
    centred = scores - scores.mean(axis=0)
    share = -np.sum(centred * linear) / max(float(np.sum(linear**2)), TINY)
    return max(float(share), 0.0) if share < MIN_CURVATURE_SHARE else 1.0


def _curvature_bound(white: Draws, scores: Draws, precision: np.ndarray) -> float:
    """Return an upper bound on the mean curvature in the direction in which it is least.

    On a thin ring, the curvature at the draws' mean says nothing, and scores are noisy: draws that
    are exact may seem to lie where the target does not fall off.
    """
    if not np.isfinite(precision).all():
        return -np.inf
    direction = np.linalg.eigh(precision)[1][:, 0]
    along, slopes = white @ direction, scores @ direction
    terms = -(slopes - slopes.mean()) * along
    return float(terms.mean() + NUM_CURVATURE_ERRORS * terms.std() / np.sqrt(len(terms)))


def _frame_corrections(white: Draws, scores: Draws, curvature: Vector) -> CorrectionEstimate:
    """Estimate corrections with a scale for each coordinate of a frame."""
    estimates = [
        diagonal_stein_estimate(white[sample], scores[sample], curvature)
        for sample in jackknife_samples(len(white))
    ]
    precisions = [np.maximum(np.abs(estimate.precision), MIN_CURVATURE) for estimate in estimates]
    corrections = [
        Correction(estimate.mean_score / precision, DiagonalOperator(precision**-0.5))
        for estimate, precision in zip(estimates, precisions, strict=True)
    ]
    least = float(estimates[0].precision.min())
    return CorrectionEstimate(corrections, estimates[0].nonlinear_scores, least, least)


def _coordinate_corrections(
    white: Draws, scores: Draws, hessian_products: HessianProducts
) -> CorrectionEstimate:
    """Estimate corrections with a scale for each coordinate, and a shift by Hessian products."""
    residuals = scores + hessian_products(white)
    slopes, precisions = [], []
    for sample in jackknife_samples(len(white)):
        slopes.append(residuals[sample].mean(axis=0))
        centred = scores[sample] - scores[sample].mean(axis=0)
        precisions.append(-np.mean(centred * white[sample], axis=0))
    centred = residuals - slopes[0]
    nonlinear_scores = centred - white * np.mean(centred * white, axis=0)
    least = float(precisions[0].min())
    precisions = [np.maximum(np.abs(precision), MIN_CURVATURE) for precision in precisions]
    shift = conjugate_gradients(
        lambda direction: hessian_products(direction[None])[0], slopes[0], 1 / precisions[0]
    )
    corrections = [
        Correction(shift + (slope - slopes[0]) / precisions[0], DiagonalOperator(precision**-0.5))
        for slope, precision in zip(slopes, precisions, strict=True)
    ]
    return CorrectionEstimate(corrections, nonlinear_scores, least, least)


def jackknife_samples(count: int) -> list[np.ndarray]:
    """Return the indices of all points, and then, ten times, of all but a tenth."""
    indices = np.arange(count)
    return [indices, *(indices[indices % NUM_GROUPS != group] for group in range(NUM_GROUPS))]
