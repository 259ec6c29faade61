"""Whether the posterior has a mode elsewhere that draws know nothing of, as far as a few climbs can tell.

Scores at the draws say whether they are right where they are, and never that most of the mass lies somewhere else. So the target is
climbed from random points and their mirror images, first on one shard. Only climbs that end far from where one from the draws' mean
ends go on to all rows. Two hills are compared by Laplace's approximation: height, and curvature at the top.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.params import to_params
from ..density import evaluate
from ..linalg.stein import symmetric
from ..linalg.whitening import Whitening
from ..samplers.start import climb, starts_of
from ..space import Product
from ..target import Target

FAR = 6.0  # sds between tops, one shard's or the posterior's: nearer ones may be one skewed hill
SHARE = 0.01  # of the mass: a mode with less need not be told of
LEVEL = 0.1  # nats that a Newton step may still promise at a top

Vector = Float[np.ndarray, " dim"]
Draws = Float[np.ndarray, "draw dim"]


class QuadraticControl(NamedTuple):
    """A top, and the log of the mass around it."""

    top: Vector
    log_mass: float


def other_mode(draws: Draws, target: Target, seed: int) -> str:
    """What there is to say of a mode that is far from the draws and holds mass; nothing if none is found."""
    pilot = target.pilot
    model, key = pilot.model, jax.random.key(seed)
    frame = Whitening.from_draws(draws)
    if not frame.is_dense:
        return ""
    try:
        starts = starts_of(pilot, key)
    except ValueError:  # no point near the origin has a finite log density
        return ""
    curved = model.space.curved

    def labelled(top: Array | Vector) -> Vector:
        return _with_labels_of(frame.centre, np.asarray(top), model.space)

    def apart(one: Vector, other: Vector, scale: float) -> bool:
        between = frame.whiten(np.stack([one, other]))
        return bool(np.linalg.norm(between[0] - between[1]) > FAR * scale)

    every = [jnp.asarray(frame.centre), *starts, *(-start for start in starts if start.any())]
    home, *tops = [labelled(climb(lambda u: evaluate(pilot, u), start, curved)) for start in every]
    wide = target.num_shards**0.5  # sds of one shard, in those of the posterior
    elsewhere: list[Vector] = []
    for top in tops:
        if all(apart(top, known, wide) for known in [home, *elsewhere]):
            elsewhere.append(top)
    if not elsewhere:
        return ""
    here = _hill(target, climb(target, jnp.asarray(frame.centre), curved))
    found = [_hill(target, climb(target, jnp.asarray(top), curved)) for top in elsewhere]
    others = [hill for hill in found if hill and here and apart(labelled(hill.top), here.top, 1.0)]
    if here is None or not others:
        return ""
    most = max(others, key=lambda hill: hill.log_mass)
    share = 1 / (1 + np.exp(min(here.log_mass - most.log_mass, 700.0)))
    if share < SHARE:
        return ""
    params = to_params(model.space, jnp.asarray(most.top[None]))
    where = ", ".join(
        f"{name} = {np.round(values[0], 3).tolist()}"[:60] for name, values in params.items()
    )
    return (
        f"The posterior has another mode, far from the draws: it holds about {100 * share:.0f} % of the mass of the two, near "
        f"{where}. Where there are two modes, averages of shards cannot be trusted: tell the modes apart by the prior, or run "
        "chains on all rows."
    )


def _with_labels_of(like: Vector, point: Vector, space: Product) -> Vector:
    """A point whose exchangeable components, if there are any, are labelled as those of another."""
    from scipy.optimize import (
        linear_sum_assignment,  # here, not above: it adds to the time of `import vcmc`
    )

    found = point.copy()
    for indices, part in space.labelled():
        block = np.array(indices)
        ours, others = (
            np.asarray(part.components(jnp.asarray(each[block]))) for each in (like, point)
        )
        order = linear_sum_assignment(np.sum((ours[:, None] - others) ** 2, axis=-1))[1]
        found[block] = part.relabel(jnp.asarray(point[block]), jnp.asarray(order))
    return found


def _hill(target: Target, top: Array) -> QuadraticControl | None:
    """The hill whose top a climb found; nothing if it is none."""
    values, scores = target(top[None])
    curvature = symmetric(
        lambda directions: -np.asarray(target.hessian_products(top, jnp.asarray(directions))),
        top.size,
    )
    slope = np.asarray(scores[0])
    if not np.isfinite(curvature).all() or np.linalg.eigvalsh(curvature)[0] <= 0:
        return None
    if slope @ np.linalg.solve(curvature, slope) > 2 * LEVEL:
        return None
    return QuadraticControl(
        np.asarray(top), float(values[0]) - 0.5 * float(np.linalg.slogdet(curvature)[1])
    )
