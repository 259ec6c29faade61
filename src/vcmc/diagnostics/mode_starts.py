"""Where searches for modes start: points at which the log density rises away from a known mode.

The log density of a density with one hill falls along every ray from its top. So rays are evaluated
at some points, and those at which the score points outwards are on the slope of another hill. (A
log-concave density has none, so most runs climb nowhere.)

On one shard, which costs little: points on the axes from a few sds to as far as the prior reaches.
On all rows, as shards may be too flat to show two hills: some points of the axes, and of the rays
to points near the origin, to their mirror images, and to draws of the shards that are far apart.
"""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..density import evaluate, log_priors
from ..linalg.whitening import Whitening
from ..samplers.start import SCALES, search_starts
from ..space import Product
from ..target import Target

MIN_DISTANCE_SD = 6.0  # of the nearest point of an axis on one shard, in its sds
DISTANCE_RATIO = 1.7  # between neighbouring points of an axis: below two, so that none is missed
NUM_DISTANCES = 18  # on each side: up to 10⁴ times the first
MAX_PRIOR_FALL = 12.0  # nats below its largest value on an axis: further out, nothing is sought
MAX_SCANNED_POINTS = 2000  # on one shard
MAX_SCAN_CLIMBS = 8  # from points at which the score points away from the draws
# On all rows, in posterior sds: two hills of equal width are apart if their tops are 4 sds apart.
FULL_DISTANCES = (3.0, 6.0, 12.0, 40.0)
MAX_FULL_AXES = 6
WIDE_DISTANCES, MAX_WIDE_AXES = (4.0, 9.0), 4  # along the directions of least curvature …
NUM_RANDOM_AXES = 6  # … and others
RAY_SHARES = (0.4, 0.9)  # of the way to a point
MAX_RAYS = 10  # to draws of shards
MAX_IMAGES = 10  # of each kind, of a mode
MAX_IMAGE_FALL = 20.0  # nats below the mode

Vector = Float[np.ndarray, " dim"]
Points = Float[np.ndarray, "point dim"]


def near_origin(target: Target, seed: int) -> list[Vector]:
    """Return points near the origin, and their mirror images."""
    try:
        starts = search_starts(target.pilot, jax.random.key(seed))
    except ValueError:  # no point near the origin has a finite log density
        return []
    points = [np.asarray(start) for start in starts]
    return points + [-start for start in points if np.abs(start).max() > SCALES[0]]


def outward_on_axes(whitening: Whitening, target: Target, seed: int) -> list[Vector]:
    """Return points on the axes at which one shard's score points away from the centre."""
    centre, dim = whitening.centre, len(whitening.centre)
    sds = whitening.sds
    steps = MIN_DISTANCE_SD * target.num_shards**0.5 * DISTANCE_RATIO ** np.arange(NUM_DISTANCES)
    num_axes = max(1, MAX_SCANNED_POINTS // (2 * NUM_DISTANCES))
    axes = np.random.default_rng(seed).permutation(dim)[:num_axes]
    offsets = np.concatenate([-steps[::-1], steps])
    points = centre + (offsets[:, None] * np.eye(dim)[axes][:, None]) * sds
    indices = np.flatnonzero(_is_near(target, points))
    points = points.reshape(-1, dim)[indices]
    values, scores = evaluate(target.pilot, points)
    outward = np.flatnonzero(_is_outward(centre, points, values, scores))
    # the highest of each side of each axis
    best: dict[int, int] = {}
    for index in outward[np.argsort(-values[outward])]:
        best.setdefault(int(indices[index]) // NUM_DISTANCES, int(index))
    return [points[index] for index in list(best.values())[:MAX_SCAN_CLIMBS]]


def outward_on_rays(
    centre: Vector, whitening: Whitening, target: Target, ends: Points, seed: int
) -> Points:
    """Return the first point of every ray at which the score of all rows points away from a centre.

    The highest comes first.

    Args:
        centre: the top of a hill, or a point near it.
        whitening: coordinates in which the hill has unit width.
        target: the full-data target.
        ends: the ends of the rays that are looked at, besides the axes.
        seed: the seed of the choice of axes.
    """
    dim = len(centre)
    root = whitening.root_rows
    axes = np.random.default_rng(seed).permutation(dim)[:MAX_FULL_AXES]
    sds = whitening.sds
    widest = np.argsort(-np.linalg.norm(root / sds[:, None], axis=0))[:MAX_WIDE_AXES]
    on_axes = _two_sided(np.eye(dim)[axes] * sds, FULL_DISTANCES)
    white = np.random.default_rng((seed, 2)).normal(size=(NUM_RANDOM_AXES, dim))
    white /= np.linalg.norm(white, axis=1, keepdims=True)
    rays = [
        *_two_sided(np.concatenate([root.T[widest], white @ root.T]), WIDE_DISTANCES),
        *(np.array(RAY_SHARES)[:, None] * (end - centre) for end in ends),
    ]
    points = centre + np.concatenate([on_axes.reshape(-1, dim), *rays])
    lengths = [on_axes.shape[1]] * len(on_axes) + [len(ray) for ray in rays]
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    is_near = np.ones(len(points), bool)
    is_near[: on_axes[..., 0].size] = _is_near(target, centre + on_axes).ravel()
    points, numbers = points[is_near], numbers[is_near]
    values, scores = (np.asarray(part) for part in target(jnp.asarray(points)))
    outward = np.flatnonzero(_is_outward(centre, points, values, scores))
    first = outward[np.unique(numbers[outward], return_index=True)[1]]  # of every ray
    return points[first[np.argsort(-values[first])]]


def _two_sided(
    directions: Float[np.ndarray, "axis dim"], distances: tuple[float, ...]
) -> Float[np.ndarray, "axis point dim"]:
    """Return steps along both sides of some axes, each side an axis of its own."""
    both = np.concatenate([directions, -directions])
    return np.array(distances)[:, None] * both[:, None]


def images(point: Vector, space: Product, target: Target, height: float, seed: int) -> Points:
    """Return images of a mode that are about as high: a sign changed, or two elements swapped.

    Most posteriors with several modes have symmetries of this kind, exact or not: of signs, and of
    elements of a parameter that change places.
    """
    dim = len(point)
    generator = np.random.default_rng((seed, 1))
    flipped = [-point]
    for coordinate in generator.permutation(dim)[:MAX_IMAGES]:
        flipped.append(np.where(np.arange(dim) == coordinate, -point, point))
    pairs = [pair for name in space for pair in combinations(space.indices(name), 2)]
    for number in generator.permutation(len(pairs))[:MAX_IMAGES]:
        first, second = pairs[number]
        swapped = point.copy()
        swapped[[first, second]] = point[[second, first]]
        flipped.append(swapped)
    points = np.stack(flipped)
    return points[np.asarray(target(jnp.asarray(points))[0]) > height - MAX_IMAGE_FALL]


def distant_draws(draws: Points, whitening: Whitening, count: int = MAX_RAYS) -> Points:
    """Return draws that are far from each other: each is the farthest from those before."""
    white = np.asarray(whitening.whiten(draws))
    return draws[farthest(white, np.linalg.norm(white, axis=1), count)]


def farthest(
    points: Points, distances: Float[np.ndarray, " point"], count: int
) -> Int[np.ndarray, " chosen"]:
    """Return numbers of points, each the farthest from those before and from what is given.

    `distances` are those from what is given.
    """
    chosen: list[int] = []
    distances = distances.copy()
    for _ in range(min(count, len(points))):
        chosen.append(int(np.argmax(distances)))
        step = np.linalg.norm(points - points[chosen[-1]], axis=1)
        distances = np.minimum(distances, step)
    return np.array(chosen, dtype=int)


def _is_near(target: Target, points: Float[np.ndarray, "axis point dim"]) -> np.ndarray:
    """Return at which points of some axes the prior is not far below its largest value."""
    num_axes, count, dim = points.shape
    log_prior = log_priors(target.model, points.reshape(-1, dim)).reshape(num_axes, count)
    log_prior = np.where(np.isfinite(log_prior), log_prior, -np.inf)
    return log_prior >= log_prior.max(axis=1, keepdims=True) - MAX_PRIOR_FALL


def _is_outward(
    centre: Vector, points: Points, values: Float[np.ndarray, " point"], scores: Points
) -> np.ndarray:
    """Return at which points the score points away from a centre."""
    return (np.sum(scores * (points - centre), axis=1) > 0) & np.isfinite(values)
