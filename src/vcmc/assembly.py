"""What the verbs have in common: a checked target from a model and rows, and a tree from draws."""

import time
import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import combiners, executors
from .aggregators.combinatorial import with_common_labels
from .diagnostics.additivity import check_additivity, check_labels
from .diagnostics.shards import doubts, shard_ess, shard_rhat
from .model import Model
from .partition import Partition, split
from .result import by_coordinate, to_params
from .space import Product
from .target import Target

if TYPE_CHECKING:
    from xarray import DataTree


class DoubtfulWarning(UserWarning):
    """Something in a result looks doubtful. The result's `warnings` attribute has the same text."""


class ShardError(RuntimeError):
    """Some shards could not be sampled. `tree` holds the draws of the others."""

    def __init__(self, message: str, tree: "DataTree"):
        super().__init__(message)
        self.tree = tree


class CombineError(ShardError):
    """All shards were sampled, but could not be combined. `tree` holds their draws."""


class Clock:
    """Seconds spent in each stage, by the name `seconds_<stage>`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[f"seconds_{name}"] = round(now - self._last, 4)
        self._last = now


def partition_of(rows: Any, num_shards: int | None, seed: int) -> Partition:
    """Rows as a partition: the user's own, or dealt here."""
    if isinstance(rows, Partition):
        if num_shards not in (None, rows.num_shards):
            raise ValueError(
                f"num_shards must be left out or equal that of the partition ({rows.num_shards}); got "
                f"{num_shards}."
            )
        return rows
    if num_shards is None:
        raise ValueError(
            "how many shards there are must be said, such as num_shards=20, unless rows is a Partition; got None."
        )
    return split(rows, num_shards, seed=seed)


def checked_target(
    model: Model, partition: Partition, executor: executors.AbstractExecutor, key: Array
) -> Target:
    """The target of a model that has its point estimates, and whose log density was seen to be what it must be."""
    shards = [partition.load(shard) for shard in range(partition.num_shards)]
    model = model.fitted(shards)
    somewhere = 0.5 * jax.random.normal(key, (model.space.dim,))
    check_additivity(model, shards, somewhere)
    check_labels(model, shards[0], somewhere)
    return Target(model, shards, executor)


def by_shard(draws: Float[np.ndarray, "shard chain draw dim"]) -> Float[Array, "shard all dim"]:
    """Draws with the chains of a shard one after the other."""
    return jnp.asarray(draws.reshape(draws.shape[0], -1, draws.shape[3]))


def groups_of(
    space: Product,
    draws: Float[np.ndarray, "shard chain draw dim"],
    stats: dict[str, np.ndarray],
    combined: combiners.Combined,
    model: Model | None = None,
) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """The groups of a result, and what looks doubtful in it."""
    subposterior = to_params(space, jnp.asarray(draws))
    rhat, ess = shard_rhat(subposterior), shard_ess(subposterior)
    merged = combined.draws.reshape(draws.shape[1:])
    groups = {
        "posterior": to_params(space, merged, model.derived if model else None),
        "subposterior": subposterior,
        "sample_stats": stats,
        "subposterior_rhat": rhat,
        "subposterior_ess": ess,
        "weights": {} if combined.weights is None else by_coordinate(space, combined.weights),
        "optimization": combined.trace,
    }
    compared = with_common_labels(space, np.asarray(by_shard(draws))).reshape(draws.shape)
    notes = combined.notes + doubts(compared, rhat, ess, stats, space)
    return {name: group for name, group in groups.items() if group}, notes


def check_kind(argument: str, value: Any, kind: type, example: str) -> None:
    """Raise an error that shows what an argument should look like, unless it is of its kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{argument} must be such as {example}; got {value!r}.")


def warn(notes: list[str]) -> list[str]:
    """Say what looks doubtful, and return it."""
    for note in notes:
        warnings.warn(note, DoubtfulWarning, stacklevel=4)  # where the user called the verb that stores it
    return notes
