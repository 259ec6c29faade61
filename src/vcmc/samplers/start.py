"""Find one starting point for the chains of all shards: the mode of the full-data target.

A common start matters: chains with different starts can end in different modes, and averages of
draws around different modes are meaningless. The log density of one shard is maximized from a few
starts, and that of all shards from the best of the results. There the shard's curvature, times the
number of shards, is close to that of all: Newton's steps need few passes over all rows.

Some densities are unbounded: that of a hierarchical model grows without limit as the scale of its
groups goes to zero, where there is hardly any mass. A coordinate of a constrained parameter that
has moved far and still has a steep slope is reset and fixed, and the others are maximized alone.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..density import Subposterior, evaluate, hessian_products
from ..space import Point
from ..target import Target
from .lockstep import Density, search_together

NUM_STARTS = 4  # starts of the search on one shard, if the model suggests none
NUM_CANDIDATES = 20  # points among which they are chosen
# Of their coordinates. At zero itself, log densities written with |x| or max(x, 0), as NumPyro's of
# a logistic regression, have wrong derivatives: no step leads upwards.
SCALES = (1e-3, 2.0)
MAX_LBFGS_STEPS = 100  # a start need not be the exact mode
MAX_NEWTON_DIM = 500  # coordinates; the curvature costs one gradient of a shard for each
MAX_NEWTON_STEPS = 20  # on all shards; with the curvature of one shard, three to six are usual
MAX_DECREMENT_SD = 1e-3  # posterior sds between the end of the search and the mode
STEP_SCALES = (1.0, 0.3, 0.1, 0.01)  # of a step that does not lead upwards
MIN_GAIN_SHARE = 0.1  # of the gain that a step promises (Armijo's rule)
ROUNDING = 1e-13  # relative, of a log density
# With local parameters integrated out, scores are those of the exact integral at the nodes: the
# mode of the log density is not quite where the score is zero. A step that lowers the log density
# by less than this many nats is taken if it lowers the decrement by this factor.
MAX_FALL, MIN_DECREASE = 0.01, 4.0
MIN_RELATIVE_CURVATURE = 1e-12  # least to largest: less is rounding
MIN_DISTANCE_SD = 0.1  # of a shard, between its modes that are compared on all rows
# A coordinate that has moved by MAX_MOVE, with a slope above MAX_SLOPE, diverges.
MAX_MOVE, MAX_SLOPE = 5.0, 0.5

Vector = Float[np.ndarray, " dim"]


def common_start(target: Target, starts: list[Point]) -> Point:
    """Return the mode of the full target that the search from given starts finds."""
    pilot = target.pilot
    curved = pilot.model.space.curved
    modes = climb_together(partial(evaluate, pilot), starts, curved)
    best, curvature = modes[0], shard_curvature(pilot, modes[0])
    if len(candidates := _distinct(modes, curvature)) > 1:
        best = max(candidates, key=lambda point: float(target(point[None])[0][0]))
    if best is not modes[0]:
        curvature = shard_curvature(pilot, best)
    return jax.device_put(climb(target, best, curved, target.num_shards * curvature))


def shard_curvature(pilot: Subposterior, point: Vector) -> Float[np.ndarray, "dim dim"]:
    """Return minus a shard's Hessian; that of many coordinates, which is too large, is NaN."""
    dim = len(point)
    if dim > MAX_NEWTON_DIM:
        return np.full((1, 1), np.nan)
    return -hessian_products(pilot, point, np.eye(dim))


def _distinct(modes: list[Vector], curvature: Float[np.ndarray, "..."]) -> list[Vector]:
    """Return the modes that are apart, all of them if the curvature is not known."""
    if not np.isfinite(curvature).all():
        return modes
    distinct = modes[:1]
    for mode in modes[1:]:
        steps = [mode - other for other in distinct]
        if all(abs(step @ curvature @ step) > MIN_DISTANCE_SD**2 for step in steps):
            distinct.append(mode)
    return distinct


def search_starts(pilot: Subposterior, key: Array) -> list[Point]:
    """Return the starts of the search: those that the model suggests, or random points."""
    return pilot.model.starts(pilot.shard, key) or random_starts(pilot, key)


def random_starts(pilot: Subposterior, key: Array) -> list[Point]:
    """Return points of finite log density and score: one close to zero, and others around it."""
    # in NumPy: JAX would compile programs
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    scales = np.linspace(*SCALES, NUM_CANDIDATES)
    points = scales[:, None] * generator.uniform(-1, 1, (NUM_CANDIDATES, pilot.model.space.dim))
    log_densities, scores = evaluate(pilot, points)
    finite = np.flatnonzero(np.isfinite(log_densities) & np.isfinite(scores).all(axis=1))
    if len(finite) == 0:
        raise ValueError(_nowhere_finite(pilot, jnp.asarray(points)))
    chosen = finite[np.linspace(0, len(finite) - 1, NUM_STARTS).round().astype(int)]
    return [jax.device_put(points[index]) for index in dict.fromkeys(chosen.tolist())]


def climb_together(
    density: Density,
    starts: Sequence[Point | Vector],
    curved: Bool[np.ndarray, " dim"],
    units: Vector | None = None,
) -> list[Vector]:
    """Return a local maximum near each start; the searches share evaluations."""

    def search(shared: Density, start: Point | Vector) -> Vector:
        return climb(shared, start, curved, units=units)

    return search_together(density, search, starts)


def climb(
    density: Density,
    start: Point | Vector,
    curved: Bool[np.ndarray, " dim"],
    curvature: Float[np.ndarray, "..."] | None = None,
    units: Vector | None = None,
) -> Vector:
    """Return a local maximum near a point, with diverging coordinates fixed at their start.

    If the curvature is known approximately, it is found in few evaluations. Without, it helps to
    know the sds of coordinates, in whose units L-BFGS takes its steps.
    """
    first = np.asarray(start)  # iterating over a JAX array would compile a program
    fixed = np.zeros(first.size, bool)
    while True:
        reached = _newton(density, first, fixed, curvature) if curvature is not None else None
        mode, score = reached or _maximize(density, first, fixed, units)
        diverging = curved & ~fixed & (np.abs(mode - first) > MAX_MOVE)
        diverging &= np.abs(score) > MAX_SLOPE
        if not diverging.any():
            return mode
        fixed |= diverging


def _newton(
    density: Density,
    start: Vector,
    fixed: Bool[np.ndarray, " dim"],
    curvature: Float[np.ndarray, "..."],
) -> tuple[Vector, Vector] | None:
    """Return a maximum and its score, by Newton's steps with a curvature that is updated (BFGS).

    Return None if a step does not lead upwards, or if there are too many.
    """
    inverse = _free_inverse(curvature, ~fixed)
    if inverse is None:
        return None
    point, (value, score) = start, _value_and_score(density, start)
    for _ in range(MAX_NEWTON_STEPS):
        step = inverse @ score
        gain = float(step @ score)
        if not np.isfinite(gain) or gain < 0:
            return None
        if gain < MAX_DECREMENT_SD**2:
            return point, score
        for scale in STEP_SCALES:
            new_value, new_score = _value_and_score(density, point + scale * step)
            if new_value >= value + MIN_GAIN_SHARE * scale * gain - ROUNDING * abs(value):
                break
            is_closer = new_score @ inverse @ new_score < gain / MIN_DECREASE
            if is_closer and new_value > value - MAX_FALL:
                break
        else:
            return None
        step = scale * step
        inverse = _updated(inverse, step, np.where(fixed, 0.0, score - new_score))
        point, value, score = point + step, new_value, new_score
    return None


def _free_inverse(
    curvature: Float[np.ndarray, "..."], free: Bool[np.ndarray, " dim"]
) -> Float[np.ndarray, "dim dim"] | None:
    """Return the inverse of a curvature over free coordinates; None unless it is positive."""
    if len(curvature) != len(free) or not np.isfinite(curvature).all() or not free.any():
        return None
    part = (curvature + curvature.T)[np.ix_(free, free)] / 2
    if not (np.diag(part) > 0).all():
        return None
    sds = 1 / np.sqrt(np.diag(part))  # coordinates may differ in scale by any factor
    values, vectors = np.linalg.eigh(part * np.outer(sds, sds))
    if values[0] <= MIN_RELATIVE_CURVATURE * values[-1]:
        return None
    inverse = np.zeros(curvature.shape)
    inverse[np.ix_(free, free)] = (vectors / values) @ vectors.T * np.outer(sds, sds)
    return inverse


def _updated(
    inverse: Float[np.ndarray, "dim dim"], step: Vector, fall: Vector
) -> Float[np.ndarray, "dim dim"]:
    """Update an inverse curvature by the fall of the score along a step."""
    curvature = float(step @ fall)
    if curvature <= 0:
        return inverse
    projection = np.eye(len(step)) - np.outer(step, fall) / curvature
    return projection @ inverse @ projection.T + np.outer(step, step) / curvature


def _value_and_score(density: Density, point: Vector) -> tuple[float, Vector]:
    """Return log density and score; minus infinity where they are not finite."""
    log_densities, scores = map(np.asarray, density(point[None]))
    value, score = float(log_densities[0]), scores[0]
    if not (np.isfinite(value) and np.isfinite(score).all()):
        return -np.inf, np.zeros_like(point)
    return value, score


def _maximize(
    density: Density, start: Vector, fixed: Bool[np.ndarray, " dim"], units: Vector | None
) -> tuple[Vector, Vector]:
    """Return a maximum and its score, by L-BFGS."""
    import scipy.optimize  # here: it adds to the time of `import vcmc`

    scales = np.ones(len(start)) if units is None else units

    def negative_log_density(scaled: Vector) -> tuple[float, Vector]:
        value, score = _value_and_score(density, scaled * scales)
        return -value, -score * scales

    result = scipy.optimize.minimize(
        negative_log_density,
        start / scales,
        jac=True,
        method="L-BFGS-B",
        bounds=[
            (value, value) if is_fixed else (None, None)
            for value, is_fixed in zip(start / scales, fixed, strict=True)
        ],
        options={"maxiter": MAX_LBFGS_STEPS},
    )
    return np.where(fixed, start, result.x * scales), -result.jac / scales


def _nowhere_finite(pilot: Subposterior, points: Float[Array, "point dim"]) -> str:
    """Return the message that says which part of the log density is not finite, in which rows."""
    model, shard = pilot.model, pilot.shard
    params = model.space.constrain(points[0])
    log_prior = float(model.log_prior_at(points[0]))
    unit = "rows" if model.local is None else "groups"
    per_row = np.asarray(
        model.log_likelihood(params, shard.rows)
        if model.local is None
        else model.local.log_marginals(params, shard)[0]
    )
    bad = ~np.isfinite(per_row)
    if not np.isfinite(log_prior):
        cause = f"the log prior is {log_prior}"
    elif bad.any():
        cause = (
            f"the log likelihood is {per_row[bad][0]} in {bad.sum()} of {len(per_row)} {unit} of "
            f"shard 0 (first: its {unit[:-1]} {int(np.argmax(bad))})"
        )
    else:
        cause = "its gradient is not finite"
    return (
        "the model's log density must be finite somewhere near the origin of its real coordinates; "
        f"at all of {len(points)} points tried it is not: {cause}, at the params {_brief(params)}. "
        "Check the model there, the spaces of its parameters, and the scale of its rows."
    )


def _brief(params: dict[str, jax.Array]) -> str:
    return ", ".join(f"{name}={np.round(value, 3).tolist()}"[:80] for name, value in params.items())
