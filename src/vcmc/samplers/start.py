"""Find one starting point for the chains of all shards: the mode of the full-data target.

A common start matters: chains with different starts can end in different modes, and averages of
draws around different modes are meaningless. The log density of one shard is maximized from a few
starts, and that of all shards from the best of the results.

Some densities are unbounded: that of a hierarchical model grows without limit as the scale of its
groups goes to zero, where there is hardly any mass. A coordinate of a constrained parameter that
has moved far and still has a steep slope is reset and fixed, and the others are maximized alone.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..density import Subposterior, evaluate
from ..space import Point
from ..target import Target

NUM_STARTS = 4  # starts of the search on one shard, if the model suggests none
NUM_CANDIDATES = 20  # points among which they are chosen
MAX_LBFGS_STEPS = 100  # a start need not be the exact mode
# A coordinate that has moved by MAX_MOVE, with a slope above MAX_SLOPE, diverges.
MAX_MOVE, MAX_SLOPE = 5.0, 0.5

Density = Callable[[Float[Array, "point dim"]], tuple[Array, Array]]


def common_start(target: Target, starts: list[Point]) -> Point:
    """Return the mode of the full target that the search from given starts finds."""
    pilot = target.pilot
    curved = pilot.model.space.curved
    modes = [climb(lambda points: evaluate(pilot, points), start, curved) for start in starts]
    best = max(modes, key=lambda point: float(target(point[None])[0][0]))
    return climb(target, best, curved)


def search_starts(pilot: Subposterior, key: Array) -> list[Point]:
    """Return the starts of the search: those that the model suggests, or random points."""
    return pilot.model.starts(pilot.shard, key) or random_starts(pilot, key)


def random_starts(pilot: Subposterior, key: Array) -> list[Point]:
    """Return points of finite log density and score: zero, and random points around it."""
    scales = np.linspace(0.0, 2.0, NUM_CANDIDATES)
    directions = jax.random.uniform(
        key, (NUM_CANDIDATES, pilot.model.space.dim), minval=-1.0, maxval=1.0
    )
    points = scales[:, None] * np.asarray(directions)
    log_densities, scores = evaluate(pilot, jnp.asarray(points))
    finite = np.flatnonzero(np.isfinite(log_densities) & np.isfinite(scores).all(axis=1))
    if len(finite) == 0:
        raise ValueError(_nowhere_finite(pilot, jnp.asarray(points)))
    chosen = finite[np.linspace(0, len(finite) - 1, NUM_STARTS).round().astype(int)]
    return [jnp.asarray(points[index]) for index in dict.fromkeys(chosen.tolist())]


def climb(density: Density, start: Point, curved: Bool[np.ndarray, " dim"]) -> Point:
    """Return a local maximum near a point, with diverging coordinates fixed at their start."""
    fixed = np.zeros(start.size, bool)
    while True:
        mode = _maximize(density, start, fixed)
        score = np.asarray(density(jnp.asarray(np.asarray(mode)[None]))[1])[0]
        moves = np.abs(np.subtract(mode, start))
        diverging = curved & ~fixed & (moves > MAX_MOVE) & (np.abs(score) > MAX_SLOPE)
        if not diverging.any():
            return mode
        fixed |= diverging


def _maximize(density: Density, start: Point, fixed: Bool[np.ndarray, " dim"]) -> Point:
    import scipy.optimize  # here: it adds to the time of `import vcmc`

    def negative_log_density(point: np.ndarray) -> tuple[float, np.ndarray]:
        log_densities, scores = map(np.asarray, density(jnp.asarray(point[None])))
        value, score = float(log_densities[0]), scores[0]
        if not (np.isfinite(value) and np.isfinite(score).all()):
            return np.inf, np.zeros_like(point)
        return -value, -score

    first = np.asarray(start)  # iterating over a JAX array would compile a program
    result = scipy.optimize.minimize(
        negative_log_density,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[
            (value, value) if is_fixed else (None, None)
            for value, is_fixed in zip(first, fixed, strict=True)
        ],
        options={"maxiter": MAX_LBFGS_STEPS},
    )
    return jnp.asarray(result.x)


def _nowhere_finite(pilot: Subposterior, points: Float[Array, "point dim"]) -> str:
    """Return the message that says which part of the log density is not finite, in which rows."""
    params = pilot.model.space.constrain(points[0])
    log_prior = float(pilot.model.log_prior_at(points[0]))
    per_row = np.asarray(pilot.model.log_likelihood(params, pilot.shard.rows))
    bad = ~np.isfinite(per_row)
    if not np.isfinite(log_prior):
        cause = f"the log prior is {log_prior}"
    elif bad.any():
        cause = (
            f"the log likelihood is {per_row[bad][0]} in {bad.sum()} of {len(per_row)} rows of "
            f"shard 0 (first: its row {int(np.argmax(bad))})"
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
