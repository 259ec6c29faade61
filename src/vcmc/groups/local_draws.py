r"""Draw the local parameters of groups, given draws of the global ones.

For every draw of the global parameters, and every group, some proposals from the normal
approximation of the group's local coordinates are weighted by the exact density, and one is chosen
at random with these weights (sampling importance resampling). This happens where the rows are.

The modes of local coordinates follow the global ones, $\hat v(\phi) \approx \hat v(\bar\phi) +
J (\phi - \bar\phi)$ with $J = -H_{vv}^{-1} H_{v\phi}$, so that a Newton step or two from there
suffice.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._runtime import compiled_per_model
from ..data.shard import Shard
from ..space import Params, Point, Product
from .local_model import LocalModel, groups_of
from .local_modes import local_normals
from .small_matrices import apply_squares

NUM_PROPOSALS = 12  # of which one is chosen
# Proposals need not be centred at the mode: weights correct what is left.
MAX_DECREMENT = 1e-2
MAX_STEPS = 20
BATCH_SIZE = 8  # draws that are evaluated together


class LocalDraws(NamedTuple):
    """Local draws of a shard's groups.

    Attributes:
        params: local params and derived local quantities by name, (draw, group, …).
        efficiency: for each group, the effective share of its proposals, averaged over draws.
    """

    params: dict[str, np.ndarray]
    efficiency: Float[np.ndarray, " group"]


def draw_locals(
    space: Product,
    local: LocalModel,
    shard: Shard,
    points: Float[np.ndarray, "draw dim"],
    key: Array,
) -> LocalDraws:
    """Draw the local parameters of a shard's groups, one value for each draw of a point.

    Padding among the groups is left out.
    """
    modes = _modes_near(space, local, shard, jnp.asarray(points.mean(axis=0)))
    num_groups = groups_of(shard).num_groups
    parts: list[dict[str, np.ndarray]] = []
    total = np.zeros(num_groups)
    for first in range(0, len(points), BATCH_SIZE):
        batch = points[first : first + BATCH_SIZE]
        padded = np.concatenate([batch, np.repeat(batch[-1:], BATCH_SIZE - len(batch), axis=0)])
        numbers = first + np.arange(BATCH_SIZE)
        values, efficiency = _draw_batch(
            space, local, shard, modes, jnp.asarray(padded), key, jnp.asarray(numbers)
        )
        parts.append(
            {name: np.asarray(value)[: len(batch), :num_groups] for name, value in values.items()}
        )
        total += np.asarray(efficiency)[: len(batch), :num_groups].sum(axis=0)
    params = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return LocalDraws(params, total / len(points))


class ModesNear(NamedTuple):
    """The modes of local coordinates near a point, to first order.

    Attributes:
        point: the point.
        centres: the modes there.
        slopes: their derivatives with respect to the point.
    """

    point: Point
    centres: Float[Array, "group local"]
    slopes: Float[Array, "group local dim"]

    def at(self, point: Point) -> Float[Array, "group local"]:
        """Return the modes at another point."""
        return self.centres + self.slopes @ (point - self.point)


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1))
def _modes_near(space: Product, local: LocalModel, shard: Shard, point: Point) -> ModesNear:
    normals = local.normals(space.constrain(point), shard)

    def gradient(point: Point) -> Float[Array, "group local"]:
        log_joint = local.log_joint(space.constrain(point), shard)
        return jax.grad(lambda centres: jnp.sum(log_joint(centres)))(normals.centres)

    def slope(direction: Point) -> Float[Array, "group local"]:
        change = jax.jvp(gradient, (point,), (direction,))[1]
        return apply_squares(normals.roots, change)

    slopes = jax.lax.map(slope, jnp.eye(space.dim))
    return ModesNear(point, normals.centres, jnp.moveaxis(slopes, 0, -1))


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1))
def _draw_batch(
    space: Product,
    local: LocalModel,
    shard: Shard,
    modes: ModesNear,
    points: Float[Array, "draw dim"],
    key: Array,
    numbers: Array,
) -> tuple[dict[str, Array], Float[Array, "draw group"]]:
    first_rows = groups_of(shard).first_rows(shard.rows)

    def draw(point: Point, number: Array) -> tuple[dict[str, Array], Array]:
        params = space.constrain(point)
        draw_key = jax.random.fold_in(key, number)
        chosen, efficiency = _resample(params, local, shard, modes.at(point), draw_key)
        values = local.constrain(chosen)
        if local.derived is not None:
            values |= dict(local.derived(params, values, first_rows))
        return values, efficiency

    return jax.lax.map(lambda pair: draw(*pair), (points, numbers))


def _resample(
    params: Params,
    local: LocalModel,
    shard: Shard,
    start: Float[Array, "group dim"],
    key: Array,
) -> tuple[Float[Array, "group dim"], Float[Array, " group"]]:
    """Return one of the proposals for each group, and the effective share of proposals."""
    log_joint = local.log_joint(params, shard)
    normals = local_normals(log_joint, start, MAX_DECREMENT, MAX_STEPS)
    proposal_key, choice_key = jax.random.split(key)
    noise = jax.random.normal(proposal_key, (NUM_PROPOSALS, *start.shape))

    def weigh(noise: Float[Array, "group dim"]) -> Float[Array, " group"]:
        return log_joint(normals.at(noise)) + 0.5 * jnp.sum(noise**2, axis=1)

    log_weights = jax.lax.map(weigh, noise)
    log_weights = jnp.where(jnp.isfinite(log_weights), log_weights, -jnp.inf)
    gumbel = jax.random.gumbel(choice_key, log_weights.shape)
    index = jnp.argmax(log_weights + gumbel, axis=0)
    chosen = jnp.take_along_axis(noise, index[None, :, None], axis=0)[0]
    weights = jnp.exp(log_weights - log_weights.max(axis=0))
    efficiency = weights.sum(axis=0) ** 2 / jnp.sum(weights**2, axis=0) / NUM_PROPOSALS
    return normals.at(chosen), efficiency


STATISTICS = ("mean", "sd", "q05", "q50", "q95")


def summarize_locals(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return mean, sd and quantiles over draws, stacked along a first axis."""
    return {
        name: np.concatenate(
            [
                value.mean(axis=0, keepdims=True),
                value.std(axis=0, keepdims=True),
                np.quantile(value, [0.05, 0.5, 0.95], axis=0),
            ]
        )
        for name, value in params.items()
    }
