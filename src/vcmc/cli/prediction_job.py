"""The job behind `vcmc predict`: from a run, a model and a file of new rows to a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data.columns import Columns
from ..data.row_blocks import RowStream
from ..data.size import FileRows
from ..errors import StoreError
from ..inference.assessment import weights_of
from ..inference.prediction import predict
from ..model import Model
from .inputs import (
    GroupNames,
    columns_in_data,
    load_model,
    load_model_and_rows,
    load_result,
    load_rows,
    parse_executor,
)
from .update_job import first_rows


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
    chosen = columns_in_data(data, columns, model, names)
    chosen = None if chosen is None else _present(data, chosen)
    rows = _rows(data, chosen)
    if fitted is not None:
        chosen = columns_in_data(fitted, columns, model, names)
        loaded_model, _ = load_model_and_rows(model, fitted, chosen, names)
    elif (known := _fitted_rows(Path(path), weights_of(tree, None))) is not None:
        loaded_model = load_model(model, known, names)
    else:
        loaded_model = _model_of_new_rows(model, data, chosen, names)
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


def _fitted_rows(path: Path, weights: str | None) -> dict[str, Any] | None:
    """Return the rows of a shard of a run directory; None if it is none, or has no rows."""
    if not path.is_dir():
        return None
    try:
        return first_rows(path, weights)
    except StoreError:
        return None


def _present(path: str, columns: Columns) -> Columns:
    """Return columns without the arrays of one that new rows lack, e.g. the predicted one."""
    present = next(RowStream(_rows(path, None)).batches())
    kept = {
        name: source
        for name, source in columns.items()
        if not isinstance(source, str) or source in present
    }
    return kept or columns


def _model_of_new_rows(
    location: str, data: str, columns: Columns | None, names: GroupNames
) -> Model:
    """Return the model, whose shapes are learnt from the new rows."""
    try:
        return load_model_and_rows(location, data, columns, names)[0]
    except ValueError as error:
        raise ValueError(
            f"{error} These are the new rows: pass --fitted-to with the file that the model was "
            "fitted to, from which shapes are learnt."
        ) from error
