r"""Points on the slope of a narrow hill, among many at random: one evaluation of each tells.

Nothing points the way to a hill that is much narrower than the known one: where it is not the
higher of the two, scores are those of the known hill. In coordinates in which that hill is white,
its scores are $g = -z$, and those of any other that falls along rays from its top point back: the
*turn* $|g| + g \cdot z / |z|$, which is zero for a Gaussian, is small. On the slope of a narrow
hill scores are steep, and point anywhere. So points with the largest turn are starts of short
ascents (`mode_ascents.py`).

A hill a fifth as wide in five coordinates, with half of the mass, fills some $10^{-4}$ of the
volume around the known hill, so thousands of points are needed. As many are taken as rows of so
many bytes in all allow: of all rows, where these are few, else of one shard; none, where shards are
large, or local parameters are integrated out.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from ..density import evaluate
from ..linalg.shrinkage import TINY
from ..linalg.sobol import latin_points, sobol_points
from ..linalg.whitening import Whitening
from ..samplers.start import climb
from ..target import Target

MAX_POINTS, MIN_POINTS = 2**14, 2**9  # on all rows, where there are any
MIN_SHARD_POINTS = 2**8
MIN_SOBOL_POINTS = 2**10  # fewer are evaluated sooner than the Sobol points of SciPy are imported
MAX_EVALUATED_BYTES = 2**28  # of rows, over all points: 0.1 s of a core
DRAWS_SHARE = 0.25  # of the points: draws, which are those of shards before they are combined
WIDTHS = (1.5, 3.0)  # of the known hill, of the normals that other points are drawn from
MAX_BATCH = 2**11  # points that are evaluated at once
MIN_TURN = 2.0
MAX_STEEP = 48  # points that are returned

Points = Float[np.ndarray, "point dim"]
Density = Callable[[Points], tuple[Any, Any]]  # to log densities and scores


def steep_points(whitening: Whitening, target: Target, draws: Points, seed: int) -> Points:
    """Return the points with the largest turns, and others whose turn is large.

    Args:
        whitening: the top of the known hill, or a point near it, and its width.
        target: the full-data target.
        draws: draws of the posterior or of shards.
        seed: the seed of the choice of points.
    """
    count, count_on_shard = num_points(target)
    generator = np.random.default_rng((seed, 4))
    if count:
        points = _points(whitening, draws, count, generator)
        turns = _turns(points, whitening, lambda batch: target(jnp.asarray(batch)))
        return _steepest(points, turns, generator)
    if not count_on_shard:
        return draws[:0]
    points = _points(whitening, draws, count_on_shard, generator)
    pilot = partial(evaluate, target.pilot)
    precision = np.asarray(whitening.whiten(whitening.centre + np.eye(points.shape[1])))
    curvature = precision @ precision.T / target.num_shards
    sds = target.num_shards**0.5 * whitening.sds
    top = climb(pilot, whitening.centre, target.model.space.curved, curvature, sds)
    turns = _turns(points, Whitening(top, whitening.root), pilot)
    return _steepest(points, target.num_shards**0.5 * turns, generator)


def num_points(target: Target) -> tuple[int, int]:
    """Return how many points the size of the rows allows: on all rows, or else on a shard."""
    if target.model.local is not None:
        return 0, 0
    partition, count = target.shard_cache.partition, MAX_POINTS
    while count >= MIN_POINTS:
        if partition.is_small(MAX_EVALUATED_BYTES // count):
            return count, 0
        count //= 2
    count = min(MAX_POINTS, MAX_EVALUATED_BYTES // max(target.pilot.shard.num_bytes, 1))
    return 0, count if count >= MIN_SHARD_POINTS else 0


def _points(
    whitening: Whitening, draws: Points, count: int, generator: np.random.Generator
) -> Points:
    """Return draws, and evenly spaced points of normals wider than the known hill."""
    chosen = generator.permutation(len(draws))[: int(DRAWS_SHARE * count)]
    even_points = sobol_points if count >= MIN_SOBOL_POINTS else latin_points
    levels = even_points(count - len(chosen), draws.shape[1] + 1, generator)
    widths = WIDTHS[0] * (WIDTHS[1] / WIDTHS[0]) ** levels[:, :1]
    white = widths * ndtri(levels[:, 1:])
    return np.concatenate([draws[chosen], np.asarray(whitening.unwhiten(white))])


def _steepest(
    points: Points, turns: Float[np.ndarray, " point"], generator: np.random.Generator
) -> Points:
    """Return points with large turns: half of them the largest, half at random."""
    order = np.argsort(-turns)
    order = order[turns[order] > MIN_TURN]
    largest, rest = order[: MAX_STEEP // 2], order[MAX_STEEP // 2 :]
    return points[[*largest, *generator.permutation(rest)[: MAX_STEEP // 2]]]


def _turns(points: Points, whitening: Whitening, density: Density) -> Float[np.ndarray, " point"]:
    """Return the turn of the score at every point; minus infinity where it is not finite."""
    batches = np.split(points, range(MAX_BATCH, len(points), MAX_BATCH))
    parts = zip(*(density(batch) for batch in batches), strict=True)
    values, scores = (np.concatenate([np.asarray(part) for part in of_all]) for of_all in parts)
    white = np.asarray(whitening.whiten(points))
    slopes = np.asarray(whitening.whiten_scores(scores))
    steepness = np.linalg.norm(slopes, axis=1)
    outward = np.sum(slopes * white, axis=1) / np.maximum(np.linalg.norm(white, axis=1), TINY)
    turns = steepness + outward
    return np.where(np.isfinite(values) & np.isfinite(turns), turns, -np.inf)
