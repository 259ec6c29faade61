"""The verb `predict`: values of new rows under the posterior, drawn by the model.

New rows are read in their order and simulated block by block. By default only the mean, sd and
quantiles of every row are returned, or written to a file.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from .._runtime import limit_programs
from ..data.group_labels import checked_labels
from ..data.partition import check_seed
from ..data.row_blocks import RowStream, blocks_of, checked_batches, num_entries
from ..data.row_order import row_numbers
from ..executors import AbstractExecutor, executor_of
from ..model import Model
from ..models.host_simulator import AbstractHostSimulator
from ..progress import ProgressDisplay, ProgressMode
from ..results.prediction_files import PredictionFile, check_out
from .arguments import check_integer, check_model, check_result
from .model_rows import model_rows
from .pointwise import Pointwise
from .prediction_blocks import Block, BlockWork, as_drawn, map_blocks, summarized
from .prediction_groups import LocalDraws, identity, local_draws
from .prediction_trial import Trial, first_rows, index_check, try_model
from .result_points import posterior_points, spaced_draws

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

ROW_DIM = "row"
PREDICTION_STREAM = 4  # of the seed's random numbers; the first ones are those of `infer`
MAX_BLOCK_BYTES = 2**24  # of values, local draws or rows of a block; copies of it come on top
PART_ROWS = 2**17  # at least, of a part of a file: what a run that was killed has to repeat
NUM_TRIAL_DRAWS = 3  # whose values identify a model


def predict(
    tree: "DataTree",
    model: Model,
    rows: Any,
    name: str | None = None,
    *,
    out: str | Path | None = None,
    draws: bool = False,
    num_draws: int | None = None,
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
) -> "Dataset | Path":
    """Predict values of new rows: draw them from the model at draws of the posterior.

    Rows of groups that the model was fitted to use their local draws. Local parameters of other
    groups are drawn from their prior given each draw of the global ones.

    Args:
        tree: a result of `infer`, `combine` or `refine`.
        model: the model, from `from_numpyro` or `from_pymc`, or with `simulate=`.
        rows: new rows, as `infer` takes them; they need not have the column that is predicted.
        name: what to predict, e.g. the observed site "y"; it may be left out if there is only one.
        out: a Parquet file to write to, e.g. "predictions.parquet". The same call resumes one that
            was interrupted.
        draws: return all draws, of shape (chain, draw, row, …), in place of their mean, sd and
            quantiles.
        num_draws: number of posterior draws to use, evenly spaced; by default all.
        executor: where rows are simulated; by default `executors.Local()`.
        seed: seed of the values that are drawn.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.

    Returns:
        A dataset with the variables `mean`, `sd`, `q05`, `q50` and `q95` along `row`, in the order
        of the rows; with `draws=True`, with one variable, `name`. With `out`, the path of the file,
        whose columns are these variables.
    """
    check_result(tree)
    check_simulates(model)
    check_seed(seed)
    stream = RowStream(model_rows(rows, model, refuses_text=False, is_fit=False))
    path = None if out is None else _check_out(out, stream, draws)
    points = posterior_points(tree, model)
    if num_draws is not None:
        check_integer("num_draws", num_draws, 1)
    chosen = spaced_draws(points, num_draws)
    key = jax.random.fold_in(jax.random.key(seed), PREDICTION_STREAM)
    reduction = as_drawn if draws else summarized
    prediction = planned_prediction(tree, model, stream, name, chosen, key, reduction)
    with ProgressDisplay(progress) as display:
        stage = display.stage("predict", stream.num_rows)
        run = partial(prediction.run, executor=executor_of(executor), advance=stage.advance)
        if path is not None:
            _write(path, prediction, run, stage.advance, seed)
            stage.finish()
            return path
        parts = list(run(prediction.blocks()))
        stage.finish()
    return _dataset(parts, stream, prediction.trial.name, (len(points), len(chosen)))


def planned_prediction(
    tree: "DataTree",
    model: Model,
    stream: RowStream,
    name: str | None,
    chosen: Int[np.ndarray, " draw"],
    key: Array,
    reduction: Callable[[np.ndarray], Pointwise],
) -> "Prediction":
    """Return the prediction of rows at chosen draws of every chain, after a trial."""
    points = posterior_points(tree, model)[:, chosen]
    local = local_draws(tree, model, chosen)
    trial = try_model(model, stream, name, group_columns(local, stream))
    limit_programs(model)
    data = np.asarray(jax.random.key_data(key))
    work = BlockWork(points.reshape(-1, points.shape[2]), data, trial.name, reduction)
    return Prediction(model, stream, local, trial, work)


@dataclass(frozen=True, eq=False)
class Prediction:
    """New rows, and how they are cut into blocks.

    Attributes:
        model: the model.
        stream: the rows.
        local: local draws of known groups, if the model has groups.
        trial: what is predicted, and from which columns.
        work: what is done with a block.
    """

    model: Model
    stream: RowStream
    local: LocalDraws | None
    trial: Trial
    work: BlockWork

    @property
    def block_rows(self) -> int:
        """The number of rows of a block: as many as memory allows."""
        numbers = int(np.prod(self.trial.shape))
        if self.model.local is not None:
            numbers += sum(int(np.prod(part.shape)) for part in self.model.local.space.values())
        row_bytes = max(8 * len(self.work.points) * numbers, self.trial.row_bytes)
        return max(1, MAX_BLOCK_BYTES // row_bytes)

    @property
    def part_blocks(self) -> int:
        """The number of blocks of a part of a file."""
        return max(1, PART_ROWS // self.block_rows)

    def blocks(self, first: int = 0) -> Iterator[Block]:
        """Yield blocks from the one with this number on."""
        groups = self.model.local.groups if self.model.local else None
        raw = blocks_of(checked_batches(self.stream, self.trial.columns, groups), self.block_rows)
        size = None
        check = index_check(self.model)
        for number, rows in enumerate(raw):
            check({name: array for name, array in rows.items() if name != groups})
            if size is None:  # the only block, if it is not full, is padded less
                count = num_entries(rows)
                size = min(self.block_rows, 1 << (count - 1).bit_length())
            if number >= first:
                yield self._block(number, rows, size)

    def _block(self, number: int, rows: dict[str, np.ndarray], size: int) -> Block:
        count = num_entries(rows)
        groups = None
        if self.local is not None:
            labels = rows[self.local.local.groups]
            groups = self.local.groups(labels, size)
            rows = {
                **rows,
                **self.local.columns(labels),
                self.local.local.groups: groups.places[:count],
            }
        return Block(number, count, {name: _padded(a, size) for name, a in rows.items()}, groups)

    def run(
        self,
        blocks: Iterator[Block],
        executor: AbstractExecutor,
        advance: Callable[[int], None],
    ) -> Iterator[Pointwise]:
        """Yield the reduced values of blocks, in their order."""
        return map_blocks(self.work, self.model, blocks, executor, advance)

    def about(self, seed: int) -> dict[str, Any]:
        """Return what identifies the prediction, as plain data."""
        points = np.ascontiguousarray(self.work.points)
        digest = hashlib.blake2b(points.data, digest_size=16).hexdigest()
        few = BlockWork(points[:NUM_TRIAL_DRAWS], self.work.key, self.work.name, as_drawn)
        block = next(self.blocks())
        if block.groups is not None:
            known = {name: v[:NUM_TRIAL_DRAWS] for name, v in block.groups.known.items()}
            block = block._replace(groups=block.groups._replace(known=known))
        sums = few.values(self.model, block).reshape(len(few.points), -1).sum(axis=1)
        return {
            "name": self.trial.name,
            "seed": int(seed),
            "draws": [list(points.shape), digest, identity(self.local)],
            "rows": self.stream.fingerprint(),
            "model": [f"{value:.10g}" for value in sums],
            "blocks": [self.block_rows, self.part_blocks],
        }


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([array, np.repeat(array[:1], size - len(array), axis=0)])


def _write(
    path: Path,
    prediction: Prediction,
    run: Callable[[Iterator[Block]], Iterator[Pointwise]],
    advance: Callable[[int], None],
    seed: int,
) -> None:
    """Write predictions to a file part by part, from the first part that it lacks."""
    file = PredictionFile(path, prediction.about(seed))
    if file.is_complete():
        file.discard_parts()
        return
    with file.writing() as number:
        done = number * prediction.part_blocks
        advance(done * prediction.block_rows)
        results = run(prediction.blocks(done))
        while part := list(islice(results, prediction.part_blocks)):
            file.write_part(number, _joined(part))
            number += 1
        file.finish(number)


def _joined(parts: list[Pointwise]) -> Pointwise:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def group_columns(local: LocalDraws | None, stream: RowStream) -> dict[str, np.ndarray]:
    """Return the covariates of the first rows' groups, if the model has a table of groups."""
    if local is None or (labels := first_rows(stream).get(local.local.groups)) is None:
        return {}
    return local.columns(checked_labels(labels, f"rows[{local.local.groups!r}]"))


def _check_out(out: Any, stream: RowStream, draws: bool) -> Path:
    if draws:
        raise ValueError(
            "draws=True returns all draws in memory, and out= writes mean, sd and quantiles to a "
            "file: leave one of them out."
        )
    if not stream.is_in_order:
        raise ValueError(
            "out= needs rows in their order, and those of vcmc.split(..., folder=...) are "
            "shuffled: pass the files that were split."
        )
    return check_out(out)


def check_simulates(model: Any) -> None:
    """Raise an error unless the argument is a model that says how its rows are drawn."""
    check_model(model)
    simulator = model.simulate_rows
    if isinstance(simulator, AbstractHostSimulator) and not simulator.names:
        raise ValueError("the model has no observed variable, so there is nothing to predict.")
    if simulator is not None:
        return
    arguments = "key, params, rows" if model.local is None else "key, params, local, rows"
    raise ValueError(
        "the model does not say how rows are drawn: write vcmc.Model(..., simulate=lambda "
        f'{arguments}: {{"y": ...}}), or use from_numpyro or from_pymc.'
    )


def _dataset(
    parts: list[Pointwise], stream: RowStream, name: str, counts: tuple[int, ...]
) -> "Dataset":
    from xarray import Dataset

    arrays = _joined(parts)
    num_rows = num_entries(arrays)
    if not stream.is_in_order:
        numbers = row_numbers(stream.rows, stream.rows.sizes)
        order = np.argsort(np.fromiter(chain.from_iterable(numbers), int, num_rows))
        arrays = {key: array[order] for key, array in arrays.items()}
    coords = {ROW_DIM: np.arange(num_rows)}
    if "draws" in arrays:
        values: Float[np.ndarray, "draw row *axes"] = np.moveaxis(arrays["draws"], 1, 0)
        values = values.reshape(*counts, *values.shape[1:])
        dims = ["chain", "draw", ROW_DIM, *(f"{name}_dim_{i}" for i in range(values.ndim - 3))]
        return Dataset({name: (dims, values)}, coords)
    dims = [ROW_DIM, *(f"{name}_dim_{i}" for i in range(arrays["mean"].ndim - 1))]
    return Dataset({key: (dims, array) for key, array in arrays.items()}, coords)
