"""The job behind `vcmc predict`: from a run, a model and a file of new rows to a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..data.columns import Columns
from ..data.files import MANIFEST, FilePartition
from ..data.row_blocks import RowStream
from ..data.size import FileRows
from ..inference.prediction import predict
from ..model import Model
from .inputs import GroupNames, columns_in_data, load_model, load_result, load_rows, parse_executor
from .jobs import ROWS


def predict_rows(
    path: str,
    model: str,
    data: str,
    out: Path,
    columns: Columns | None,
    names: GroupNames,
    *,
    fitted: str | None = None,
    name: str | None = None,
    num_draws: int | None = None,
    seed: int = 0,
    executor: str = "local",
) -> Path:
    """Predict the rows of a data file, and write them to a Parquet file.

    Args:
        path: a run directory or an ArviZ file.
        model: where the model is defined.
        data: the new rows.
        out: the file to write.
        columns: the arrays to make of the columns of a file.
        names: what the groups are, if there are any.
        fitted: the rows that the model was fitted to, to learn shapes from.
        name: what to predict.
        num_draws: number of posterior draws to use.
        seed: seed of the values.
        executor: where rows are simulated.
    """
    tree = load_result(path)
    rows = _new_rows(data, columns_in_data(data, columns))
    fitted_rows = None if fitted is None else _rows(fitted, columns_in_data(fitted, columns))
    loaded_model = _model(path, model, rows, fitted_rows, names)
    pool = parse_executor(executor)
    try:
        predict(
            tree,
            loaded_model,
            rows,
            name,
            out=out,
            num_draws=num_draws,
            executor=pool,
            seed=seed,
            progress="lines",
        )
    finally:
        pool.close()
    return out


def _rows(path: str, columns: Columns | None) -> Any:
    rows = load_rows(path, columns)
    return rows if isinstance(rows, Mapping) else FileRows(rows, columns)


def _new_rows(path: str, columns: Columns | None) -> Any:
    """Return new rows, without the arrays of a column that they lack, e.g. the predicted one."""
    if columns is None:
        return _rows(path, None)
    present = _first(_rows(path, None))
    kept = {
        name: source
        for name, source in columns.items()
        if not isinstance(source, str) or source in present
    }
    return _rows(path, kept or columns)


def _model(path: str, location: str, rows: Any, fitted: Any, names: GroupNames) -> Model:
    """Return the model, whose shapes are learnt from the rows that it was fitted to, if known."""
    folder = Path(path) / ROWS
    if fitted is not None:
        return load_model(location, _first(fitted), names)
    if (folder / MANIFEST).exists():
        shard = FilePartition(folder).load(0)
        is_row = np.asarray(shard.weights) > 0
        arrays = {name: np.asarray(array)[is_row] for name, array in shard.rows.items()}
        return load_model(location, arrays, names)
    try:
        return load_model(location, _first(rows), names)
    except ValueError as error:
        raise ValueError(
            f"{error} These are the new rows: pass --fitted-to with the file that the model was "
            "fitted to, from which shapes are learnt."
        ) from error


def _first(rows: Any) -> dict[str, Any]:
    """Return the arrays, or the first batch of a file."""
    for batch in RowStream(rows).batches():
        return batch
    raise ValueError("rows must hold at least one row; got none.")
