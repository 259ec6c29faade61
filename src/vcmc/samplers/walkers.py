r"""Many walkers of one chain that move together.

Step number $s$ of the chain is iteration $\lfloor s / W \rfloor$ of walker $s \bmod W$. A state is
that after the last iteration that was started, whose steps may not all be done.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .base import BLOCK
from .whitening import unwhiten

State = TypeVar("State", bound=Any)
"""A named tuple with `step`, `walkers` (their `position`), `stats`, `centre` and `root`."""

Iteration = Callable[[State, Array, Array], State]
"""A function from a state, the number of an iteration and its key to the state after it."""


def initial_positions(key: Array, num_walkers: int, dim: int) -> Float[np.ndarray, "walker dim"]:
    """Draw the initial positions of walkers in whitened coordinates."""
    # in NumPy: JAX would take up to a second to compile it
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return generator.normal(size=(num_walkers, dim))


def run_walkers(
    iteration: Iteration[State],
    state: State,
    key: Array,
    num_steps: Int[Array, ""],
    stats_types: Mapping[str, type],
) -> tuple[State, Float[Array, "buffer dim"], dict[str, Array]]:
    """Run iterations of all walkers until `num_steps` steps are done.

    The buffers begin with the iteration that was started before.
    """
    count = len(state.walkers.position)
    size = count * (-(-BLOCK // count) + 1)
    first, next_iteration = state.step // count, -(-state.step // count)

    def write(state: State, offset: Array, points: Array, stats: dict[str, Array]) -> Any:
        new_points = jax.vmap(lambda white: unwhiten(white, state.centre, state.root))(
            state.walkers.position
        )
        return jax.lax.dynamic_update_slice_in_dim(points, new_points, offset, 0), {
            name: jax.lax.dynamic_update_slice_in_dim(stats[name], values, offset, 0)
            for name, values in state.stats.items()
        }

    def iterate(number: Array, carry: Any) -> Any:
        state, points, stats = carry
        state = iteration(state, number, jax.random.fold_in(key, number + 1))
        return state, *write(state, (number - first) * count, points, stats)

    points = jnp.zeros((size, state.centre.size))
    stats = {name: jnp.zeros(size, dtype) for name, dtype in stats_types.items()}
    points, stats = write(state, jnp.asarray(0), points, stats)
    end = state.step + num_steps
    carry = (state, points, stats)
    state, points, stats = jax.lax.fori_loop(next_iteration, -(-end // count), iterate, carry)
    return state._replace(step=end), points, stats


def new_steps(
    state: Any, num_walkers: int, num_steps: int, points: Array, stats: Mapping[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """Return the points and statistics of the steps that were asked for, after a state."""
    offset = int(state.step) % num_walkers
    new = slice(offset, offset + num_steps)
    # sliced in NumPy: JAX would compile a program for every length
    parts = {name: np.asarray(values)[new] for name, values in stats.items()}
    return jax.device_put(np.asarray(points)[new]), jax.device_put(parts)
