r"""Estimate the error of combined draws from full-data scores at some of them.

No reference chain is needed. Stein's identities (`linalg/stein.py`) give the shift and the scale
that would make the draws right. The draws are moved accordingly, and the change of a parameter's
mean and sd is the estimate of its error; errors of quantiles are in `quantiles.py`. Standard errors
have three parts: the Monte Carlo error of the estimate, from leaving out a tenth of the evaluated
draws at a time; that of the draws (`sampling_error.py`); and the error of an affine correction. The
latter is of the order of the share $\rho$ of the scores that is not linear in the draws: a cubic
term of size $\epsilon$ in the log density changes means, variances and $\rho$ by multiples of
$\epsilon^2$.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..linalg.shrinkage import TINY
from ..linalg.stein import (
    MIN_CURVATURE,
    Directions,
    Draws,
    Vector,
)
from ..linalg.whitening import Whitening
from ..target import Target
from .coordinates import Linearization, Quantities, coordinates_of, linearize
from .corrections import NUM_GROUPS, estimate_corrections, jackknife_samples
from .discrepancy import kernel_stein_discrepancy
from .importance import pareto_k
from .quantiles import LEVELS, Moments, corrected_quantile, missing_skewness, quantiles_at
from .sampling_error import DrawSource, sampling_variances

NUM_POINTS = 400  # draws at which the target is evaluated
# Where scores are close to linear, the estimate from fewer is off by 0.02 sd at most, the root of
# MAX_GAUSSIAN_SHARE / 160; there are at least as many points as coordinates.
NUM_FIRST_POINTS = 160
MAX_CORRECTION_SD = 0.1  # sds; after a larger correction the moved draws are evaluated again
MAX_ROUNDS = 5  # of evaluating and moving draws
ROUNDING = 1e-9  # relative sd below which a quantity is constant
MAX_NONLINEAR_SHARE = 0.3  # of the scores' variance: above, an affine correction is a guess
MAX_GAUSSIAN_SHARE = 0.05  # below, mean and covariance describe the posterior
# standard errors per unit of the nonlinear share: of the correction's shape, and of its path;
# tests/diagnostics/test_selfcheck.py and test_sampling_error.py check that they cover
SHAPE_ERROR = 0.5
PATH_ERROR = 0.5
HIDDEN_SHARE = 0.25  # of the nonlinear share, which matters even if draws have the right skewness
MAX_MOVED_VALUES = 2**23  # draws times coordinates that are moved; of more draws, some are assessed


class Errors(NamedTuple):
    """Estimated errors of means and of quantiles, in posterior sds, and relative errors of sds.

    Errors are positive for a mean, an sd or a quantile that is too large. All have standard
    errors. `q05` and `q95` are the 5 % and the 95 % quantile.
    """

    mean: Float[np.ndarray, " quantity"]
    mean_se: Float[np.ndarray, " quantity"]
    sd: Float[np.ndarray, " quantity"]
    sd_se: Float[np.ndarray, " quantity"]
    q05: Float[np.ndarray, " quantity"]
    q05_se: Float[np.ndarray, " quantity"]
    q95: Float[np.ndarray, " quantity"]
    q95_se: Float[np.ndarray, " quantity"]


class SelfCheck(NamedTuple):
    """Diagnostics of combined draws from full-data scores.

    Attributes:
        errors: errors of each quantity; None if the target is not finite at the draws, or does not
            fall off around them.
        not_linear: the largest share of the scores, over quantities, that is not linear in the
            draws.
        falls_off: whether the target falls off around the draws in all directions, or may: their
            scores do not contradict it by more than noise.
        pareto_k: the Pareto k of the ratios of the target and a Gaussian with the draws' moments.
        ksd: the kernel Stein discrepancy.
        ksd_p_value: the probability that exact draws have a larger one.
        num_points: draws at which the target was evaluated.
        num_not_finite: evaluations with a log density or score that is not finite.
    """

    errors: Errors | None
    not_linear: float
    falls_off: bool
    pareto_k: float
    ksd: float
    ksd_p_value: float
    num_points: int
    num_not_finite: int

    @property
    def is_reliable(self) -> bool:
        """Whether scores at the draws tell their errors."""
        return self.errors is not None and self.not_linear <= MAX_NONLINEAR_SHARE


class Assessment(NamedTuple):
    """Draws, their corrections, and the diagnostics of scores at some of them.

    Attributes:
        draws: the draws.
        white: the draws in whitened coordinates.
        points: indices of the draws at which the target was evaluated, and finite.
        corrected: the corrected draws, from all points and from jackknife samples.
        nonlinear_scores: the part of the scores that is not linear in the draws.
        is_far: whether the correction is too large for one step.
        least_curvature: the least curvature, averaged over the points.
        curvature_bound: the largest that noise allows for.
        score_diagnostics: Pareto k, the kernel Stein discrepancy and its p-value.
        num_points: draws at which the target was evaluated.
        num_not_finite: evaluations that were not finite.
        log_densities: log densities at the points.
        log_det: log determinant of the correction's scale.
        frame: the coordinates of the draws, if they are a frame of the target.
        sds: the target's sds in them.
    """

    draws: Draws
    white: Draws
    points: Int[np.ndarray, " point"]
    corrected: list[Draws]
    nonlinear_scores: Draws
    is_far: bool
    least_curvature: float
    curvature_bound: float
    score_diagnostics: tuple[float, float, float]
    num_points: int
    num_not_finite: int
    log_densities: Float[np.ndarray, " point"] = np.empty(0)
    log_det: float = 0.0
    frame: Whitening | None = None
    sds: Vector | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the draws are close to the target, which is close to a Gaussian."""
        if self.is_far or self.num_not_finite or not self.corrected:
            return False
        share = np.var(self.nonlinear_scores, axis=0).max()
        return bool(share <= MAX_GAUSSIAN_SHARE) and self.least_curvature >= MIN_CURVATURE

    def improves_on(self, other: "Assessment") -> bool:
        """Return whether these draws, made by the other's correction, are no worse than its draws.

        Their objective is the mean log density plus the entropy, which the correction changes by
        the log determinant of its scale.
        """
        if self.num_not_finite or not len(self.log_densities):
            return False
        gain = self.log_densities.mean() - other.log_densities.mean() + other.log_det
        noise = np.hypot(
            *(part.log_densities.std() / len(part.log_densities) ** 0.5 for part in (self, other))
        )
        return bool(gain > -2 * noise)


def self_check(
    draws: Draws,
    target: Target,
    quantities: Quantities,
    seed: int,
    source: DrawSource | None = None,
) -> SelfCheck:
    """Estimate the errors of draws.

    Draws that are far off are corrected and evaluated again, as one correction is only approximate.

    Args:
        draws: combined draws, as points.
        target: the full-data log density.
        quantities: the function from points to the reported quantities.
        seed: the seed of the evaluated draws.
        source: where the draws come from; by default they are independent.
    """
    source = source or DrawSource(len(draws))
    max_draws = max(MAX_MOVED_VALUES // draws.shape[1], 2 * NUM_POINTS)
    if len(draws) > max_draws:
        chosen = np.arange(max_draws) * len(draws) // max_draws
        # with the mean of all draws, whose errors are to be estimated
        centred = draws[chosen] - draws[chosen].mean(axis=0)
        draws, source = draws.mean(axis=0) + centred, source.subset(chosen)
    first, last, is_settled = _assess_repeatedly(draws, target, seed)
    common = *first.score_diagnostics, first.num_points, first.num_not_finite
    falls_off = not first.curvature_bound < MIN_CURVATURE
    if not last.corrected or last.least_curvature < MIN_CURVATURE:
        # without a maximum nearby there is no distance to measure
        return SelfCheck(None, np.nan, falls_off, *common)

    errors, shares = _errors(draws, last, quantities, source)
    not_linear = float(np.nanmax(shares))
    if not is_settled:  # no shift and scale brings the draws to the posterior
        return SelfCheck(None, max(not_linear, 1.0), falls_off, *common)
    return SelfCheck(errors, not_linear, falls_off, *common)


def _errors(
    draws: Draws, last: Assessment, quantities: Quantities, source: DrawSource
) -> tuple[Errors, Float[np.ndarray, " quantity"]]:
    """Return the errors of all quantities, and the nonlinear share of the scores along each."""
    original, values = quantities(jnp.asarray(draws)), quantities(jnp.asarray(last.draws))
    white, nonlinear_scores, stretches = _along_quantities(quantities, values, last)
    shares = np.var(nonlinear_scores, axis=0)
    corrected = [
        Moments.of(quantities(jnp.asarray(draws))).stretched(stretches) for draws in last.corrected
    ]
    means, sds = (np.stack(arrays) for arrays in zip(*corrected, strict=True))
    # constants have no error
    varies = sds[0] > ROUNDING * (np.abs(means[0]) + np.abs(original).max(axis=0))
    sorted_values = np.sort(values, axis=0)
    sorted_original = sorted_values if last.draws is draws else np.sort(original, axis=0)
    chance = sampling_variances(values, sorted_values, white, source)
    moments = Moments.of(values)
    samples = jackknife_samples(len(last.points))
    skewness = missing_skewness(white, white[last.points], nonlinear_scores, samples)
    # the share of a posterior of skewness k is k² / 2: all of it matters to draws that have none
    mismatch = np.sqrt(shares / 2) * np.abs(skewness[0]) + HIDDEN_SHARE * shares

    def estimate(
        errors: Float[np.ndarray, "sample quantity"], path: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        noise = (NUM_GROUPS - 1) * errors[1:].var(axis=0) + variance  # by the jackknife
        noise = noise + (SHAPE_ERROR * mismatch) ** 2 + PATH_ERROR**2 * shares * path**2
        return np.where(varies, errors[0], np.nan), np.where(varies, np.sqrt(noise), np.nan)

    mean_path, sd_path = (moments.mean - means[0]) / sds[0], moments.sd / sds[0] - 1
    parts = [
        *estimate((original.mean(axis=0) - means) / sds[0], mean_path, chance.mean),
        *estimate(original.std(axis=0) / sds - 1, sd_path, chance.sd),
    ]
    for level, variance in zip(LEVELS, chance.quantiles, strict=True):
        right = corrected_quantile(sorted_values, level, skewness, moments, corrected)
        errors = (quantiles_at(sorted_original, level) - right) / sds[0]
        parts += estimate(errors, mean_path + np.abs(sd_path), variance)
    return Errors(*parts), shares


def corrected(draws: Draws, target: Target, seed: int) -> Draws:
    """Return draws moved by a shift and a scale towards the target, until they are close to it."""
    return _assess_repeatedly(draws, target, seed)[1].draws


def largest_error(draws: Draws, target: Target, seed: int) -> float:
    """Return the largest estimated error of the coordinates.

    It is infinite where mean and covariance do not describe the posterior: scores are not linear.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        check = self_check(draws, target, np.asarray, seed)
    if check.errors is None or check.not_linear > MAX_GAUSSIAN_SHARE:
        return np.inf
    return float(np.nanmax(np.abs([check.errors.mean, check.errors.sd])))


def _assess_repeatedly(
    draws: Draws, target: Target, seed: int
) -> tuple[Assessment, Assessment, bool]:
    """Assess draws, and again after each correction until they are close.

    Return the first and the last assessment, and whether the last correction can be trusted.
    """
    generator = np.random.default_rng(seed)
    last = first = _assess(draws, target, generator)
    for _ in range(MAX_ROUNDS - 1):
        if not last.is_far:
            break
        closer = _assess(last.corrected[0], target, generator)
        if not closer.improves_on(last):
            # one step too far; beyond the support, the direction is right all the same
            return first, last, bool(closer.num_not_finite)
        last = closer
    return first, last, True


def _assess(draws: Draws, target: Target, generator: np.random.Generator) -> Assessment:
    """Evaluate the target at some draws, and estimate the correction of all."""
    chosen = generator.permutation(len(draws))[:NUM_POINTS]
    num_first = max(NUM_FIRST_POINTS, draws.shape[1])
    first = ScoredPoints.at(draws, np.sort(chosen[:num_first]), target)
    assessment = _assess_points(draws, first, target, generator)
    if num_first >= len(chosen) or assessment.is_plain:
        return assessment
    rest = ScoredPoints.at(draws, np.sort(chosen[num_first:]), target)
    return _assess_points(draws, first.joined(rest), target, generator)


class ScoredPoints(NamedTuple):
    """Log densities and scores at some draws."""

    indices: Int[np.ndarray, " point"]
    values: Float[np.ndarray, " point"]
    scores: Draws

    @classmethod
    def at(cls, draws: Draws, indices: Int[np.ndarray, " point"], target: Target) -> "ScoredPoints":
        """Evaluate the target at the draws of the given indices."""
        values, scores = (np.asarray(array) for array in target(draws[indices]))
        return cls(indices, values, scores)

    def joined(self, other: "ScoredPoints") -> "ScoredPoints":
        """Return the points of both."""
        pairs = zip(self, other, strict=True)
        return ScoredPoints(*(np.concatenate([first, second]) for first, second in pairs))

    def finite(self) -> "ScoredPoints":
        """Return the points whose log density and score are finite."""
        is_finite = np.isfinite(self.values) & np.isfinite(self.scores).all(axis=1)
        return ScoredPoints(*(array[is_finite] for array in self))


def _assess_points(
    draws: Draws, scored: ScoredPoints, target: Target, generator: np.random.Generator
) -> Assessment:
    """Estimate the correction of all draws from the target at some."""
    points, values, scores = scored.finite()
    counts = len(scored.indices), len(scored.indices) - len(points)
    if len(points) < 2 * NUM_GROUPS:
        unknown = np.nan, np.nan, np.nan
        return Assessment(draws, draws, points, [], draws, False, np.nan, np.nan, unknown, *counts)

    coordinates = coordinates_of(draws, target)
    whitening = coordinates.whitening
    white, white_scores = whitening.whiten(draws), whitening.whiten_scores(scores)

    def hessian_products(directions: Directions) -> Directions:
        products = target.hessian_products(
            jnp.asarray(whitening.centre), jnp.asarray(whitening.unwhiten_directions(directions))
        )
        return -whitening.whiten_scores(np.asarray(products))

    estimate = estimate_corrections(coordinates, white[points], white_scores, hessian_products)
    corrected_draws = [
        whitening.unwhiten(correction.shift + white @ correction.scale.T)
        for correction in estimate.corrections
    ]
    is_far = bool(estimate.corrections[0].size > MAX_CORRECTION_SD)
    ratios = values + 0.5 * np.sum(white[points] ** 2, axis=1)
    discrepancy = kernel_stein_discrepancy(white[points], white_scores, generator)
    return Assessment(
        draws,
        white,
        points,
        corrected_draws,
        estimate.nonlinear_scores,
        is_far,
        estimate.least_curvature,
        estimate.curvature_bound,
        (pareto_k(ratios), *discrepancy),
        *counts,
        values,
        float(estimate.corrections[0].scale.log_det()),
        *(
            (whitening, estimate.corrections[0].scale.diagonals())
            if coordinates.curvature is not None
            else ()
        ),
    )


def _along_quantities(
    quantities: Quantities, values: Float[np.ndarray, "draw quantity"], assessment: Assessment
) -> Linearization:
    """Return white draws and nonlinear scores along the direction in which each quantity grows."""
    white, frame, sds = assessment.white, assessment.frame, assessment.sds
    if frame is not None and sds is not None:
        return linearize(quantities, frame, white, sds, assessment.nonlinear_scores)
    directions = (values - values.mean(axis=0)).T @ white / len(white)
    lengths = np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), TINY)
    directions = (directions / lengths).T
    nonlinear_scores = assessment.nonlinear_scores @ directions
    return Linearization(white @ directions, nonlinear_scores, np.ones(values.shape[1]))
