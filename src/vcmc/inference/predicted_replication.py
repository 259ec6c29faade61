"""Replicated data of a model with groups, or of one that another library simulates (PyMC).

Rows in any form are simulated as `predict` does it, block by block. Summaries of blocks are merged
two by two, so that memory is set by the block and by the number of replicates. The draws of a
replicate are those of its groups' local parameters, too.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from ..data.columns import Batch
from ..data.row_blocks import RowStream, blocks_of
from ..data.row_order import row_numbers
from ..data.rows import as_rows, native
from ..data.size import FileRows
from ..diagnostics.merged_statistics import MAX_POINTS
from ..executors import AbstractExecutor
from ..model import Model
from ..models.host_simulator import AbstractHostSimulator
from .checked_rows import CheckOptions, check_by, check_num_groups, checked_observed, row_labels
from .model_rows import model_rows
from .prediction import Prediction, group_columns, planned_prediction
from .prediction_blocks import as_drawn
from .prediction_trial import first_rows, try_model
from .replication import Parts, Replicates, Response, draw_blocks, merged_blocks, parts_of

if TYPE_CHECKING:
    from xarray import DataTree

MAX_VALUE_BYTES = 2**28  # of replicated values in this process, for functions of the user's
MAX_SUMMARY_BYTES = 2**28  # of order statistics of all groups, unless that leaves too few of each
MIN_POINTS = 200  # order statistics of a group that are kept at least

ValueBlock = tuple[Float[np.ndarray, "row draw *axes"], Int[np.ndarray, " row"] | None]
"""Values of some rows, and the numbers of their groups."""


class ReplicationWork(NamedTuple):
    """Where and with which random numbers rows are simulated.

    Attributes:
        key: the key of `jax.random`.
        executor: where.
        advance: is called with numbers of rows.
    """

    key: Array
    executor: AbstractExecutor
    advance: Callable[[int], None]


@dataclass(frozen=True, eq=False)
class ObservedRows:
    """What replicates are compared with: the data's values, and the groups of rows.

    Attributes:
        stream: the rows as the user has them.
        observed: the column with the data's values.
        by: the column with the groups of rows, if there are any.
        labels: its different values, in increasing order.
    """

    stream: RowStream
    observed: str
    by: str | None = None
    labels: np.ndarray | None = None

    def blocks(self, size: int) -> Iterator[ValueBlock]:
        """Yield the data's values, as those of one replicate, in blocks of so many rows."""
        for block in blocks_of(self._batches(), size):
            yield block["values"][:, None], block.get("groups")

    def _batches(self) -> Iterator[Batch]:
        num_read = 0
        for batch in self.stream.batches():
            values = as_rows({self.observed: batch[self.observed]}, num_read)[self.observed]
            checked = {"values": np.asarray(native(values), float)}
            if self.by is not None:
                assert self.labels is not None
                checked["groups"] = np.searchsorted(self.labels, row_labels(batch, self.by))
            num_read += len(values)
            yield checked

    def row_numbers(self, num_rows: int) -> Int[np.ndarray, " row"]:
        """Return the number of every row that is read among the user's rows."""
        if self.stream.is_in_order:
            return np.arange(num_rows)
        rows = self.stream.rows
        return np.concatenate(row_numbers(rows, rows.sizes))


def replicate_by_prediction(
    tree: "DataTree",
    model: Model,
    rows: Any,
    draws: Int[np.ndarray, " draw"],
    options: CheckOptions,
    work: ReplicationWork,
) -> Replicates:
    """Return summaries of the data and of replicates at some draws of every chain."""
    rows = model_rows(rows, model, keep=options.columns, refuses_text=False, is_fit=False)
    stream = RowStream(rows)
    plan = partial(planned_prediction, tree, model, stream, options.name, reduction=as_drawn)
    whole = plan(chosen=draws, key=work.key)
    observed = _observed_rows(rows, whole, options)
    response = options.response(whole.trial.name, observed.observed, None)
    num_groups = 1 if observed.labels is None else len(observed.labels)
    max_points = _max_points(len(whole.work.points), num_groups)

    def parts() -> Iterator[Parts]:
        numbers, num_values = None, 0
        if response.keep_values:
            sizes = [len(values) for values, _ in observed.blocks(whole.block_rows)]
            numbers = observed.row_numbers(sum(sizes))
            num_values = num_chains * sum(sizes) * int(np.prod(whole.trial.shape))
        data = observed.blocks(whole.block_rows)
        yield _summaries(data, response, numbers, max_points)
        for first, block in draw_blocks(draws, num_values, MAX_VALUE_BYTES):
            prediction = plan(chosen=block, key=jax.random.fold_in(work.key, first))
            results = prediction.run(prediction.blocks(), work.executor, work.advance)
            drawn = (result["draws"] for result in results)
            groups = (codes for _, codes in observed.blocks(prediction.block_rows))
            values = zip(drawn, groups, strict=True)
            yield _summaries(values, response, numbers, max_points)

    num_chains = tree["posterior"].sizes["chain"]
    return Replicates(response.name, observed.labels, parts())


def _observed_rows(rows: Any, prediction: Prediction, options: CheckOptions) -> ObservedRows:
    """Find the columns of the data's values and of the groups; raise one clear error if absent."""
    is_path = isinstance(rows, str | os.PathLike)
    stream = RowStream(FileRows(rows) if is_path else rows)
    columns = first_rows(stream)
    chosen = options.observed
    if chosen is None and prediction.trial.name not in columns:
        chosen = _unused_column(prediction, columns, options.by)
    name = checked_observed(chosen, prediction.trial.name, columns)
    shape, expected = columns[name].shape[1:], prediction.trial.shape
    if shape != expected:
        raise ValueError(
            f"the model must simulate {prediction.trial.name!r} with the shape of the rows of "
            f"rows[{name!r}], {shape}; got {expected}."
        )
    if options.by is None:
        return ObservedRows(stream, name)
    check_by(options.by, columns)
    return ObservedRows(stream, name, options.by, _all_labels(stream, options.by))


def _unused_column(
    prediction: Prediction, columns: Mapping[str, np.ndarray], by: str | None
) -> str | None:
    """Return the column that the model is fitted to but predicts without, if there is one."""
    model, simulator = prediction.model, prediction.model.simulate_rows
    groups = model.local.groups if model.local else None
    known = [name for name in model.columns or columns if name in columns]
    if isinstance(simulator, AbstractHostSimulator):
        known = [name for name in simulator.known_columns if name in columns]
        unused = [name for name in known if name not in simulator.columns]
    else:
        unused = [
            name
            for name in known
            if name != groups and _predicts_without(prediction, columns, name)
        ]
    unused = [name for name in unused if name not in (groups, by)]
    return unused[0] if len(unused) == 1 else None


def _predicts_without(prediction: Prediction, columns: Mapping[str, np.ndarray], name: str) -> bool:
    others = RowStream({key: column for key, column in columns.items() if key != name})
    extra = group_columns(prediction.local, others)
    try:
        try_model(prediction.model, others, prediction.trial.name, extra)
    except ValueError:
        return False
    return True


def _all_labels(stream: RowStream, by: str) -> np.ndarray:
    """Return the different values of a column, in increasing order."""
    labels = np.zeros(0)
    for number, batch in enumerate(stream.batches()):
        own = np.unique(row_labels(batch, by))
        labels = np.union1d(labels, own) if number else own
        check_num_groups(by, len(labels))
    return labels


def _max_points(num_draws: int, num_groups: int) -> int:
    """Return how many order statistics of each group are kept."""
    num_points = MAX_SUMMARY_BYTES // (8 * num_draws * num_groups)
    return int(np.clip(num_points, MIN_POINTS, MAX_POINTS))


def _summaries(
    blocks: Iterable[ValueBlock],
    response: Response,
    numbers: Int[np.ndarray, " row"] | None,
    max_points: int,
) -> Parts:
    """Return the summaries of all blocks; numbers of rows are needed if values are kept."""
    return merged_blocks(_parts(blocks, response, numbers), max_points)


def _parts(
    blocks: Iterable[ValueBlock], response: Response, numbers: Int[np.ndarray, " row"] | None
) -> Iterator[Parts]:
    first = 0
    for values, groups in blocks:
        own = np.zeros(0, int) if numbers is None else numbers[first : first + len(values)]
        first += len(values)
        parts = parts_of(values, groups, response)
        yield {
            group: part._replace(rows=own[part.rows] if len(own) else own)
            for group, part in parts.items()
        }
