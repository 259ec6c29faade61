"""The rows of a posterior check: which column is replicated, and which one has the groups."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from ..data.cache import ShardCache
from ..data.group_labels import checked_labels
from ..data.rows import NUMBER_KINDS, named_columns
from ..data.shard import AbstractPartition
from ..data.size import rows_size
from ..diagnostics.merged_statistics import Kind
from ..errors import describe
from ..model import Model
from .index_check import checked_parts
from .model_rows import model_rows
from .partitioning import as_partition, is_on_disk
from .prediction_trial import check_predictors, index_check
from .replication import GROUP_CODES, Response, WithoutColumns

MAX_GROUPS = 1000

NO_COLUMN = "vcmc row"  # a column that no model reads


class CheckOptions(NamedTuple):
    """What the user asks for.

    Attributes:
        name: what to replicate, if told.
        observed: the column with the data's values, if told.
        by: the column with the groups of rows, if there are any.
        kinds: the summaries that statistics need.
        keep_values: whether they need the values themselves.
    """

    name: str | None
    observed: str | None
    by: str | None
    kinds: tuple[Kind, ...]
    keep_values: bool

    @property
    def columns(self) -> set[str]:
        """Return the columns of rows that are needed whether or not the model reads them."""
        return {name for name in (self.name, self.observed, self.by) if name is not None}

    def response(self, name: str, observed: str, by: str | None) -> Response:
        """Return what is replicated, its name and columns found."""
        return Response(name, observed, by, self.kinds, self.keep_values)


class CheckedRows(NamedTuple):
    """Rows in shards, and what the columns are.

    Attributes:
        cache: the rows and the model that simulates them.
        response: what is replicated, and what it is compared with.
        labels: the labels of groups, if their column holds their numbers.
    """

    cache: ShardCache
    response: Response
    labels: np.ndarray | None = None


def checked_rows(
    model: Model,
    rows: Any,
    num_shards: int,
    point: np.ndarray,
    options: CheckOptions,
) -> CheckedRows:
    """Split rows into shards, and find the columns; raise one clear error if there are none."""
    by = options.by
    labels, column = None, by
    if by is not None and is_in_memory(rows):
        rows, labels = with_group_codes(rows, by, keep=model.levels)
        column = GROUP_CODES
    kept = {name for name in (column, options.observed, options.name) if name is not None}
    # text in files gets levels when it is split
    refuses_text = column is None or column == GROUP_CODES
    read = model_rows(rows, model, keep=kept, refuses_text=refuses_text, is_fit=False)
    cache = ShardCache(model, _partition(read, num_shards))
    columns = cache.shard(0).rows
    check_predictors(model, columns.keys() - {GROUP_CODES})
    check = index_check(model)
    for part in checked_parts(model, cache.partition, [cache.shard(0)]):
        check({name: array for name, array in part.items() if name != GROUP_CODES})
    if column is not None and column != GROUP_CODES:
        labels = cache.partition.levels.get(column)
    if column is not None:
        check_by(column, columns)
        model = _unaware(model, columns, point, frozenset([GROUP_CODES]), by)
        cache = ShardCache(model, cache.partition)
    shapes = _simulated_shapes(model, columns, point)
    name = checked_name(options.name, shapes)
    observed = options.observed
    if observed is None and name not in columns:
        observed = _unused_column(model, columns, point, shapes, by)
    observed = checked_observed(observed, name, columns)
    if (shape := np.shape(columns[observed])) != shapes[name]:
        raise ValueError(
            f"the model must simulate {name!r} with the shape of rows[{observed!r}], {shape}; got "
            f"{shapes[name]}."
        )
    return CheckedRows(cache, options.response(name, observed, column), labels)


def is_in_memory(rows: Any) -> bool:
    """Return whether rows are arrays or a data frame."""
    return not (isinstance(rows, AbstractPartition) or callable(rows) or is_on_disk(rows))


def _partition(rows: Any, num_shards: int) -> AbstractPartition:
    """Return rows in shards: as many as the result had, but at most one per row."""
    if isinstance(rows, AbstractPartition):
        return rows
    if is_in_memory(rows):
        num_shards = min(num_shards, rows_size(rows).num_rows)
    return as_partition(rows, num_shards, seed=0)


def with_group_codes(
    rows: Any, by: str, keep: Collection[str] = ()
) -> tuple[dict[str, Any], np.ndarray]:
    """Return rows in memory with the numbers of their groups, whose labels are of any kind.

    Labels that are no numbers are left out, unless they are to be kept.
    """
    columns = dict(named_columns(rows))
    check_by(by, columns)
    values = row_labels(columns, by)
    labels, codes = np.unique(values, return_inverse=True)
    if values.dtype.kind not in NUMBER_KINDS and by not in keep:
        del columns[by]
    return {**columns, GROUP_CODES: codes}, labels


def check_by(by: str, columns: Any) -> None:
    """Refuse a column of groups that the rows do not have."""
    if by not in columns:
        raise ValueError(f"by must be a column of the rows, {_listed(columns)}; got {by!r}.")


def check_num_groups(by: str, count: int) -> None:
    """Refuse a column with too many different values."""
    if count > MAX_GROUPS:
        raise ValueError(
            f"by must be a column with at most {MAX_GROUPS} different values; {by!r} has "
            f"{count} or more. Group them into fewer."
        )


def row_labels(columns: Mapping[str, Any], by: str) -> np.ndarray:
    """Return the group of every row, numbers as they are and others as text."""
    values = np.asarray(columns[by])
    if values.ndim != 1:
        raise ValueError(
            f"by must be a column with one label per row; rows[{by!r}] has the shape "
            f"{values.shape}."
        )
    return values if values.dtype.kind in "biu" else checked_labels(values, f"rows[{by!r}]")


def _unaware(
    model: Model, rows: Any, point: np.ndarray, hidden: frozenset[str], by: str | None
) -> Model:
    """Return the model without the numbers of groups, and without their column if it has no use
    for it.
    """
    changed = WithoutColumns.of_model(model, hidden)
    try:
        _simulated_shapes(changed, rows, point)
    except ValueError:
        return WithoutColumns.of_model(model, hidden | frozenset([str(by)]))
    return changed


def _simulated_shapes(model: Model, rows: Any, point: np.ndarray) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what the model simulates, after a trial that computes nothing."""
    simulate = model.simulate_rows
    assert simulate is not None
    try:
        values = jax.eval_shape(
            lambda point, rows: dict(
                simulate(jax.random.key(0), model.space.constrain(point), rows)
            ),
            point,
            rows,
        )
    except Exception as error:  # of the user's function
        raise ValueError(
            f"the model must simulate its rows; it fails on rows with the columns {_listed(rows)} "
            f"({describe(error)})."
        ) from error
    return {name: array.shape for name, array in values.items()}


def _unused_column(
    model: Model,
    rows: Any,
    point: np.ndarray,
    shapes: dict[str, tuple[int, ...]],
    by: str | None,
) -> str | None:
    """Return the column that the model is fitted to but simulates without, if there is one."""
    unused = []
    for column in rows:
        others = {name: array for name, array in rows.items() if name != column}
        if not others.keys() - {GROUP_CODES, by}:  # something must say how many rows there are
            others[NO_COLUMN] = np.zeros(len(rows[column]))
        try:
            is_unused = _simulated_shapes(model, others, point) == shapes
        except ValueError:
            is_unused = False
        if is_unused and column not in (GROUP_CODES, by):
            unused.append(str(column))
    return unused[0] if len(unused) == 1 else None


def checked_name(name: str | None, known: Any) -> str:
    """Return what to replicate."""
    if name is None and len(known) == 1:
        (name,) = known
    if name is None or name not in known:
        raise ValueError(f"name must be what the model simulates, {_listed(known)}; got {name!r}.")
    return str(name)


def checked_observed(observed: str | None, name: str, columns: Any) -> str:
    """Return the column with the data's values: by default the one called like the response."""
    chosen = name if observed is None else observed
    if chosen not in columns:
        raise ValueError(
            f"observed must be the column of the rows with the data's values of {name!r}, one of "
            f"{_listed(columns)}; got {observed!r}."
        )
    return chosen


def _listed(names: Any) -> list[str]:
    return sorted(str(name) for name in names if name != GROUP_CODES)
