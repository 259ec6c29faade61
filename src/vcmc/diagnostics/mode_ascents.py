"""Short ascents that tell which points are on the slope of a hill other than a known one.

The log density falls along rays to points on the slope of another hill, too: in many dimensions a
draw is off that hill's top in most directions, and nearly all of its score points back. A Newton
step with the known hill's width removes these deviations. Where a density has one hill of about
this width, one step leads to its top, whatever the point; points that are elsewhere after a few
steps are starts of searches.

Points are draws, those farthest from each other and some at random, points far out and very far out
in random directions, at distances that follow a geometric progression, and those whose score is not
that of the known hill, among many (`mode_scan.py`).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ..linalg.shrinkage import TINY
from ..linalg.whitening import Whitening
from ..target import Target
from .mode_scan import steep_points
from .mode_starts import distant_draws, farthest

NUM_DISTANT = 10  # draws far from each other
FEW, MANY = (14, 24, 12), (200, 400, 100)  # other draws, points far out, and very far out; many
MAX_MANY_BYTES = 2**17  # of few rows; local parameters, which make evaluations costly, get few
OUTSIDE_SDS = (4.0, 20.0)  # distance of the nearest and of the farthest point far out
# Of two hills of equal width, the other's slope is half of what is farther away than both, however
# far and small it is.
REMOTE_SDS = (20.0, 1000.0)
STEP_SHARES = (0.3, 0.1, 0.02, 0.003)  # of a Newton step that does not lead upwards
MAX_LENGTH = 4.0  # of a step, in Newton steps
MAX_STEPS = 3
ARRIVED_SD = 2.0  # two hills of equal width are apart if their tops are 4 sds apart
MIN_RISE = 1.0  # nats above the top: a point that high is on another hill, however near
MAX_ASTRAY, MAX_REMOTE = 40, 8  # points that are returned, and more of those from very far out
SLOPE_SHARES = np.linspace(0, 1, 10) ** 2  # of a line from a point to a known mode


Points = Float[np.ndarray, "point dim"]
State = tuple[Points, Float[np.ndarray, " point"], Points]  # points, log densities, scores


def astray(whitening: Whitening, target: Target, draws: Points, seed: int) -> Points:
    """Return where ascents end that do not lead to a hill: the highest, and others far from it.

    Args:
        whitening: the top of the hill, or a point near it, and its width.
        target: the full-data target.
        draws: draws of the posterior or of shards.
        seed: the seed of the choice of points.
    """
    generator = np.random.default_rng((seed, 3))
    draws = draws[np.isfinite(draws).all(axis=1)]
    is_small = target.shard_cache.partition.is_small(MAX_MANY_BYTES)
    is_cheap = is_small and target.model.local is None
    num_draws, num_outside, num_remote = MANY if is_cheap else FEW
    chosen = generator.permutation(len(draws))[:num_draws]
    distant = distant_draws(draws, whitening, NUM_DISTANT)
    outside = _outside(whitening, num_outside, OUTSIDE_SDS, generator)
    remote = _outside(whitening, num_remote, REMOTE_SDS, np.random.default_rng((seed, 9)))
    steep = steep_points(whitening, target, draws, seed)
    points = ascend(np.concatenate([distant, draws[chosen], outside, steep]), whitening, target)
    # where tails are not Gaussian, few steps do not lead to the top from very far out
    remote = ascend(remote, whitening, target)
    remote = remote[~leads_up(remote, whitening.centre[None], target)]
    parts = _apart(points, whitening, MAX_ASTRAY), _apart(remote, whitening, MAX_REMOTE)
    return np.concatenate(parts)


def leads_up(points: Points, tops: Points, target: Target) -> Bool[np.ndarray, " point"]:
    """Return from which points a straight line leads up to one of some tops."""
    if not len(points):
        return np.zeros(0, bool)
    steps = tops[:, None] - points[:, None, None]
    lines = points[:, None, None] + SLOPE_SHARES[:, None] * steps
    values = np.asarray(target(jnp.asarray(lines.reshape(-1, points.shape[1])))[0])
    rises = np.all(np.diff(values.reshape(lines.shape[:3]), axis=2) >= 0, axis=2)
    return np.any(rises, axis=1)


def _apart(points: Points, whitening: Whitening, count: int) -> Points:
    """Return the first point, and others far from it."""
    if len(points) <= count:
        return points
    white = np.asarray(whitening.whiten(points))
    distances = np.linalg.norm(white - white[0], axis=1)
    return points[[0, *farthest(white, distances, count - 1)]]


def ascend(points: Points, whitening: Whitening, target: Target) -> Points:
    """Return where ascents are after some steps, without those at the top; the highest first."""
    top = _evaluated(target, whitening.centre[None])[0][0]
    state = points, *_evaluated(target, points)
    is_left = np.isfinite(state[1])
    for _ in range(MAX_STEPS):
        state = _some(state, is_left)
        if not len(state[0]):
            return state[0]
        steps = np.asarray(whitening.unwhiten_directions(whitening.whiten_scores(state[2])))
        ends = state[0] + steps
        full = ends, *_evaluated(target, ends)
        is_left = ~(_has_arrived(full, whitening, top) & (full[1] >= state[1]))
        state, full = _some(state, is_left), _some(full, is_left)
        if not len(state[0]):
            return state[0]
        state = _best_on_line(state, full, steps[is_left], target)
        is_left = ~_has_arrived(state, whitening, top)
    points, values = state[0][is_left], state[1][is_left]
    return points[np.argsort(-values)]


def _some(state: State, is_left: np.ndarray) -> State:
    return state[0][is_left], state[1][is_left], state[2][is_left]


def _has_arrived(state: State, whitening: Whitening, top: float) -> np.ndarray:
    """Return which points are near the top of the known hill, and not above it."""
    points, values, _ = state
    distances = np.linalg.norm(np.asarray(whitening.whiten(points)), axis=1)
    return (distances <= ARRIVED_SD) & (values <= top + MIN_RISE)


def _best_on_line(state: State, full: State, steps: Points, target: Target) -> State:
    """Return the best of points, the ends of their Newton steps, and those of secant steps.

    The steps have the curvature at the centre. Where neither leads upwards, take a part of the
    step, or none.
    """
    points, values, scores = state
    slope, end = np.sum(scores * steps, axis=1), np.sum(full[2] * steps, axis=1)
    falls = np.maximum(slope - end, slope / MAX_LENGTH)
    lengths = np.clip(slope / np.maximum(falls, TINY), 0.0, MAX_LENGTH)
    secant = points + lengths[:, None] * steps
    best = _higher(_higher(state, full), (secant, *_evaluated(target, secant)))
    stuck = np.flatnonzero(~(best[1] > values))
    if len(stuck):
        current = points[stuck], values[stuck], scores[stuck]
        parts = np.concatenate([points[stuck] + share * steps[stuck] for share in STEP_SHARES])
        tried = parts, *_evaluated(target, parts)
        for number in range(len(STEP_SHARES)):
            part = slice(number * len(stuck), (number + 1) * len(stuck))
            current = _higher(current, (tried[0][part], tried[1][part], tried[2][part]))
        for values_of_all, new in zip(best, current, strict=True):
            values_of_all[stuck] = new
    return best


def _higher(first: State, second: State) -> State:
    """Return, point by point, the one with the higher log density."""
    better = second[1] > first[1]
    points, scores = (np.where(better[:, None], second[k], first[k]) for k in (0, 2))
    return points, np.where(better, second[1], first[1]), scores


def _evaluated(target: Target, points: Points) -> tuple[Float[np.ndarray, " point"], Points]:
    """Return log densities and scores; minus infinity and zero where one is not finite."""
    values, scores = (np.array(part) for part in target(jnp.asarray(points)))
    is_finite = np.isfinite(values) & np.isfinite(scores).all(axis=1)
    return np.where(is_finite, values, -np.inf), np.where(is_finite[:, None], scores, 0.0)


def _outside(
    whitening: Whitening, count: int, sds: tuple[float, float], generator: np.random.Generator
) -> Points:
    """Return points in random directions, from the nearest to the farthest distance."""
    white = generator.normal(size=(count, len(whitening.centre)))
    white /= np.linalg.norm(white, axis=1, keepdims=True)
    return np.asarray(whitening.unwhiten(np.geomspace(*sds, count)[:, None] * white))
