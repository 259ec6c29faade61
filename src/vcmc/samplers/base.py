"""The interface of samplers: one chain on one shard, advanced block by block.

To write a sampler, subclass `AbstractSampler` and define `num_warmup`, the number of first steps to
discard; `num_chains`, the number of chains per shard; `init`, which returns the initial state of a
chain; and `advance`, which advances a state by some steps. Computations that are done once per
shard go into `setup`, whose result is passed to both. Randomness belongs to the chain: fold the
number of the step, which the state must carry, into the key, or carry generators in the state, so
that the length of blocks cannot change a draw. `vcmc.testing.check_sampler` tests the laws of
samplers, and `docs/extending.md` has an example.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._runtime import FAST_COMPILATION, compiled_per_model
from ..data.shard import Shard
from ..density import Subposterior
from ..space import Point
from .state import PackedState

State = TypeVar("State")
BLOCK = 100
"""Steps per block: after each block, progress is reported, and Ctrl-C is handled."""
MAX_FAST_BYTES = 2**18  # of a shard: compiling takes longer than sampling some ten of them


class Chain(NamedTuple):
    """Draws of one chain as points, and the sampler's statistics of each draw."""

    points: Float[np.ndarray, "draw dim"]
    stats: dict[str, np.ndarray]


class Checkpoint(NamedTuple):
    """The number of steps of a chain, and its state after them, which may be a `PackedState`."""

    step: int
    state: Any


class Block(NamedTuple):
    """Draws and statistics of up to `BLOCK` steps, and the checkpoint after them."""

    points: Float[np.ndarray, "draw dim"]
    stats: dict[str, np.ndarray]
    checkpoint: Checkpoint


class Programs(NamedTuple):
    """A function that advances a chain, compiled in two ways."""

    thorough: Callable[..., Any]
    fast: Callable[..., Any]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Programs":
        """Return the programs of a function; nothing is compiled before they are called."""
        # half the compile time, at the cost of up to a fifth more sampling time
        options: Any = {"compiler_options": FAST_COMPILATION}  # passed on to JAX
        thorough, fast = eqx.filter_jit(function), eqx.filter_jit(function, **options)
        return cls(compiled_per_model(thorough), compiled_per_model(fast))

    def for_shard(self, shard: Shard) -> Callable[..., Any]:
        """Return the program that takes less time to compile and run for a shard."""
        return self.fast if shard.num_bytes <= MAX_FAST_BYTES else self.thorough


class AbstractSampler(eqx.Module):
    """Sample one chain on one shard. The module's docstring says how to write a sampler."""

    num_warmup: eqx.AbstractVar[int]
    num_chains: eqx.AbstractVar[int]
    needs_start: ClassVar[bool] = True
    """Whether chains need a starting point."""
    takes_powers: ClassVar[bool] = True
    """Whether rows may have any weight, so that the likelihood can be raised to a power."""

    def __check_init__(self) -> None:
        self.check_count("num_warmup", 0)
        self.check_count("num_chains", 1)

    def check_count(self, name: str, least: int) -> None:
        """Refuse a setting that is not an integer of at least `least`."""
        value = getattr(self, name)
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(
                f"{type(self).__name__}: {name} must be an integer of at least {least}; "
                f"got {value!r}."
            )

    def check_share(self, name: str) -> None:
        """Refuse a setting that does not lie strictly between zero and one."""
        value = getattr(self, name)
        if not 0 < value < 1:
            raise ValueError(
                f"{type(self).__name__}: {name} must lie between 0 and 1; got {value}."
            )

    def setup(self, density: Subposterior) -> Any:
        """Return the data of a shard that chains need: by default the log density itself."""
        return density

    @abc.abstractmethod
    def init(self, setup: Any, start: Point, key: Array) -> Any:
        """Return the initial state of a chain."""

    @abc.abstractmethod
    def advance(
        self, setup: Any, state: Any, key: Array, num_steps: int
    ) -> tuple[Any, Float[Array | np.ndarray, "step dim"], dict[str, Array]]:
        """Return the state after some steps, the points visited, and statistics of each step.

        Calls do not cross a multiple of `BLOCK`.
        """

    def prepare(self, density: Subposterior, start: Point) -> None:
        """Compile `advance`, by a call of no steps, before threads need it."""
        key, setup = jax.random.key(0), self.setup(density)
        self.advance(setup, self.init(setup, start, key), key, 0)

    def blocks(
        self,
        density: Subposterior,
        start: Point,
        key: Array,
        num_draws: int,
        thin: int = 1,
        after: Checkpoint | None = None,
    ) -> Iterator[Block]:
        """Warm up, then yield every `thin`-th draw in blocks, optionally after a checkpoint.

        Raise `StateMismatch` if the state of the checkpoint was stored by another sampler.
        """
        setup = self.setup(density)
        step, state = after or (0, None)
        if state is None or isinstance(state, PackedState):
            new_state = self.init(setup, start, key)
            state = state.restore(new_state) if isinstance(state, PackedState) else new_state
        total = self.num_warmup + thin * num_draws
        while step < total:
            num_steps = min(BLOCK, total - step)
            state, points, stats = self.advance(setup, state, key, num_steps)
            draw_number = np.arange(step, step + num_steps) - self.num_warmup + 1
            is_draw = (draw_number > 0) & (draw_number % thin == 0)
            step += num_steps
            stats_of_draws = {name: np.asarray(values)[is_draw] for name, values in stats.items()}
            yield Block(np.asarray(points)[is_draw], stats_of_draws, Checkpoint(step, state))

    def run(
        self,
        density: Subposterior,
        start: Point,
        key: Array,
        num_draws: int,
        on_block: Callable[[int], None] = lambda _: None,
        thin: int = 1,
    ) -> Chain:
        """Sample a whole chain; `on_block` is called with the number of steps of each block."""
        blocks, step = [], 0
        for block in self.blocks(density, start, key, num_draws, thin):
            blocks.append(block)
            on_block(block.checkpoint.step - step)
            step = block.checkpoint.step
        return concatenate_blocks(blocks)


def concatenate_blocks(blocks: Sequence[Block | Chain]) -> Chain:
    """Concatenate the draws of consecutive blocks."""
    return Chain(
        np.concatenate([block.points for block in blocks]),
        {name: np.concatenate([block.stats[name] for block in blocks]) for name in blocks[0].stats},
    )


def strongly_typed(state: State) -> State:
    """Return a state without weakly typed leaves, for which the first block would be recompiled."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), state)


def group_by_walker(chain: Chain) -> Chain:
    """Reorder the draws of a chain of several walkers by walker; leave other chains as they are."""
    if "walker" not in chain.stats:
        return chain
    order = np.argsort(chain.stats["walker"], kind="stable")
    return Chain(chain.points[order], {name: values[order] for name, values in chain.stats.items()})
