"""Check before sampling that every shard's rows are informative about every direction."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..data.cache import ShardCache, Task
from ..data.shard import Shard
from ..density import evaluate
from ..errors import ModelError
from ..target import Target
from .flat_directions import describe_direction, flat_direction, flat_prior
from .shards import ShardWarnings

MAX_NAMED_COORDINATES = 3  # in a message


class ShardFacts(NamedTuple):
    """Facts about a shard, computed where its rows are.

    Attributes:
        silent: coordinates that the shard's log likelihood does not depend on.
        num_rows: number of rows.
        num_padded: number of rows with padding.
        kinds: dtype and shape of a row of every array.
    """

    silent: Bool[np.ndarray, " dim"]
    num_rows: int
    num_padded: int
    kinds: dict[str, str]


def shard_facts(
    target: Target,
    points: Float[np.ndarray, "point dim"],
    known: Mapping[int, ShardFacts] = MappingProxyType({}),
) -> list[ShardFacts]:
    """Return facts about every shard; raise an error if their rows are of different kinds.

    Shards whose facts are known are not evaluated.
    """
    work = partial(_facts, points=points)
    shards = [shard for shard in range(target.num_shards) if shard not in known]
    tasks = [Task((shard,)) for shard in shards]
    computed = target.executor.map(work, tasks, target.shard_cache) if tasks else []
    found = {**known, **dict(zip(shards, computed, strict=True))}
    expected = shard_kinds(target.shard_cache.shards[0])
    for shard in shards:
        if found[shard].kinds != expected:
            raise ValueError(
                f"all shards must have rows of the same dtypes and shapes; shard 0 has {expected}, "
                f"shard {shard} has {found[shard].kinds}."
            )
    return [found[shard] for shard in range(target.num_shards)]


def shard_kinds(shard: Shard) -> dict[str, str]:
    """Return the dtype and the shape of a row of every array."""
    return {
        name: f"{array.dtype}{list(array.shape[1:])}" for name, array in sorted(shard.rows.items())
    }


def _facts(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: np.ndarray,
) -> ShardFacts:
    del advance
    # without a prior, scores are those of the log likelihood
    density = shard_cache.density(task.shards[0], prior_power=0.0)
    shard = density.shard
    silent = (evaluate(density, points)[1] == 0).all(axis=0)
    return ShardFacts(silent, shard.num_rows, len(shard.weights), shard_kinds(shard))


def check_information(
    target: Target, points: Float[np.ndarray, "point dim"], facts: list[ShardFacts]
) -> ShardWarnings:
    """Return a warning if shards' rows hold no information on some coordinates.

    Raise `ModelError` if the prior is flat there, too, or along another direction that a shard's
    rows do not determine: such a shard has no proper posterior.
    """
    silent = np.stack([shard.silent for shard in facts])
    names = np.array(target.model.space.coordinates)
    flat = flat_prior(target.model, points)
    _check_coordinates(silent & flat.coordinates, names)
    if len(flat.directions):
        _check_directions(target, points, flat.directions, names)
    return _silence_warnings(silent, names)


def _check_coordinates(improper: Bool[np.ndarray, "shard dim"], names: np.ndarray) -> None:
    if not improper.any():
        return
    shard = int(np.argmax(improper.any(axis=1)))
    raise ModelError(
        f"every shard must have a proper posterior, but {improper.any(axis=1).sum()} of "
        f"{len(improper)} shards hold no information on some coordinate whose prior is flat "
        f"(shard {shard}: {', '.join(names[improper[shard]][:MAX_NAMED_COORDINATES])}). Use a "
        "proper prior, spread rare rows evenly with vcmc.split(rows, num_shards, stratify=…), "
        "or use fewer shards."
    )


def _check_directions(
    target: Target, points: np.ndarray, basis: np.ndarray, names: np.ndarray
) -> None:
    work = partial(_flat_direction, points=points, basis=basis)
    tasks = [Task((shard,)) for shard in range(target.num_shards)]
    directions = list(target.executor.map(work, tasks, target.shard_cache))
    improper = [shard for shard, direction in enumerate(directions) if direction is not None]
    if not improper:
        return
    direction = describe_direction(names, directions[improper[0]], MAX_NAMED_COORDINATES)
    raise ModelError(
        f"every shard must have a proper posterior, but the rows of {len(improper)} of "
        f"{target.num_shards} shards do not determine some direction along which the prior is flat "
        f"(shard {improper[0]}: {direction}), because columns are collinear there or rows too few. "
        "Use a proper prior, however wide, or fewer shards; if all shards are concerned, the model "
        "may not be identified."
    )


def _flat_direction(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: np.ndarray,
    basis: np.ndarray,
) -> np.ndarray | None:
    del advance
    return flat_direction(shard_cache.density(task.shards[0]), points, basis)


def _silence_warnings(silent: Bool[np.ndarray, "shard dim"], names: np.ndarray) -> ShardWarnings:
    # A coordinate that no shard's rows inform is a feature of the model, e.g. of a hierarchical
    # one, and not a fault of the partition.
    indices = np.flatnonzero(silent.any(axis=0) & ~silent.all(axis=0))
    if not len(indices):
        return ShardWarnings([], [])
    counts = silent[:, indices].sum(axis=0)
    low, high = counts.min(), counts.max()
    number = f"{low}" if low == high else f"{low} to {high}"
    what = str(names[indices[0]])
    if len(indices) > 1:
        named = ", ".join(names[indices[:MAX_NAMED_COORDINATES]])
        more = ", …" if len(indices) > MAX_NAMED_COORDINATES else ""
        what = f"each of {len(indices)} coordinates ({named}{more})"
    text = (
        f"{number} of {len(silent)} shards {'holds' if high == 1 else 'hold'} no information on "
        f"{what}, so that its draws there are those of the tempered prior. Try "
        "vcmc.split(..., stratify=...) or fewer shards."
    )
    shards = np.flatnonzero(silent[:, indices].any(axis=1))
    return ShardWarnings.sorted([(shards.tolist(), text)], len(silent))
