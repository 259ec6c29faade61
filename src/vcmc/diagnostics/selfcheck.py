r"""How far combined draws are from the posterior, by full-data scores at some of them: no reference chain is needed.

Stein's identities (`stein.py`) say which shift and scale would make the draws right. The draws are moved so, and what that changes in
the mean and in the sd of a parameter is the estimate of its error. Its standard error has two parts: the Monte Carlo error, by
leaving out a tenth of the draws at a time, and what an affine correction cannot know. The latter is of the order of the
share $\rho$ of the scores that is not linear in the draws: a cubic term of size $\epsilon$ in the log density changes means and variances by
multiples of $\epsilon^2$, and so is $\rho$.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.stein import (
    Directions,
    Frame,
    HessianProducts,
    conjugate_gradients,
    gap,
    root_of_inverse,
    symmetric,
)
from ..target import Target
from .discrepancy import kernel_stein_discrepancy
from .importance import pareto_k

NUM_POINTS = 400  # draws at which the target is evaluated
NUM_GROUPS = 10
FAR, MAX_LOOKS = (
    0.1,
    5,
)  # sds: draws that are farther off are moved and looked at again, so many times
ROUNDING = 1e-9
LEAST = 0.02  # curvature, relative to that of the draws, that is taken for one
SHAPE, PATH = (
    0.5,
    0.5,
)  # standard errors that a share of one that is not linear stands for; see tests/diagnostics

Draws = Float[np.ndarray, "draw dim"]
Quantities = Callable[[Float[Array, "draw dim"]], Float[np.ndarray, "draw quantity"]]


class Errors(NamedTuple):
    """Estimated errors of means, in posterior sds, and of sds, as shares, with standard errors: one for each quantity.

    A mean that is too large has a positive error, and so has an sd that is too large.
    """

    mean: Float[np.ndarray, " quantity"]
    mean_se: Float[np.ndarray, " quantity"]
    sd: Float[np.ndarray, " quantity"]
    sd_se: Float[np.ndarray, " quantity"]


class SelfCheck(NamedTuple):
    """What full-data scores say of combined draws.

    Attributes:
        errors: of every quantity; nothing if the target is not finite at the draws, or no hill around them.
        not_linear: the largest share of the scores, over quantities, that is not linear in the draws.
        least_curvature: below zero if the target, averaged over the draws, is no hill in some direction.
        pareto_k: of the ratios of the target and a Gaussian with the draws' moments.
        ksd, ksd_p_value: the kernel Stein discrepancy, and how often right draws have a larger one.
        num_points: draws at which the target was evaluated.
        num_not_finite: how many of those had a log density or score that is not finite.
    """

    errors: Errors | None
    not_linear: float
    least_curvature: float
    pareto_k: float
    ksd: float
    ksd_p_value: float
    num_points: int
    num_not_finite: int


class Correction(NamedTuple):
    """The shift and the scale, in white coordinates, that would make draws right."""

    move: np.ndarray
    scale: np.ndarray


def self_check(draws: Draws, target: Target, quantities: Quantities, seed: int) -> SelfCheck:
    """Estimate how far draws are off. `quantities` computes what is reported, from points.

    Draws that are far off are moved, and looked at again where they then are: a long way is not measured by one step.
    """
    first, look = _looks(draws, target, seed)
    counts = first.num_points, first.num_not_finite
    if (
        not look.corrected or look.least_curvature < LEAST
    ):  # there is no hill to measure a distance by
        return SelfCheck(None, np.nan, look.least_curvature, *first.scores_alone, *counts)

    now = quantities(jnp.asarray(draws))
    there = quantities(jnp.asarray(look.draws))
    shares = _not_linear(there, look)
    means, sds = (
        np.stack(each) for each in zip(*map(_moments(quantities), look.corrected), strict=True)
    )
    varies = sds[0] > ROUNDING * (
        np.abs(means[0]) + np.abs(now).max(axis=0)
    )  # constants have no error
    mean_errors = np.where(varies, (now.mean(axis=0) - means) / sds[0], np.nan)
    sd_errors = np.where(varies, now.std(axis=0) / sds - 1, np.nan)

    def standard_error(errors: Float[np.ndarray, "group quantity"], path: np.ndarray) -> np.ndarray:
        noise = (NUM_GROUPS - 1) * errors[1:].var(axis=0)  # by the jackknife
        return np.sqrt(noise + (SHAPE * shares) ** 2 + PATH**2 * shares * path**2)

    errors = Errors(
        mean_errors[0],
        standard_error(mean_errors, (there.mean(axis=0) - means[0]) / sds[0]),
        sd_errors[0],
        standard_error(sd_errors, there.std(axis=0) / sds[0] - 1),
    )
    return SelfCheck(
        errors, float(np.nanmax(shares)), look.least_curvature, *first.scores_alone, *counts
    )


def corrected(draws: Draws, target: Target, seed: int) -> Draws:
    """Draws moved to where they should be, as far as a shift and a scale can do that; draws that are not far off stay."""
    _, last = _looks(draws, target, seed)
    return last.draws


def _looks(draws: Draws, target: Target, seed: int) -> tuple["Look", "Look"]:
    """What is seen at draws, and at last after they were moved until they are not far off."""
    generator = np.random.default_rng(seed)
    look = first = _look(draws, target, generator)
    for _ in range(MAX_LOOKS - 1):
        if not look.is_far:
            break
        closer = _look(look.corrected[0], target, generator)
        if closer.num_not_finite:
            break  # one step too far
        look = closer
    return first, look


class Look(NamedTuple):
    """What was seen at some draws: corrected draws (by all points seen, and by all but a tenth of them), and the rest."""

    draws: Draws
    white: Draws
    corrected: list[Draws]
    bent: Draws
    is_far: bool
    least_curvature: float
    scores_alone: tuple[float, float, float]
    num_points: int
    num_not_finite: int


def _look(draws: Draws, target: Target, generator: np.random.Generator) -> Look:
    num_draws, dim = draws.shape
    chosen = np.sort(generator.permutation(num_draws)[:NUM_POINTS])
    values, scores = (np.asarray(each) for each in target(jnp.asarray(draws[chosen])))
    finite = np.isfinite(values) & np.isfinite(scores).all(axis=1)
    counts = len(chosen), int(np.sum(~finite))
    chosen, values, scores = chosen[finite], values[finite], scores[finite]
    if len(chosen) < 2 * NUM_GROUPS:
        nothing = np.nan, np.nan, np.nan
        return Look(draws, draws, [], draws, False, np.nan, nothing, *counts)

    frame = Frame.of(draws)
    white, turned = frame.white(draws), frame.turned(scores)

    def hessian_products(directions: Directions) -> Directions:
        products = target.hessian_products(
            jnp.asarray(frame.centre), jnp.asarray(frame.outside(directions))
        )
        return -frame.turned(np.asarray(products))

    judge = _by_matrix if frame.is_full else _by_coordinate
    corrections, bent, least = judge(white[chosen], turned, hessian_products)

    def moved(correction: Correction) -> Draws:
        scale = correction.scale
        return frame.place(correction.move + (white @ scale.T if frame.is_full else white * scale))

    move, scale = corrections[0]
    away = np.abs(scale - (np.eye(dim) if frame.is_full else 1.0)).max()
    is_far = bool(max(np.abs(move).max(), away) > FAR)
    ratios = values + 0.5 * np.sum(white[chosen] ** 2, axis=1)
    discrepancy = kernel_stein_discrepancy(white[chosen], turned, generator)
    alone = pareto_k(ratios), *discrepancy
    return Look(draws, white, list(map(moved, corrections)), bent, is_far, least, alone, *counts)


def _moments(quantities: Quantities) -> Callable[[Draws], tuple[np.ndarray, np.ndarray]]:
    def moments(draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        found = quantities(jnp.asarray(draws))
        return found.mean(axis=0), found.std(axis=0)

    return moments


def _by_matrix(
    white: Draws, scores: Draws, hessian_products: HessianProducts
) -> tuple[list[Correction], Draws, float]:
    """Corrections by all points and by all but a tenth, what is not linear in the scores, and the least curvature."""
    curvature = symmetric(hessian_products, white.shape[1])
    found = []
    for kept in _leave_out(len(white)):
        estimate = gap(white[kept], scores[kept], curvature)
        root, least = root_of_inverse(estimate.precision, LEAST)
        found.append((Correction(root @ (root @ estimate.slope), root), estimate.bent, least))
    return [each for each, _, _ in found], found[0][1], found[0][2]


def _by_coordinate(
    white: Draws, scores: Draws, hessian_products: HessianProducts
) -> tuple[list[Correction], Draws, float]:
    """The same, with a scale for every coordinate and a shift that products with the Hessian give."""
    residuals = scores + hessian_products(white)
    slopes, spreads = [], []
    for kept in _leave_out(len(white)):
        slopes.append(residuals[kept].mean(axis=0))
        spreads.append(-np.mean((scores[kept] - scores[kept].mean(axis=0)) * white[kept], axis=0))
    bent = residuals - slopes[0]
    bent = bent - white * np.mean(bent * white, axis=0)
    least = float(spreads[0].min())
    spreads = [np.maximum(np.abs(spread), LEAST) for spread in spreads]
    move = conjugate_gradients(
        lambda direction: hessian_products(direction[None])[0], slopes[0], 1 / spreads[0]
    )
    moves = [move + (slope - slopes[0]) / spreads[0] for slope in slopes]
    return (
        [Correction(move, spread**-0.5) for move, spread in zip(moves, spreads, strict=True)],
        bent,
        least,
    )


def _leave_out(count: int) -> list[np.ndarray]:
    """All points, and then all but every tenth, ten times."""
    every = np.arange(count)
    return [every, *(every[every % NUM_GROUPS != group] for group in range(NUM_GROUPS))]


def _not_linear(
    quantities: Float[np.ndarray, "draw quantity"], look: Look
) -> Float[np.ndarray, " quantity"]:
    """The share of the scores that is not linear in the draws, along the direction in which each quantity grows."""
    directions = (quantities - quantities.mean(axis=0)).T @ look.white / len(look.white)
    lengths = np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-300)
    return np.asarray(np.var(look.bent @ (directions / lengths).T, axis=0))
