"""One starting point for the chains of all shards: the mode of the full-data target.

A common start matters: chains that start apart can end in different modes, and averages of draws
around different modes are nonsense. A few random starts are climbed from on one shard, the best of
them is then climbed from on all.

Some densities have no highest point: that of a hierarchical model rises without end as the scale of its
groups goes to zero, where there is next to no mass. A scale (or any parameter that is not a plain real
number) that is still rising when it has gone far is put back and held, and the others climb alone.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..density import Subposterior, evaluate
from ..space import Point
from ..target import Target

NUM_STARTS = 4
NUM_TRIES = 20
MAX_CLIMB = 100  # L-BFGS steps: a start need not be the exact mode
FAR, STEEP = 5.0, 0.5  # a coordinate that moved this far and still has this slope is running away

Density = Callable[[Float[Array, "point dim"]], tuple[Array, Array]]


def common_start(target: Target, starts: list[Point]) -> Point:
    """The highest point that climbs from the given starts find on the full target."""
    pilot = target.pilot
    curved = pilot.model.space.curved
    climbed = [climb(lambda points: evaluate(pilot, points), start, curved) for start in starts]
    best = max(climbed, key=lambda point: float(target(point[None])[0][0]))
    return climb(target, best, curved)


def starts_of(pilot: Subposterior, key: Array) -> list[Point]:
    """Where to look for the mode, given one shard: what the model suggests, or random points."""
    return pilot.model.starts(pilot.shard, key) or random_starts(pilot, key)


def random_starts(pilot: Subposterior, key: Array) -> list[Point]:
    """Points of finite log density and score: zero, and random points around it."""
    scales = np.linspace(0.0, 2.0, NUM_TRIES)
    directions = jax.random.uniform(
        key, (NUM_TRIES, pilot.model.space.dim), minval=-1.0, maxval=1.0
    )
    points = scales[:, None] * np.asarray(directions)
    log_densities, scores = evaluate(pilot, jnp.asarray(points))
    finite = np.flatnonzero(np.isfinite(log_densities) & np.isfinite(scores).all(axis=1))
    if len(finite) == 0:
        raise ValueError(_nowhere_finite(pilot, jnp.asarray(points)))
    chosen = finite[np.linspace(0, len(finite) - 1, NUM_STARTS).round().astype(int)]
    return [jnp.asarray(points[index]) for index in dict.fromkeys(chosen.tolist())]


def climb(density: Density, start: Point, curved: Bool[np.ndarray, " dim"]) -> Point:
    """The top of the hill on which a point lies, with runaways held where they were."""
    held = np.zeros(start.size, bool)
    while True:
        found = _climb_with(density, start, held)
        score = np.asarray(density(jnp.asarray(np.asarray(found)[None]))[1])[0]
        runaway = (
            curved & ~held & (np.abs(np.subtract(found, start)) > FAR) & (np.abs(score) > STEEP)
        )
        if not runaway.any():
            return found
        held |= runaway


def _climb_with(density: Density, start: Point, held: Bool[np.ndarray, " dim"]) -> Point:
    import scipy.optimize  # here, not above: it adds to the time of `import vcmc`

    def negative(point: np.ndarray) -> tuple[float, np.ndarray]:
        log_densities, scores = map(np.asarray, density(jnp.asarray(point[None])))
        value, score = float(log_densities[0]), scores[0]
        if not (np.isfinite(value) and np.isfinite(score).all()):
            return np.inf, np.zeros_like(point)
        return -value, -score

    first = np.asarray(start)  # JAX would compile a program that takes its own arrays apart
    found = scipy.optimize.minimize(
        negative,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[
            (value, value) if fixed else (None, None)
            for value, fixed in zip(first, held, strict=True)
        ],
        options={"maxiter": MAX_CLIMB},
    )
    return jnp.asarray(found.x)


def _nowhere_finite(pilot: Subposterior, points: Float[Array, "point dim"]) -> str:
    """Why no start was found: which part of the log density is not finite, and in which rows."""
    params = pilot.model.space.constrain(points[0])
    log_prior = float(pilot.model.log_prior_at(points[0]))
    per_row = np.asarray(pilot.model.log_likelihood(params, pilot.shard.rows))
    bad = ~np.isfinite(per_row)
    if not np.isfinite(log_prior):
        found = f"the log prior is {log_prior}"
    elif bad.any():
        found = (
            f"the log likelihood is {per_row[bad][0]} in {bad.sum()} of {len(per_row)} rows of shard 0 "
            f"(first: its row {int(np.argmax(bad))})"
        )
    else:
        found = "its gradient is not finite"
    return (
        f"the model's log density must be finite somewhere near the origin of its real coordinates; at all "
        f"of {len(points)} points tried it is not: {found}, at the params {_brief(params)}. Check the "
        "model there, the spaces of its parameters, and the scale of its rows."
    )


def _brief(params: dict[str, jax.Array]) -> str:
    return ", ".join(f"{name}={np.round(value, 3).tolist()}"[:80] for name, value in params.items())
