r"""The full-data target: log density and score of points, summed over shards.

$$\log p(u \mid X) = \sum_k \ell_k(u) + \text{const}, \qquad \tau = 1/K.$$

Whoever holds a `Target` sees points, log densities and scores, and never a row.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .model import Model, Subposterior, bend, evaluate
from .partition import Shard
from .typing import Point

Item = TypeVar("Item")
Result = TypeVar("Result")


@runtime_checkable
class Mapper(Protocol):
    """Anything that maps a function over items, in order: the executor that the target runs on."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterable[Result]: ...


NUM_TASKS = (
    16  # of one evaluation, at most: the same on all executors, so that sums are equal to the last bit
)
SMALL, NUM_PIECES = 2**28, 2  # below so many bytes, rows are copied and evaluated in so few pieces


class Target:
    """The full log density of a model, evaluated shard by shard on an executor."""

    def __init__(self, model: Model, shards: Sequence[Shard], executor: Mapper):
        power = jnp.asarray(1 / len(shards))
        self.densities = [Subposterior(model, shard, power) for shard in shards]
        self.executor = executor

    @cached_property
    def _pieces(self) -> list[Subposterior]:
        return _joined(self.densities)

    def __call__(
        self, points: Float[Array, "point dim"], only: Sequence[int] | None = None
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Log densities and scores at a batch of points.

        With `only`, those of some shards stand for all: an unbiased estimate, if the shards are chosen at random.
        """
        chosen = self._pieces if only is None else [self.densities[shard] for shard in only]
        tasks = [chosen[part] for part in _parts(len(chosen), NUM_TASKS)]
        log_densities, scores = _sum(self.executor.map(lambda task: _evaluate_all(task, points), tasks))
        scale = 1 if only is None else len(self.densities) / len(only)
        return jnp.asarray(scale * log_densities), jnp.asarray(scale * scores)

    def bend(self, point: Point, directions: Float[Array, "direction dim"]) -> Float[Array, "direction dim"]:
        """How the score at a point changes along directions: products of the Hessian with them."""
        tasks = [self._pieces[part] for part in _parts(len(self._pieces), NUM_TASKS)]
        parts = self.executor.map(lambda task: _bend_all(task, point, directions), tasks)
        return jnp.asarray(np.sum(list(parts), axis=0))


def _joined(densities: list[Subposterior]) -> list[Subposterior]:
    """Small shards joined to larger ones, as calling a compiled function takes longer than evaluating few rows."""
    shapes = {density.shard.weights.shape for density in densities}
    size = sum(leaf.nbytes for density in densities for leaf in jax.tree.leaves(density.shard))
    if len(densities) <= NUM_PIECES or len(shapes) > 1 or size > SMALL:
        return densities

    parts = [densities[part] for part in _parts(len(densities), NUM_PIECES)]
    first = densities[0].shard
    padding = Shard(
        first.rows, jnp.zeros_like(first.weights)
    )  # so that all pieces have one shape and one program

    def join(part: list[Subposterior]) -> Subposterior:
        shards = [density.shard for density in part] + [padding] * (len(parts[0]) - len(part))
        shard = jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *shards)
        return Subposterior(part[0].model, shard, len(part) * part[0].prior_power)

    return [join(part) for part in parts]


def _parts(count: int, num_parts: int) -> list[slice]:
    size = -(-count // num_parts)
    return [slice(first, first + size) for first in range(0, count, size)]


def _evaluate_all(
    densities: Sequence[Subposterior], points: Float[Array, "point dim"]
) -> tuple[np.ndarray, np.ndarray]:
    return _sum([evaluate(density, points) for density in densities])


def _bend_all(
    densities: Sequence[Subposterior], point: Point, directions: Float[Array, "direction dim"]
) -> np.ndarray:
    return np.sum([bend(density, point, directions) for density in densities], axis=0)


def _sum(parts: Iterable[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
    log_densities, scores = zip(*parts, strict=True)
    return np.sum(log_densities, axis=0), np.sum(scores, axis=0)


class Minibatch:
    r"""An unbiased estimate of a target, from the rows of a few shards chosen at random.

    A sum over few shards is far off, but hardly more so at one point than at another. So what is estimated is
    the difference to the straight line through an anchor $a$, where the full target is known:

    $$\log p(u) \approx \log p(a) + g^\top (u - a) + \frac K m \sum_{k \in m} \bigl[\ell_k(u) - \ell_k(a) - g_k^\top (u - a)\bigr].$$
    """

    def __init__(self, target: Target, anchor: Point, num_shards: int, seed: int | tuple[int, ...]):
        self.target = target
        self.anchor = anchor
        self.num_shards = num_shards
        self._value, self._score = (part[0] for part in target(anchor[None]))
        self._generator = np.random.default_rng(seed)

    def __call__(
        self, points: Float[Array, "point dim"]
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Log densities and scores at a batch of points, with shards chosen anew for every call."""
        every = len(self.target.densities)
        only = self._generator.choice(every, self.num_shards, replace=False).tolist()
        values, scores = self.target(jnp.concatenate([points, self.anchor[None]]), only)
        rest = self._score - scores[-1]
        return self._value + values[:-1] - values[-1] + (points - self.anchor) @ rest, rest + scores[:-1]
