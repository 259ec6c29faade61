"""Deal rows into shards: every row in exactly one shard."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .typing import Rows


class Shard(eqx.Module):
    """Some rows. Those of weight zero are padding, so that shards share a shape and one program."""

    rows: dict[str, Array]
    weights: Float[Array, " row"]

    @property
    def num_rows(self) -> int:
        """Number of rows that are not padding."""
        return int(jnp.sum(self.weights > 0))


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows and the shard that each belongs to. Made by `split`."""

    rows: dict[str, np.ndarray]
    members: tuple[np.ndarray, ...]
    """For each shard, the indices of its rows."""

    @property
    def num_shards(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> list[int]:
        """Number of rows of each shard."""
        return [len(indices) for indices in self.members]

    def load(self, shard: int) -> Shard:
        """The rows of one shard, padded with copies of its first row to a shape that shards share."""
        indices = self.members[shard]
        padding = _padded_length(len(indices), max(self.sizes)) - len(indices)
        chosen = np.concatenate([indices, np.repeat(indices[:1], padding)])
        weights = np.concatenate([np.ones(len(indices)), np.zeros(padding)])
        return Shard(
            {name: jnp.asarray(array[chosen]) for name, array in self.rows.items()},
            jnp.asarray(weights),
        )

    def __repr__(self) -> str:
        sizes = self.sizes
        return (
            f"Partition({sum(sizes)} rows of {list(self.rows)} in {len(sizes)} shards of "
            f"{min(sizes)} to {max(sizes)} rows)"
        )


def split(
    rows: Any,
    num_shards: int,
    *,
    seed: int = 0,
    stratify: Any = None,
    groups: Any = None,
) -> Partition:
    """Deal rows into shards whose sizes differ by at most one, in random order.

    Args:
        rows: a mapping of arrays with one leading axis, or a pandas or polars frame.
        num_shards: how many shards, from 1 to the number of rows.
        seed: seed of the shuffle.
        stratify: a column's name, or one level per row: each level is spread over all shards as
            evenly as it goes. Use it where a level is rare.
        groups: a column's name, or one label per row: rows with the same label stay in one shard.
            Sizes then differ by as much as the groups' sizes demand.

    >>> import numpy as np
    >>> split({"y": np.arange(10.0)}, 3).sizes
    [4, 3, 3]
    >>> partition = split({"y": np.arange(9.0)}, 3, groups=[1, 1, 1, 2, 2, 2, 3, 3, 3])
    >>> sorted(members.tolist() for members in partition.members)
    [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    """
    arrays = as_rows(rows)
    num_rows = len(next(iter(arrays.values())))
    if not isinstance(num_shards, int | np.integer):
        raise TypeError(f"num_shards must be a whole number; got {num_shards!r}.")
    check_seed(seed)
    if not 1 <= num_shards <= num_rows:
        raise ValueError(
            f"num_shards must lie between 1 and the number of rows ({num_rows}); got {num_shards!r}. "
            "Try fewer shards: each needs rows enough to say something about every parameter."
        )
    if stratify is not None and groups is not None:
        raise ValueError(
            "split takes stratify or groups, not both: a group cannot be kept whole and spread. "
            "Leave one of them out."
        )
    generator = np.random.default_rng(seed)
    if groups is not None:
        labels = _labels(groups, arrays, num_rows, "groups")
        members = _deal_groups(labels, int(num_shards), generator)
    else:
        order = generator.permutation(num_rows)
        if stratify is not None:
            levels = _labels(stratify, arrays, num_rows, "stratify")
            order = order[np.argsort(levels[order], kind="stable")]
        members = [order[shard::num_shards] for shard in range(num_shards)]
    return Partition(arrays, tuple(np.sort(indices) for indices in members))


def check_seed(seed: Any) -> None:
    """Refuse what is not a seed."""
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number of 0 or more; got {seed!r}.")


def as_rows(rows: Any) -> dict[str, np.ndarray]:
    """Rows in any accepted form as checked NumPy arrays with one leading axis."""
    columns = _columns(rows)
    if not columns:
        raise ValueError("rows must hold at least one named array; got none.")
    arrays = {str(name): _as_array(str(name), column) for name, column in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            "all arrays of rows must have the same number of rows (leading axis); got "
            + ", ".join(f"{name}: {length}" for name, length in lengths.items())
            + ". An argument that is not per row belongs into the model, not into rows."
        )
    return arrays


def _columns(rows: Any) -> Mapping[str, Any]:
    if isinstance(rows, Mapping):
        return rows
    if hasattr(rows, "columns") and hasattr(rows, "__getitem__"):  # pandas and polars frames
        names = [str(name) for name in rows.columns]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"columns must have different names; got {sorted(repeated)} more than once.")
        return {name: rows[name].to_numpy() for name in rows.columns}
    raise TypeError(
        'rows must be a mapping of named arrays, such as {"x": x, "y": y}, a pandas or polars frame, '
        f"or a Partition from vcmc.split; got {type(rows).__name__}."
    )


def _as_array(name: str, column: Any) -> np.ndarray:
    if np.ma.is_masked(column):
        raise ValueError(
            f"rows[{name!r}] must not be masked; got {np.ma.count_masked(column)} masked values. Drop these rows, "
            "or fill them and pass a 0/1 column that tells your model which values are missing."
        )
    try:
        array = np.asarray(column)
    except ValueError as error:  # NumPy's own refusal of nested lists of unequal lengths
        raise ValueError(f"rows[{name!r}] is ragged: every row must have the same shape ({error}).") from None
    if array.ndim == 0:
        raise ValueError(
            f"rows[{name!r}] must have a leading axis with one entry per row; got a single value, {array!r}."
        )
    if len(array) == 0:
        raise ValueError(f"rows must hold at least one row; got rows[{name!r}] of length 0.")
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"rows[{name!r}] must hold numbers or booleans; got dtype {array.dtype}. "
            "Encode categories as whole numbers, and make ragged rows equal in shape."
        )
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
        if bad.any():
            raise ValueError(
                f"rows[{name!r}] must be finite; got NaN or infinity in {bad.sum()} of {len(array)} "
                f"rows (first: row {int(np.argmax(bad))}). Drop these rows, or fill them and pass a "
                "0/1 column that tells your model which values are missing."
            )
    return array.astype(np.int64) if array.dtype.kind == "u" else array  # unsigned 2 * 0 - 1 is 255


def _labels(labels: Any, arrays: Rows, num_rows: int, argument: str) -> np.ndarray:
    """Whole-number labels, one per row."""
    if isinstance(labels, str):
        if labels not in arrays:
            raise ValueError(f"{argument}={labels!r} is not among the rows' arrays {list(arrays)}.")
        labels = arrays[labels]
    labels = np.asarray(labels)
    if labels.shape != (num_rows,):
        raise ValueError(
            f"{argument} must give one label per row, shape ({num_rows},); got shape {labels.shape}."
        )
    try:
        return np.unique(labels, return_inverse=True)[1]
    except TypeError:
        raise TypeError(
            f"{argument} must be labels of one kind, all numbers or all strings; got a mixture, such as "
            "missing values among strings. Give the missing ones a label of their own."
        ) from None


def _deal_groups(labels: np.ndarray, num_shards: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Give each group, the largest first, to the shard with the fewest rows so far."""
    counts = np.bincount(labels)
    if num_shards > len(counts):
        raise ValueError(
            f"num_shards must not exceed the number of groups ({len(counts)}), which stay whole; "
            f"got {num_shards}."
        )
    shuffled = generator.permutation(len(counts))
    loads = np.zeros(num_shards, int)
    shard_of = np.empty(len(counts), int)
    for group in shuffled[np.argsort(-counts[shuffled], kind="stable")]:
        shard_of[group] = np.argmin(loads)
        loads[shard_of[group]] += counts[group]
    return [np.flatnonzero(shard_of[labels] == shard) for shard in range(num_shards)]


def _padded_length(size: int, largest: int) -> int:
    """The largest size, halved while that holds: shards of any sizes share few shapes."""
    length = largest
    while length > 1 and -(-length // 2) >= size:
        length = -(-length // 2)
    return length
