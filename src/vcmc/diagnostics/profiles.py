r"""Profiles of the log density along lines: tails and steps that scores at the draws do not show.

For coordinate $j$, the line through the draws' mean along which the other coordinates follow their
regression on $j$ is $u(t) = c + t \, \Sigma_j / \sigma_j$. The log density of a Gaussian with the
draws' moments is $-t^2 / 2$ there, so the density along the line should have mean zero and sd one.
Where its sd is larger, the draws miss a heavy tail or a slab. (Where it is smaller, the posterior
may just widen away from the line, as a funnel does; scores tell draws that are too wide.) With
$t = \sinh s$ and equally spaced $s$, a few nodes reach from half an sd to seventy sds, and
the trapezoid rule in $s$ is accurate for smooth densities.

Scores along the line must integrate to the differences of the log density. They do not where the
log density has steps, of which no gradient tells.

Most nodes are far from all mass. Where rows are many, a part of them tells which: nodes at which
these rows alone make the density small need no others.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..density import log_priors
from ..linalg.shrinkage import TINY
from ..linalg.whitening import Whitening
from ..target import Target
from .coordinates import coordinates_of
from .row_sample import RowSample

NODE_DISTANCE = 0.5  # in s: sds of Gaussian, Student and log-gamma densities are right to 0.5 %
MAX_NODE = 5.0  # in s: 74 sds
MAX_LINES = 24  # 500 evaluations: lines of more coordinates would double the cost of a diagnosis
MAX_CANDIDATES = 600  # coordinates whose lines are looked at by the prior: 300 MB of points
# Sd of the density along the line to that of the draws. On sound results it is below 1.02
# (logistic, robust and Poisson regressions, rates, mixtures); on missed tails and slabs that make
# an sd wrong by 15 %, above 1.15.
MAX_SD_RATIO = 1.1
STEP_RANGE = 1.7  # in s, 2.6 sds: where scores are compared with differences
MAX_STEP = 0.3  # nats, root mean square between neighbouring nodes
SURE_RANGE = 2.5  # in s, 6 sds: where all rows are evaluated
# Nats below the centre by the rows of a part alone: the others would have to make up for more.
MAX_PART_FALL = 10.0
MAX_NAMED = 3  # coordinates named in a sentence

Draws = Float[np.ndarray, "draw dim"]


class Profiles(NamedTuple):
    """The log density along lines, summarized.

    Attributes:
        coordinates: the coordinate of each line.
        sds: sd of the density along each line, in sds of the draws.
        steps: root mean square difference between the log density's differences and the integral
            of its scores, in nats.
    """

    coordinates: Int[np.ndarray, " line"]
    sds: Float[np.ndarray, " line"]
    steps: Float[np.ndarray, " line"]


def profile(draws: Draws, target: Target, seed: int) -> Profiles:
    """Evaluate the target along the lines of all coordinates, or of those most in doubt."""
    whitening = coordinates_of(draws, target).whitening
    candidates = _candidates(len(whitening.centre), seed)
    directions = _line_directions(whitening, candidates)
    s = np.arange(-MAX_NODE, MAX_NODE + NODE_DISTANCE / 2, NODE_DISTANCE)
    t = np.sinh(s)
    chosen = _chosen_lines(whitening, directions, t, target, seed)
    lines = whitening.centre + t[:, None] * directions[chosen, None]
    values, scores = _evaluated(lines, s, whitening.centre, target)
    slopes = np.einsum("lnd,ld->ln", scores, directions[chosen])
    return Profiles(candidates[chosen], _sds(values, s), _steps(values, slopes, s))


def _evaluated(
    lines: Float[np.ndarray, "line node dim"],
    s: Float[np.ndarray, " node"],
    centre: Float[np.ndarray, " dim"],
    target: Target,
) -> tuple[Float[np.ndarray, "line node"], Float[np.ndarray, "line node dim"]]:
    """Return log densities and scores at the nodes of lines: minus infinity where no mass is."""
    has_mass = np.ones(lines.shape[:2], bool)
    outer = np.flatnonzero(np.abs(s) > SURE_RANGE)
    with np.errstate(invalid="ignore", over="ignore"):
        sample = RowSample.of(target, centre)
        if sample is not None:
            nodes = np.concatenate([centre[None], lines[:, outer].reshape(-1, lines.shape[2])])
            values = sample.rows_alone(nodes)
            falls = (values[0] - values[1:]).reshape(len(lines), len(outer))
            has_mass[:, outer] = ~(falls > MAX_PART_FALL)
    all_values, all_scores = np.full(has_mass.shape, -np.inf), np.zeros(lines.shape)
    all_values[has_mass], all_scores[has_mass] = map(np.asarray, target(lines[has_mass]))
    return all_values, all_scores


def profile_doubts(profiles: Profiles, names: Sequence[str]) -> list[str]:
    """Return sentences on tails that the draws miss, and on steps of the log density."""
    doubts = []
    if len(wide := np.flatnonzero(~(profiles.sds <= MAX_SD_RATIO))):
        worst = wide[np.argmax(profiles.sds[wide])]
        doubts.append(
            "The draws may miss a heavy tail or a second component: along "
            f"{_named(profiles.coordinates[wide], names)} the full-data density is wider than they "
            f"are, by a factor of up to {profiles.sds[worst]:.2g}."
        )
    if len(stepped := np.flatnonzero(profiles.steps > MAX_STEP)):
        doubts.append(
            "The log density has steps, or bends too sharply, along "
            f"{_named(profiles.coordinates[stepped], names)}: its gradient does not explain its "
            "differences, so that gradient-based sampling and the estimated errors are unreliable."
        )
    return doubts


def _named(coordinates: Int[np.ndarray, " line"], names: Sequence[str]) -> str:
    shown = ", ".join(names[index] for index in coordinates[:MAX_NAMED])
    num_left = len(coordinates) - MAX_NAMED
    return shown + (f" and {num_left} more" if num_left > 0 else "")


def _candidates(dim: int, seed: int) -> Int[np.ndarray, " line"]:
    """Return all coordinates, or some of them at random."""
    if dim <= MAX_CANDIDATES:
        return np.arange(dim)
    return np.sort(np.random.default_rng((seed, dim)).permutation(dim)[:MAX_CANDIDATES])


def _line_directions(
    whitening: Whitening, coordinates: Int[np.ndarray, " line"]
) -> Float[np.ndarray, "line dim"]:
    """Return, for some coordinates, the change of a point per sd of that coordinate."""
    units = np.zeros((len(coordinates), len(whitening.centre)))
    units[np.arange(len(coordinates)), coordinates] = 1.0
    white = np.asarray(whitening.whiten_scores(units))
    lengths = np.linalg.norm(white, axis=1, keepdims=True)
    return np.asarray(whitening.unwhiten_directions(white / np.maximum(lengths, TINY)))


def _chosen_lines(
    whitening: Whitening,
    directions: Float[np.ndarray, "line dim"],
    t: Float[np.ndarray, " node"],
    target: Target,
    seed: int,
) -> Int[np.ndarray, " line"]:
    """Return all lines, or those along which the prior is least quadratic, and others."""
    count, dim = directions.shape
    if count <= MAX_LINES:
        return np.arange(count)
    near = t[np.abs(t) < 10]
    lines = whitening.centre + near[:, None] * directions[:, None]
    values = log_priors(target.model, lines.reshape(-1, dim)).reshape(count, len(near))
    basis = np.stack([np.ones_like(near), near, near**2], axis=1)
    residuals = values.T - basis @ np.linalg.lstsq(basis, values.T, rcond=None)[0]
    doubt = np.nan_to_num(np.abs(residuals).max(axis=0), nan=np.inf)
    doubt = doubt + 1e-6 * np.random.default_rng(seed).uniform(size=count)  # breaks ties at random
    return np.sort(np.argsort(-doubt)[:MAX_LINES])


def _sds(
    values: Float[np.ndarray, "line node"], s: Float[np.ndarray, " node"]
) -> Float[np.ndarray, " line"]:
    """Return the sd of the density along each line, by the trapezoid rule in s."""
    values = np.where(np.isfinite(values), values, -np.inf)
    peaks = values.max(axis=1, keepdims=True)
    weights = np.exp(values - np.where(np.isfinite(peaks), peaks, 0.0)) * np.cosh(s)
    weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)
    t = np.sinh(s)
    return np.sqrt(np.maximum(weights @ t**2 - (weights @ t) ** 2, 0.0))


def _steps(
    values: Float[np.ndarray, "line node"],
    slopes: Float[np.ndarray, "line node"],
    s: Float[np.ndarray, " node"],
) -> Float[np.ndarray, " line"]:
    """Return the root mean square of what Simpson's rule on the scores leaves unexplained."""
    inner = np.flatnonzero(np.abs(s) <= STEP_RANGE)
    values, slopes = values[:, inner], slopes[:, inner] * np.cosh(s[inner])
    integrals = (slopes[:, :-2] + 4 * slopes[:, 1:-1] + slopes[:, 2:]) * (NODE_DISTANCE / 3)
    residuals = values[:, 2:] - values[:, :-2] - integrals
    residuals = np.where(np.isfinite(residuals), residuals, np.inf)
    return np.sqrt(np.mean(residuals**2, axis=1))
