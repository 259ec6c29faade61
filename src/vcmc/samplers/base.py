"""What a sampler is: one chain on one shard, advanced block by block.

To write one, subclass `AbstractSampler` and give it four things: `num_warmup`, the number of first
steps to throw away; `num_chains`, the number of chains in every shard; `init`, the state that a chain starts from; and `advance`, which takes a state
some steps further. What is worth computing once for a shard goes into `setup`, whose result both
of them get. Randomness belongs to the chain: fold the step's number, which the state must carry, into
the key, or carry generators in the state, so that the length of blocks cannot change a draw.
`vcmc.testing.check_sampler` has the laws that it must keep, and `docs/extending.md` an example.
"""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..density import Subposterior
from ..space import Point

State = TypeVar("State")
BLOCK = 100
"""Steps between two looks at the clock, the progress bar and Ctrl-C."""


class Chain(NamedTuple):
    """Draws of one chain as points, and what the sampler reports of each draw."""

    points: Float[np.ndarray, "draw dim"]
    stats: dict[str, np.ndarray]


class Checkpoint(NamedTuple):
    """How far a chain has got: the number of steps, and the state after them."""

    step: int
    state: Any


class Block(NamedTuple):
    """What a chain made in up to `BLOCK` steps, and how far it then was."""

    points: Float[np.ndarray, "draw dim"]
    stats: dict[str, np.ndarray]
    checkpoint: Checkpoint


class AbstractSampler(eqx.Module):
    """One chain on one shard. The module's docstring says how to write one."""

    num_warmup: eqx.AbstractVar[int]
    num_chains: eqx.AbstractVar[int]
    needs_start: ClassVar[bool] = True
    """Whether it matters where a chain starts."""
    takes_powers: ClassVar[bool] = True
    """Whether rows may have any weight, so that a likelihood can be raised to a power; else a weight is zero or one."""

    def __check_init__(self) -> None:
        self.check_count("num_warmup", 0)
        self.check_count("num_chains", 1)

    def check_count(self, name: str, least: int) -> None:
        """Refuse a setting that is not a whole number, or too small a one."""
        value = getattr(self, name)
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(
                f"{type(self).__name__}: {name} must be a whole number of {least} or more; got {value!r}."
            )

    def check_share(self, name: str) -> None:
        """Refuse a setting that does not lie between zero and one."""
        value = getattr(self, name)
        if not 0 < value < 1:
            raise ValueError(
                f"{type(self).__name__}: {name} must lie between 0 and 1; got {value}."
            )

    def setup(self, density: Subposterior) -> Any:
        """What a chain needs to know of its shard: by default the log density itself."""
        return density

    @abc.abstractmethod
    def init(self, setup: Any, start: Point, key: Array) -> Any:
        """The state of a chain at its start."""

    @abc.abstractmethod
    def advance(
        self, setup: Any, state: Any, key: Array, num_steps: int
    ) -> tuple[Any, Float[Array | np.ndarray, "step dim"], dict[str, Array]]:
        """The state after some steps, the points passed, and statistics of each step.

        Calls do not step over a multiple of `BLOCK`.
        """

    def prepare(self, density: Subposterior, start: Point) -> None:
        """Compile what `advance` needs: no steps, so that threads find the program ready."""
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
        """Warm up, then draw and keep every `thin`-th, block by block; a chain that got so far before goes on from there."""
        setup = self.setup(density)
        done, state = after or Checkpoint(0, self.init(setup, start, key))
        total = self.num_warmup + thin * num_draws
        while done < total:
            num_steps = min(BLOCK, total - done)
            state, passed, reported = self.advance(setup, state, key, num_steps)
            drawn = np.arange(done, done + num_steps) - self.num_warmup + 1
            keep = (drawn > 0) & (drawn % thin == 0)
            done += num_steps
            stats = {name: np.asarray(values)[keep] for name, values in reported.items()}
            yield Block(np.asarray(passed)[keep], stats, Checkpoint(done, state))

    def run(
        self,
        density: Subposterior,
        start: Point,
        key: Array,
        num_draws: int,
        on_block: Callable[[int], None] = lambda _: None,
        thin: int = 1,
    ) -> Chain:
        """A whole chain; `on_block` hears the number of steps done since its last call."""
        blocks, done = [], 0
        for block in self.blocks(density, start, key, num_draws, thin):
            blocks.append(block)
            on_block(block.checkpoint.step - done)
            done = block.checkpoint.step
        return joined(blocks)


def joined(blocks: Sequence[Block | Chain]) -> Chain:
    """The draws of blocks that follow each other."""
    return Chain(
        np.concatenate([block.points for block in blocks]),
        {name: np.concatenate([block.stats[name] for block in blocks]) for name in blocks[0].stats},
    )


def strongly_typed(state: State) -> State:
    """A state without Python numbers and weakly typed ones, which would make the first block a program of its own."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), state)


def split_walkers(chain: Chain) -> Chain:
    """The draws of a chain whose walkers took turns, walker after walker, so that those of one follow each other; any other chain as it is."""
    if "walker" not in chain.stats:
        return chain
    order = np.argsort(chain.stats["walker"], kind="stable")
    return Chain(chain.points[order], {name: values[order] for name, values in chain.stats.items()})
