"""Search for a mode of the posterior that the draws miss, from a few starting points.

Scores at the draws tell whether the draws are right where they are, but never that most of the mass
lies elsewhere. So the log density is maximized from random points and their mirror images, first on
one shard. Only searches that end far from the mode near the draws' mean continue on all rows. Modes
are compared by Laplace's approximation: height, and curvature at the mode.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.params import to_params
from ..density import evaluate
from ..linalg.stein import matrix_from_products
from ..linalg.whitening import Whitening
from ..samplers.start import climb, search_starts
from ..space import Product
from ..target import Target

MIN_DISTANCE_SD = 6.0  # between modes: nearer ones may be a single skewed one
MIN_MASS_SHARE = 0.01  # of a mode that is reported
MAX_PROMISED_NATS = 0.1  # that a Newton step may still gain at a mode
MAX_LABEL_LENGTH = 60  # characters of a parameter's value in the message

Vector = Float[np.ndarray, " dim"]
Draws = Float[np.ndarray, "draw dim"]


class Mode(NamedTuple):
    """A local maximum, and the log of the mass around it by Laplace's approximation."""

    point: Vector
    log_mass: float


def other_mode(draws: Draws, target: Target, seed: int) -> str:
    """Return a sentence on a mode far from the draws that holds mass, or an empty string."""
    whitening = Whitening.from_draws(draws)
    if not whitening.is_dense:
        return ""
    model = target.model
    candidates = _pilot_modes(whitening, target, seed)
    if not candidates:
        return ""
    curved = model.space.curved
    own = _mode(target, climb(target, jnp.asarray(whitening.centre), curved))
    if own is None:
        return ""
    modes = [_mode(target, climb(target, jnp.asarray(point), curved)) for point in candidates]
    others = [
        mode
        for mode in modes
        if mode and _are_apart(whitening, _labelled(whitening, mode.point, model.space), own.point)
    ]
    if not others:
        return ""
    largest = max(others, key=lambda mode: mode.log_mass)
    share = 1 / (1 + np.exp(min(own.log_mass - largest.log_mass, 700.0)))
    return _message(largest, share, model.space) if share >= MIN_MASS_SHARE else ""


def _pilot_modes(whitening: Whitening, target: Target, seed: int) -> list[Vector]:
    """Return modes of one shard that are far from its mode near the draws, and from each other."""
    pilot = target.pilot
    space = pilot.model.space
    try:
        starts = search_starts(pilot, jax.random.key(seed))
    except ValueError:  # no point near the origin has a finite log density
        return []
    mirrored = [-start for start in starts if start.any()]
    own, *others = [
        _labelled(whitening, climb(lambda u: evaluate(pilot, u), start, space.curved), space)
        for start in [jnp.asarray(whitening.centre), *starts, *mirrored]
    ]
    shard_sd = target.num_shards**0.5  # in posterior sds
    modes: list[Vector] = []
    for point in others:
        if all(_are_apart(whitening, point, mode, shard_sd) for mode in [own, *modes]):
            modes.append(point)
    return modes


def _are_apart(whitening: Whitening, first: Vector, second: Vector, sd: float = 1.0) -> bool:
    white = whitening.whiten(np.stack([first, second]))
    return bool(np.linalg.norm(white[0] - white[1]) > MIN_DISTANCE_SD * sd)


def _message(mode: Mode, share: float, space: Product) -> str:
    params = to_params(space, jnp.asarray(mode.point[None]))
    values = ", ".join(
        f"{name} = {np.round(value[0], 3).tolist()}"[:MAX_LABEL_LENGTH]
        for name, value in params.items()
    )
    return (
        f"The posterior has another mode, far from the draws: it holds about {100 * share:.0f} % "
        f"of the mass of the two, near {values}. Averages of shards cannot be trusted if there are "
        "two modes: use a prior that rules one out, or run chains on all rows."
    )


def _labelled(whitening: Whitening, point: Array | Vector, space: Product) -> Vector:
    """Return a point whose exchangeable components, if any, are labelled as the draws' mean."""
    # Imported here, as it adds to the time of `import vcmc`.
    from scipy.optimize import linear_sum_assignment

    point = np.asarray(point)
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


def _mode(target: Target, point: Array) -> Mode | None:
    """Return the mode at the end of a search, or None if the point is not a maximum."""
    values, scores = target(point[None])
    curvature = matrix_from_products(
        lambda directions: -np.asarray(target.hessian_products(point, jnp.asarray(directions))),
        point.size,
    )
    score = np.asarray(scores[0])
    if not np.isfinite(curvature).all() or np.linalg.eigvalsh(curvature)[0] <= 0:
        return None
    if score @ np.linalg.solve(curvature, score) > 2 * MAX_PROMISED_NATS:
        return None
    log_mass = float(values[0]) - 0.5 * float(np.linalg.slogdet(curvature)[1])
    return Mode(np.asarray(point), log_mass)
