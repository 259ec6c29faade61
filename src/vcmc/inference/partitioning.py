"""Split the rows into shards: as many as the user says, or as the library chooses."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..data.batches import is_large
from ..data.group_labels import index_groups
from ..data.grouped import GroupedPartition, encode_groups
from ..data.partition import LazyRows, split
from ..data.shard import AbstractPartition
from ..data.size import FileRows, RowsSize, rows_size
from ..data.weighted import weighted
from ..groups.local_model import LocalModel
from ..model import Model
from ..progress import ProgressMode
from .model_rows import model_rows
from .request import Request
from .shard_count import Groups, choose_partition


def as_partition(
    rows: Any,
    num_shards: int | None,
    seed: int,
    folder: Path | None = None,
    progress: ProgressMode = True,
    local: LocalModel | None = None,
    weights: str | None = None,
) -> AbstractPartition:
    """Return the user's partition, or split the rows; large ones into files in `folder`.

    For a model with local parameters, shards hold whole groups. `weights` is the column with the
    weights of rows, if they have any.
    """
    if weights is not None:
        check_weight_column(weights)
        rows = _with_weights(rows, weights)
        return weighted(as_partition(rows, num_shards, seed, folder, progress, local), weights)
    if local is not None:
        return _by_groups(rows, num_shards, seed, folder, progress, local)
    if isinstance(rows, AbstractPartition):
        if num_shards not in (None, rows.num_shards):
            raise ValueError(
                "num_shards must be left out or equal the partition's number of shards "
                f"({rows.num_shards}); got {num_shards}."
            )
        return rows
    if num_shards is None:
        raise ValueError(
            "num_shards is required if rows is a function that loads a shard, e.g. "
            "infer(..., num_shards=20)."
            if callable(rows)
            else "num_shards is required here unless rows is a Partition, e.g. num_shards=20."
        )
    if callable(rows):
        return LazyRows(rows, num_shards)
    if isinstance(rows, FileRows):
        return split(
            rows.path,
            num_shards,
            seed=seed,
            columns=rows.columns,
            levels=rows.levels,
            folder=folder,
            progress=progress,
        )
    folder = folder if is_large(rows) else None
    return split(rows, num_shards, seed=seed, folder=folder, progress=progress)


def check_weight_column(weights: Any) -> None:
    """Refuse weights that are no name of a column."""
    if not isinstance(weights, str):
        raise TypeError(
            "weights must name a column of the rows, e.g. weights='w'; got "
            f"{type(weights).__name__}. Add the weights to the rows as a column."
        )


def _with_weights(rows: Any, weights: str) -> Any:
    """Return rows whose arrays, where they are made of chosen columns, include the weights."""
    if not isinstance(rows, FileRows) or rows.columns is None or weights in rows.columns:
        return rows
    return FileRows(rows.path, {**rows.columns, weights: weights}, rows.levels)


def _by_groups(
    rows: Any,
    num_shards: int | None,
    seed: int,
    folder: Path | None,
    progress: ProgressMode,
    local: LocalModel,
) -> AbstractPartition:
    """Return a partition whose shards hold whole groups."""
    if isinstance(rows, GroupedPartition):
        return rows
    if isinstance(rows, AbstractPartition) or callable(rows):
        partition = as_partition(rows, num_shards, seed)
        return GroupedPartition(partition, local.groups, table=local.table)
    if num_shards is None:
        raise ValueError("num_shards is required here, e.g. num_shards=20.")
    if not is_on_disk(rows):
        encoded, labels = encode_groups(rows, local.groups, local.table)
        partition = split(encoded, num_shards, seed=seed, groups=local.groups)
        return GroupedPartition(partition, local.groups, labels, local.table)
    source = rows if isinstance(rows, FileRows) else FileRows(rows)
    partition = split(
        source.path,
        num_shards,
        seed=seed,
        groups=local.groups,
        columns=source.columns,
        levels=source.levels,
        folder=folder,
        progress=progress,
    )
    return GroupedPartition(partition, local.groups, table=local.table)


def is_on_disk(rows: Any) -> bool:
    """Return whether rows are read in batches."""
    return isinstance(rows, FileRows) or is_large(rows)


def _groups(local: LocalModel, rows: Any) -> Groups:
    """Return the number of groups that rows have."""
    if is_on_disk(rows):
        source = rows if isinstance(rows, FileRows) else FileRows(rows)
        labels = index_groups(source.path, local.groups, source.columns).labels
    else:
        labels = encode_groups(rows, local.groups, local.table)[1]
    return Groups(len(labels), local.space.dim)


def choose_shards(
    model: Model, rows: Any, num_shards: int | None, request: Request, progress: ProgressMode
) -> tuple[AbstractPartition, Request]:
    """Split rows into shards, as many as the user, the run directory or else vcmc says.

    The request is returned with the reason for their number.
    """
    folder = request.store.rows if request.store else None
    rows = model_rows(rows, model, request.weights)
    split_rows = partial(
        as_partition,
        rows,
        seed=request.seed,
        folder=folder,
        progress=progress,
        local=model.local,
        weights=request.weights,
    )
    if num_shards is not None:
        return split_rows(num_shards), replace(request, num_shards_reason="as the user asked.")
    if isinstance(rows, AbstractPartition):
        return split_rows(None), replace(request, num_shards_reason="as the rows were split.")
    if callable(rows):
        return split_rows(None), request  # raises an error
    if request.store and (stored := request.store.settings()):
        reason = "as the run directory was begun."
        return split_rows(stored["num_shards"]), replace(request, num_shards_reason=reason)
    try:
        size, groups = rows_size(rows), _groups(model.local, rows) if model.local else None
    except Exception:  # splitting the rows says what is wrong with them
        size, groups = RowsSize(1, 0), None
    partition, reason = choose_partition(
        model.space.dim, size, request.executor, split_rows, is_on_disk(rows), groups
    )
    # to write the files of all shards once more would take too long
    may_reduce = not is_on_disk(rows) and partition.num_shards > 1
    return partition, replace(request, num_shards_reason=reason, may_reduce_shards=may_reduce)
