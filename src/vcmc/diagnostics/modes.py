"""Search for a mode of the posterior that the draws miss, from a few starting points.

Scores at the draws tell whether the draws are right where they are, but never that most of the mass
lies elsewhere. So the log density is maximized from other points, first on one shard: from random
points near the origin and their mirror images, and from points on the axes through the draws' mean,
from a few sds to as far as the prior reaches, at which the score points away from the draws. (The
scores of a log-concave density nowhere do.) Only searches that end far from the mode near the
draws' mean continue on all rows. Modes are compared by Laplace's approximation: height, and
curvature at the mode.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.params import to_params
from ..density import evaluate, log_priors
from ..linalg.stein import Matrix, matrix_from_products
from ..linalg.whitening import Whitening
from ..samplers.start import SCALES, climb, climb_together, search_starts, shard_curvature
from ..space import Product
from ..target import Target

MIN_DISTANCE_SD = 6.0  # between modes: nearer ones may be a single skewed one
MIN_MASS_SHARE = 0.01  # of a mode that is reported
MAX_PROMISED_NATS = 0.1  # that a Newton step may still gain at a mode
DISTANCE_RATIO = 1.7  # between neighbouring points of an axis: below two, so that none is missed
NUM_DISTANCES = 18  # on each side: up to 10⁴ times the first
MAX_PRIOR_FALL = 12.0  # nats below its largest value on an axis: further out, nothing is sought
MAX_SCANNED_POINTS = 2000  # on one shard
MAX_SCAN_CLIMBS = 8  # from points at which the score points away from the draws
MAX_LABEL_LENGTH = 60  # characters of a parameter's value in the message

Vector = Float[np.ndarray, " dim"]
Draws = Float[np.ndarray, "draw dim"]


class Mode(NamedTuple):
    """A local maximum, minus the Hessian there, and the log mass by Laplace's approximation."""

    point: Vector
    curvature: Matrix
    log_mass: float


class OtherMode(NamedTuple):
    """A mode far from the draws, and its share of the mass of the two."""

    mode: Mode
    share: float

    def sentence(self, space: Product) -> str:
        """Return what to tell the user."""
        params = to_params(space, jnp.asarray(self.mode.point[None]))
        values = ", ".join(
            f"{name} = {np.round(value[0], 3).tolist()}"[:MAX_LABEL_LENGTH]
            for name, value in params.items()
        )
        return (
            "The posterior has another mode, far from the draws: it holds about "
            f"{100 * self.share:.0f} % of the mass of the two, near {values}. Averages of shards "
            "cannot be trusted if there are two modes: use a prior that rules one out, or run "
            "chains on all rows."
        )


def other_mode(draws: Draws, target: Target, seed: int) -> OtherMode | None:
    """Return a mode far from the draws that holds mass, if the search finds one."""
    whitening = Whitening.from_draws(draws)
    if not whitening.is_dense:
        return None
    model = target.model
    candidates = _pilot_modes(whitening, target, seed)
    if not candidates:
        return None
    curved = model.space.curved
    own = _mode(target, climb(target, whitening.centre, curved, _precision(whitening)))
    if own is None:
        return None
    modes = [
        _mode(target, climb(target, point, curved, target.num_shards * curvature))
        for point, curvature in candidates
    ]
    others = [
        mode
        for mode in modes
        if mode and _are_apart(whitening, _labelled(whitening, mode.point, model.space), own.point)
    ]
    if not others:
        return None
    largest = max(others, key=lambda mode: mode.log_mass)
    share = 1 / (1 + np.exp(min(own.log_mass - largest.log_mass, 700.0)))
    return OtherMode(largest, float(share)) if share >= MIN_MASS_SHARE else None


def _pilot_modes(whitening: Whitening, target: Target, seed: int) -> list[tuple[Vector, Matrix]]:
    """Return modes of one shard that are far from its mode near the draws, and from each other.

    Each comes with minus the shard's Hessian there.
    """
    pilot = target.pilot
    space = pilot.model.space
    density = partial(evaluate, pilot)
    try:
        starts = search_starts(pilot, jax.random.key(seed))
    except ValueError:  # no point near the origin has a finite log density
        starts = []
    near_origin = [np.asarray(start) for start in starts]
    mirrored = [-start for start in near_origin if np.abs(start).max() > SCALES[0]]
    outward = _outward_points(whitening, target, seed)
    own, *others = [
        _labelled(whitening, mode, space)
        for mode in climb_together(
            density, [whitening.centre, *near_origin, *mirrored, *outward], space.curved
        )
    ]
    shard_sd = target.num_shards**0.5  # in posterior sds
    modes: list[tuple[Vector, Matrix]] = []

    def is_new(point: Vector) -> bool:
        known = [own, *(mode for mode, _ in modes)]
        return all(_are_apart(whitening, point, mode, shard_sd) for mode in known)

    for point in others:
        if is_new(point):
            # a search that has ended early is continued
            curvature = shard_curvature(pilot, point)
            continued = climb(density, point, space.curved, curvature)
            if is_new(reached := _labelled(whitening, continued, space)):
                modes.append((reached, curvature))
    return modes


def _precision(whitening: Whitening) -> Matrix:
    """Return the inverse of the draws' covariance."""
    white = np.asarray(whitening.whiten(whitening.centre + np.eye(len(whitening.centre))))
    return np.asarray(white @ white.T)


def _outward_points(whitening: Whitening, target: Target, seed: int) -> list[Vector]:
    """Return points on the axes at which a shard's score points away from the draws' mean."""
    centre, dim = whitening.centre, len(whitening.centre)
    sds = np.linalg.norm(whitening.root_rows, axis=1)
    steps = MIN_DISTANCE_SD * target.num_shards**0.5 * DISTANCE_RATIO ** np.arange(NUM_DISTANCES)
    num_axes = max(1, MAX_SCANNED_POINTS // (2 * NUM_DISTANCES))
    axes = np.random.default_rng(seed).permutation(dim)[:num_axes]
    offsets = np.concatenate([-steps[::-1], steps])
    points = centre + (offsets[:, None] * np.eye(dim)[axes][:, None]) * sds
    log_prior = log_priors(target.model, points.reshape(-1, dim)).reshape(len(axes), -1)
    log_prior = np.where(np.isfinite(log_prior), log_prior, -np.inf)
    is_near = log_prior >= log_prior.max(axis=1, keepdims=True) - MAX_PRIOR_FALL
    indices = np.flatnonzero(is_near)
    points = points.reshape(-1, dim)[indices]
    values, scores = evaluate(target.pilot, points)
    outward = np.sum(scores * (points - centre), axis=1) > 0
    candidates = np.flatnonzero(outward & np.isfinite(values))
    # the highest of each side of each axis
    best: dict[int, int] = {}
    for index in candidates[np.argsort(-values[candidates])]:
        best.setdefault(int(indices[index]) // NUM_DISTANCES, int(index))
    return [points[index] for index in list(best.values())[:MAX_SCAN_CLIMBS]]


def _are_apart(whitening: Whitening, first: Vector, second: Vector, sd: float = 1.0) -> bool:
    white = whitening.whiten(np.stack([first, second]))
    return bool(np.linalg.norm(white[0] - white[1]) > MIN_DISTANCE_SD * sd)


def _labelled(whitening: Whitening, point: Vector, space: Product) -> Vector:
    """Return a point whose exchangeable components, if any, are labelled as the draws' mean."""
    # Imported here, as it adds to the time of `import vcmc`.
    from scipy.optimize import linear_sum_assignment

    relabelled = point.copy()
    for indices, part in space.labelled():
        block = np.array(indices)
        reference, components = (
            np.asarray(part.components(jnp.asarray(vector[block])))
            for vector in (whitening.centre, point)
        )
        costs = np.sum((reference[:, None] - components) ** 2, axis=-1)
        order = linear_sum_assignment(costs)[1]
        relabelled[block] = part.relabel(jnp.asarray(point[block]), jnp.asarray(order))
    return relabelled


def _mode(target: Target, point: Vector) -> Mode | None:
    """Return the mode at the end of a search, or None if the point is not a maximum."""
    values, scores = target(point[None])
    curvature = matrix_from_products(
        lambda directions: -np.asarray(target.hessian_products(point, directions)), point.size
    )
    score = np.asarray(scores[0])
    if not np.isfinite(curvature).all() or np.linalg.eigvalsh(curvature)[0] <= 0:
        return None
    if score @ np.linalg.solve(curvature, score) > 2 * MAX_PROMISED_NATS:
        return None
    log_mass = float(values[0]) - 0.5 * float(np.linalg.slogdet(curvature)[1])
    return Mode(point, curvature, log_mass)
