r"""Newton's method for the modes of all groups' local coordinates at once.

Groups are independent given the global parameters, so the gradient of the sum of their log
densities holds the gradient of each, and $q$ products of its Hessian with one direction for all
groups hold all $q \times q$ blocks.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._runtime import FAST_COMPILATION
from .small_matrices import apply, apply_squares, inverse_transpose, positive_cholesky

LogJoint = Callable[[Float[Array, "group dim"]], Float[Array, " group"]]
"""A function from the local coordinates of all groups to the log density of each group."""

MAX_STEPS = 60
# Squared distance to the mode, in sds, at which a group takes its last step: that leads to within
# some thousandth of an sd, and the curvature before it is the one after it to some percent.
MAX_DECREMENT = 1e-3
STEP_GROWTH = 4.0  # of a step's scale, by which that of a failed step is divided
ROUNDING = 1e-12  # relative, of a log density
MIN_GAIN_SHARE = (
    0.05  # of the gain that a step promises (Armijo's rule): without it, steps oscillate
)


class LocalNormals(NamedTuple):
    r"""The normal approximation of each group's local coordinates: a centre, and a root R.

    The covariance is $R R^\top$.
    """

    centres: Float[Array, "group dim"]
    roots: Float[Array, "group dim dim"]

    @property
    def log_dets(self) -> Float[Array, " group"]:
        """The log determinants of the roots."""
        return jnp.sum(jnp.log(jnp.diagonal(self.roots, axis1=1, axis2=2)), axis=1)

    def at(self, nodes: Array) -> Float[Array, "group dim"]:
        """Return the local coordinates of standard normal ones, one for each group or for all."""
        return self.centres + apply(self.roots, nodes)


class Derivatives(NamedTuple):
    """Values, gradients and Hessian blocks of all groups."""

    values: Float[Array, " group"]
    gradients: Float[Array, "group dim"]
    hessians: Float[Array, "group dim dim"]

    @property
    def roots(self) -> Float[Array, "group dim dim"]:
        """Roots of the inverses of minus the Hessians."""
        return inverse_transpose(positive_cholesky(-self.hessians))


def derivatives(log_joint: LogJoint, points: Float[Array, "group dim"]) -> Derivatives:
    """Return values, gradients and Hessian blocks of all groups."""

    def gradient(points: Array) -> tuple[Array, Array]:
        def total(points: Array) -> tuple[Array, Array]:
            values = log_joint(points)
            return jnp.sum(values), values

        return jax.grad(total, has_aux=True)(points)

    gradients, product, values = jax.linearize(gradient, points, has_aux=True)
    directions = [jnp.zeros_like(points).at[:, j].set(1.0) for j in range(points.shape[1])]
    hessians = jnp.stack([product(direction) for direction in directions], axis=-1)
    return Derivatives(values, gradients, hessians)


class _State(NamedTuple):
    step: Int[Array, ""]
    points: Float[Array, "group dim"]
    current: Derivatives
    scales: Float[Array, " group"]
    is_done: Bool[Array, " group"]


def local_normals(
    log_joint: LogJoint,
    start: Float[Array, "group dim"],
    max_decrement: float = MAX_DECREMENT,
    max_steps: int = MAX_STEPS,
) -> LocalNormals:
    """Return the normal approximation at the mode of each group that is found from its start."""

    def newton_steps(current: Derivatives) -> Array:
        return apply_squares(current.roots, current.gradients)

    def decrements(current: Derivatives) -> Float[Array, " group"]:
        return jnp.sum(current.gradients * newton_steps(current), axis=1)

    def is_close(current: Derivatives) -> Bool[Array, " group"]:
        # a density that is not finite here, or flat, has no mode to go to
        return ~(decrements(current) > max_decrement)

    def is_unfinished(state: _State) -> Array:
        return (state.step <= max_steps) & ~jnp.all(state.is_done)

    def advance(state: _State) -> _State:
        steps = state.scales[:, None] * newton_steps(state.current)
        gains = MIN_GAIN_SHARE * jnp.sum(state.current.gradients * steps, axis=1)
        points = jnp.where(state.is_done[:, None], state.points, state.points + steps)
        new = derivatives(log_joint, points)
        least = state.current.values + gains - ROUNDING * (1 + jnp.abs(state.current.values))
        is_better = (new.values >= least) & jnp.all(jnp.isfinite(new.gradients), axis=1)
        is_better = (is_better | (state.step == 0)) & ~state.is_done

        def chosen(better: Array, worse: Array) -> Array:
            mask = is_better.reshape(-1, *[1] * (better.ndim - 1))
            return jnp.where(mask, better, worse)

        current = jax.tree.map(chosen, new, state.current)
        scales = jnp.where(
            is_better, jnp.minimum(1.0, STEP_GROWTH * state.scales), state.scales / STEP_GROWTH
        )
        is_done = state.is_done | (is_better & is_close(current)) | (scales < ROUNDING)
        return _State(state.step + 1, chosen(points, state.points), current, scales, is_done)

    # The first step has length zero, and is accepted, whatever the density: derivatives are then
    # part of the loop alone, and compiled once.
    num_groups, dim = start.shape
    unknown = Derivatives(
        jnp.full(num_groups, -jnp.inf),
        jnp.zeros((num_groups, dim)),
        jnp.broadcast_to(-jnp.eye(dim), (num_groups, dim, dim)),
    )
    is_done = jnp.zeros(num_groups, bool)
    state = _State(jnp.zeros((), int), start, unknown, jnp.ones(num_groups), is_done)
    state = jax.lax.while_loop(is_unfinished, advance, state)
    is_near = decrements(state.current) <= max_decrement
    last_steps = jnp.where(is_near[:, None], newton_steps(state.current), 0.0)
    return LocalNormals(state.points + last_steps, state.current.roots)


def is_quadratic(log_joint: LogJoint, num_groups: int, dim: int, seed: int) -> bool:
    """Return whether the log density is quadratic in the local coordinates of all groups."""
    generator = np.random.default_rng(seed)
    hessians = jax.jit(
        lambda points: derivatives(log_joint, points).hessians, compiler_options=FAST_COMPILATION
    )
    blocks = []
    for scale in (0.1, 1.0, 3.0):
        points = scale * generator.normal(size=(num_groups, dim))
        blocks.append(np.asarray(hessians(points)))
    size = np.abs(blocks[0]).max(axis=(1, 2), keepdims=True)
    changes = [np.abs(block - blocks[0]) for block in blocks[1:]]
    with np.errstate(invalid="ignore"):
        return bool(all((change <= 1e-8 * size).all() for change in changes))
