"""The rows of a new batch: read as the model reads them, with the types of earlier rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np

from ..data.batches import is_large
from ..data.group_labels import checked_labels
from ..data.row_digest import RowDigest, row_digest
from ..data.rows import as_rows, named_columns, native
from ..data.shard import AbstractPartition
from ..data.shard_files import plain_partition
from ..data.shard_list import BatchShard
from ..data.size import FileRows, rows_size
from ..model import Model
from .batch_plan import EarlierShard, Rows
from .kept_rows import batch_shards
from .model_rows import model_rows
from .partitioning import as_partition

MAX_BATCH_BYTES = (
    2**28
)  # of a batch that is read into memory, and merged with others if it is small


@dataclass(frozen=True)
class StoredShards(Sequence[Rows]):
    """The rows of shards that do not fit into memory together, each read where it is needed."""

    shards: Sequence[BatchShard]
    group_column: str | None
    kinds: Rows

    def __len__(self) -> int:
        return len(self.shards)

    @overload
    def __getitem__(self, place: int) -> Rows: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Rows]: ...

    def __getitem__(self, place: Any) -> Any:
        rows = EarlierShard(self.shards[place], 0, 0, 0).read(self.group_column)
        return conformed(rows, self.kinds, self.group_column)


class NewRows(NamedTuple):
    """The rows of a batch, whole in memory, or in shards.

    Attributes:
        whole: the rows in memory; the column of groups holds labels.
        shards: the rows of shards, if there are too many.
        digest: their digest.
    """

    whole: Rows | None
    shards: Sequence[Rows]
    digest: RowDigest


def read_new_rows(
    rows: Any,
    model: Model,
    weights: str | None,
    kinds: Rows,
    num_shards: int | None,
    large_shards: Any,
) -> NewRows:
    """Read the rows of a batch.

    Args:
        rows: rows as `infer` takes them.
        model: the model.
        weights: the column with the weights of rows.
        kinds: some earlier rows, whose columns the new ones must have.
        num_shards: the number of shards that the user asks for.
        large_shards: a function from the number of rows and their bytes to the number of shards of
            a batch that is not read into memory.
    """
    column = model.local.groups if model.local else None
    rows = model_rows(rows, model, weights, keep=kinds, is_fit=False)
    is_lazy = isinstance(rows, AbstractPartition | FileRows) or callable(rows)
    if not is_lazy and not is_large(rows):
        whole = conformed(_in_memory(rows, column), kinds, column)
        return NewRows(whole, [], row_digest(whole, column))
    partition = _partition(rows, model, num_shards, large_shards)
    shards = StoredShards(batch_shards(partition), column, kinds)
    digest = RowDigest()
    num_bytes = 0
    for shard in shards:
        digest = digest.plus(row_digest(shard, column))
        num_bytes += sum(array.nbytes for array in shard.values())
    if num_bytes > MAX_BATCH_BYTES:
        return NewRows(None, shards, digest)
    parts = list(shards)
    whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return NewRows(whole, [], digest)


def _in_memory(rows: Any, column: str | None) -> Rows:
    columns = dict(named_columns(rows))
    labels = columns.pop(column, None) if column is not None else None
    arrays = {name: native(array) for name, array in as_rows(columns).items()} if columns else {}
    if labels is not None:
        arrays[str(column)] = checked_labels(labels, f"rows[{column!r}]")
    return arrays


def _partition(rows: Any, model: Model, num_shards: int | None, large_shards: Any) -> Any:
    if isinstance(rows, AbstractPartition) or callable(rows):
        return plain_partition(as_partition(rows, num_shards, 0))
    size = rows_size(rows)
    number = num_shards
    if number is None:
        number = large_shards(size) if size.num_bytes > MAX_BATCH_BYTES else 1
    return as_partition(rows, number, 0, local=model.local)


def conformed(rows: Rows, kinds: Rows, group_column: str | None) -> Rows:
    """Return rows with the columns of earlier rows, converted to their types without loss."""
    missing, unknown = sorted(set(kinds) - set(rows)), sorted(set(rows) - set(kinds))
    if missing or unknown:
        found = [f"{missing} are missing"] if missing else []
        found += [f"{unknown} are not among them"] if unknown else []
        raise ValueError(
            f"new rows must have the columns of the earlier ones, {sorted(kinds)}; "
            f"{' and '.join(found)}."
        )
    if group_column is not None:
        _check_labels(group_column, np.asarray(rows[group_column]), np.asarray(kinds[group_column]))
    return {
        name: rows[name] if name == group_column else _converted(name, rows[name], array)
        for name, array in kinds.items()
    }


def _check_labels(name: str, labels: np.ndarray, like: np.ndarray) -> None:
    """Refuse labels of groups that are text where those of the run are numbers, or the reverse."""
    kinds = ["text" if array.dtype.kind in "UOT" else "numbers" for array in (like, labels)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"rows[{name!r}] holds the labels of groups: those of the run are {kinds[0]}, e.g. "
            f"{like[:1].tolist()[0]!r}, and those of the new rows {kinds[1]}, e.g. "
            f"{labels[:1].tolist()[0]!r}, so that no known group would be recognised. Pass labels "
            "of the same type."
        )


def _converted(name: str, values: np.ndarray, like: np.ndarray) -> np.ndarray:
    values, like = native(values), native(like[:1])
    if values.shape[1:] != like.shape[1:]:
        raise ValueError(
            f"new rows must have entries of the shapes of the earlier ones: rows[{name!r}] has "
            f"{values.shape[1:]} in place of {like.shape[1:]}."
        )
    converted = values.astype(like.dtype)
    if not np.array_equal(converted, values):
        raise ValueError(
            f"rows[{name!r}] was of the type {like.dtype}, and new rows have values that this type "
            f"does not hold, e.g. {values[converted != values].flat[0]!r}. Make a new run with "
            "rows of one type: vcmc.infer(...)."
        )
    return converted
