"""Search for the modes of the posterior.

Scores at draws tell whether the draws are right where they are, but never that most of the mass
lies elsewhere. So the log density is maximized from other points: on one shard from points near the
origin, their mirror images, and points of the axes; and on all rows from what these searches
reach, from points at which the score of all rows points away from a known mode
(`mode_starts.py`), and from where short ascents end elsewhere (`mode_ascents.py`). What is found is
a start for the next round. Where rows are many, all of this is done on some of them first, and on
all only if they show a second hill, however small.

Two hills between which the log density falls by less than `MIN_VALLEY` nats, on a straight line,
are one if they are about equally wide: a bent map covers both. Modes are compared by the mass of
the Gaussians that stand for them (`mode_shape.py`).
"""

from collections.abc import Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ..density import evaluate
from ..linalg.stein import Matrix
from ..linalg.whitening import Whitening
from ..samplers.start import climb, climb_together, shard_curvature
from ..space import Product
from ..target import Target
from .mode_ascents import astray, leads_up
from .mode_shape import Mode, mode_at, step_off_pass
from .mode_starts import (
    MIN_DISTANCE_SD,
    distant_draws,
    farthest,
    images,
    near_origin,
    outward_on_axes,
    outward_on_rays,
)
from .modes import ModeSearch, OtherMode
from .row_sample import RowSample

MIN_KEPT_SHARE = 1e-3  # of a mode that is kept: its mass is estimated better later
MIN_VALLEY = 0.7  # nats between two modes: of equal normal hills, 3.3 sds apart
MAX_WIDTH_RATIO = 4.0  # of hills that are one: chains tuned to one of others do not enter the other
NUM_VALLEY_POINTS = 9  # between two modes
MAX_MODES = 40  # that are followed
MAX_CLIMBS, MAX_ROUND_CLIMBS = 96, 12  # on all rows, in all, and around each mode
SAME_SD = 0.5  # distance of two ends of searches at the same mode

Vector = Float[np.ndarray, " dim"]
Draws = Float[np.ndarray, "draw dim"]


def other_mode(draws: Draws, target: Target, seed: int) -> OtherMode | None:
    """Return a mode far from the draws that holds mass, if the search finds one."""
    return find_modes(target, Whitening.from_draws(draws), draws, seed).other


def find_modes(target: Target, whitening: Whitening, draws: Draws, seed: int) -> ModeSearch:
    """Search for modes.

    Args:
        target: the full-data target.
        whitening: a point of the posterior, from which the search begins, and its width.
        draws: draws of the posterior or of shards, some of which rays are drawn to.
        seed: the seed of the points at which searches start.
    """
    if not whitening.is_dense:
        return ModeSearch()
    with np.errstate(all="ignore"):  # points far from all mass
        sample = RowSample.of(target, whitening.centre)
        if sample and _has_one_hill(sample, whitening, draws, seed):
            return ModeSearch(centre=whitening.centre)
        return _Search(target, whitening, draws, seed).run()._replace(centre=whitening.centre)


def _has_one_hill(sample: Target, whitening: Whitening, draws: Draws, seed: int) -> bool:
    """Return whether a search on some of the rows finds a single mode, however small others are."""
    search = _Search(sample, whitening, draws, seed)
    search.run()
    return search.is_complete and not search.is_lost and len(search.modes) <= 1


class _Search:
    """A search, and the modes that it has found."""

    def __init__(self, target: Target, whitening: Whitening, draws: Draws, seed: int):
        self.target = target
        self.space = target.model.space
        self.whitening = whitening
        self.sds = whitening.sds
        self.seed = seed
        origin = near_origin(target, seed)
        self.origin = origin
        self.draws = draws
        ends = [*origin, *distant_draws(draws[np.isfinite(draws).all(axis=1)], whitening)]
        self.ends = np.stack(ends) if ends else np.empty((0, len(whitening.centre)))
        self.modes: list[Mode] = []
        self.num_climbs = 0
        self.is_complete = True
        self.is_lost = False  # whether no mode is near the centre

    def run(self) -> ModeSearch:
        """Search around the centre, and around every mode that is found."""
        centre = self.whitening.centre
        from_shard = _shard_modes(self.whitening, self.target, self.origin, self.seed)
        rays = outward_on_rays(centre, self.whitening, self.target, self.ends, self.seed)
        away = astray(self.whitening, self.target, self.draws, self.seed)
        if not from_shard and not len(rays) and not len(away):
            return ModeSearch()
        own = self._add(self._climb(centre, _precision(self.whitening)))
        if own is None:
            self.is_lost = True
            return ModeSearch()
        for point, curvature in from_shard:
            self._add(self._climb(point, self.target.num_shards * curvature))
        self._climb_from(rays)
        self._climb_from(away)
        number = 0
        while number < len(self.modes):
            self._search_around(self.modes[number])
            number += 1
        return self._result(own)

    def _search_around(self, mode: Mode) -> None:
        around = Whitening.from_curvature(mode.point, mode.curvature)
        around = Whitening(mode.point, around.root)
        rays = outward_on_rays(mode.point, around, self.target, self.ends, self.seed)
        height = float(np.asarray(self.target(jnp.asarray(mode.point[None]))[0])[0])
        similar = images(mode.point, self.space, self.target, height, self.seed)
        self._climb_from(np.concatenate([similar, rays]))

    def _climb_from(self, points: Draws) -> None:
        """Climb from some points on unknown slopes, far from each other."""
        if len(points):
            points = points[~self._is_known(points)]
        if not len(points):
            return
        white = np.asarray(self.whitening.whiten(points))
        first = np.linalg.norm(white - white[0], axis=1)  # the highest comes first
        points = points[np.unique([0, *farthest(white, first, MAX_ROUND_CLIMBS - 1)])]
        if self.num_climbs >= MAX_CLIMBS or len(self.modes) >= MAX_MODES:
            self.is_complete = False
            return
        self.num_climbs += len(points)
        curved = self.space.curved
        for end in climb_together(self.target, list(points), curved, self.sds):
            point = _labelled(self.whitening, end, self.space)
            if self._is_new(point):
                curvature = self.target.curvature(point)
                self._add(climb(self.target, point, curved, curvature, self.sds))

    def _is_known(self, points: Draws) -> np.ndarray:
        """Return which points are on the slope of a known mode."""
        return leads_up(points, np.stack([mode.point for mode in self.modes]), self.target)

    def _climb(self, point: Vector, curvature: Matrix) -> Vector:
        self.num_climbs += 1
        return climb(self.target, point, self.space.curved, curvature, self.sds)

    def _is_new(self, point: Vector) -> bool:
        return all(mode.distance(point) > SAME_SD for mode in self.modes)

    def _add(self, point: Vector, may_be_pass: bool = True) -> int | None:
        """Add the mode at the end of a search; return its number, None if it is no mode."""
        point = _labelled(self.whitening, point, self.space)
        for number, mode in enumerate(self.modes):
            if mode.distance(point) <= SAME_SD:
                return number
        top = mode_at(self.target, point, self.sds)
        if top is None:
            # a search that begins on the line between two modes may end at the pass between them
            step = step_off_pass(self.target, point, self.sds) if may_be_pass else None
            if step is None:
                return None
            starts = [point + step, point - step]
            ends = climb_together(self.target, starts, self.space.curved, self.sds)
            numbers = [self._add(end, may_be_pass=False) for end in ends]
            return next((number for number in numbers if number is not None), None)
        self.modes.append(top)
        return len(self.modes) - 1

    def _result(self, own: int) -> ModeSearch:
        groups = _hills(self.target, self.modes)
        modes = [_hill([self.modes[number] for number in group]) for group in groups]
        log_masses = np.array([mode.log_mass for mode in modes])
        own_hill = next(number for number, group in enumerate(groups) if own in group)
        is_kept = np.exp(log_masses - logsumexp(log_masses)) >= MIN_KEPT_SHARE
        is_kept[own_hill] = True
        order = [number for number in np.argsort(-log_masses) if is_kept[number]]
        kept = tuple(modes[number] for number in order)
        left_out = tuple(modes[number] for number in np.flatnonzero(~is_kept))
        if len(modes) == 1:
            return ModeSearch(is_complete=self.is_complete)
        return ModeSearch(kept, order.index(own_hill), self.is_complete, left_out)


def _hills(target: Target, modes: Sequence[Mode]) -> list[list[int]]:
    """Return groups of modes without a valley between them, that on top of each group first."""
    count = len(modes)
    heights = np.asarray(target(jnp.asarray(np.stack([mode.point for mode in modes])))[0])
    pairs = [(i, j) for i in range(count) for j in range(i)]
    group = list(range(count))
    if pairs:
        between = np.linspace(0, 1, NUM_VALLEY_POINTS + 2)[1:-1, None]
        lines = np.concatenate(
            [modes[i].point + between * (modes[j].point - modes[i].point) for i, j in pairs]
        )
        values = np.asarray(target(jnp.asarray(lines))[0]).reshape(len(pairs), -1)
        lowest = np.where(np.isfinite(values), values, -np.inf).min(axis=1)
        for (i, j), low in zip(pairs, lowest, strict=True):
            is_shallow = min(heights[i], heights[j]) - low < MIN_VALLEY
            if is_shallow and _are_alike(modes[i], modes[j]):
                group = [group[j] if number == group[i] else number for number in group]
    return [
        sorted((i for i in range(count) if group[i] == number), key=lambda i: -heights[i])
        for number in dict.fromkeys(group)
    ]


def _are_alike(first: Mode, second: Mode) -> bool:
    """Return whether two hills are about as wide as each other, in all directions."""
    root = np.linalg.inv(np.linalg.cholesky(first.curvature))
    ratios = np.linalg.eigvalsh(root @ second.curvature @ root.T)
    return bool(ratios.min() > MAX_WIDTH_RATIO**-2 and ratios.max() < MAX_WIDTH_RATIO**2)


def _hill(modes: list[Mode]) -> Mode:
    """Return one mode for those of a hill: the Gaussian has the moments of their mixture."""
    if len(modes) == 1:
        return modes[0]
    log_masses = np.array([mode.log_mass for mode in modes])
    weights = np.exp(log_masses - logsumexp(log_masses))
    points = np.stack([mode.point for mode in modes])
    steps = points - weights @ points
    covariance = sum(
        weight * np.linalg.inv(mode.curvature) for weight, mode in zip(weights, modes, strict=True)
    )
    covariance = covariance + steps.T @ (weights[:, None] * steps)
    return Mode(weights @ points, np.linalg.inv(covariance), float(logsumexp(log_masses)))


def _shard_modes(
    whitening: Whitening, target: Target, starts: list[Vector], seed: int
) -> list[tuple[Vector, Matrix]]:
    """Return modes of one shard that are far from its mode near the draws, and from each other.

    Each comes with minus the shard's Hessian there.
    """
    pilot = target.pilot
    space = pilot.model.space
    density = partial(evaluate, pilot)
    sds = target.num_shards**0.5 * whitening.sds
    starts = [whitening.centre, *starts, *outward_on_axes(whitening, target, seed)]
    own, *others = [
        _labelled(whitening, mode, space)
        for mode in climb_together(density, starts, space.curved, sds)
    ]
    modes: list[tuple[Vector, Matrix]] = []

    def is_new(point: Vector) -> bool:
        known = [own, *(mode for mode, _ in modes)]
        return all(_are_apart(whitening, point, mode, target.num_shards**0.5) for mode in known)

    for point in others:
        if is_new(point):
            # a search that has ended early is continued
            curvature = shard_curvature(pilot, point)
            continued = climb(density, point, space.curved, curvature, sds)
            if is_new(reached := _labelled(whitening, continued, space)):
                modes.append((reached, curvature))
    return modes


def _precision(whitening: Whitening) -> Matrix:
    """Return the inverse of the draws' covariance."""
    white = np.asarray(whitening.whiten(whitening.centre + np.eye(len(whitening.centre))))
    return np.asarray(white @ white.T)


def _are_apart(whitening: Whitening, first: Vector, second: Vector, sd: float) -> bool:
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
