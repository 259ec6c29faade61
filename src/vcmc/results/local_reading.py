"""The verb `load_locals`: read local draws of some groups from the files of a run directory."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from ..data.group_labels import named_labels
from ..data.labels import default_dim
from ..errors import StoreError
from .local_files import CHAIN, DRAW, LocalIndex, LocalsFolder, check_pyarrow
from .states import current_run

if TYPE_CHECKING:
    from xarray import Dataset


def load_locals(
    store: str | Path, groups: Any = None, names: str | Iterable[str] | None = None
) -> "Dataset":
    """Return local draws of a run that was made with `infer(..., store=..., locals="file")`.

    Only the files, the parts of them and the columns that are needed are read.

    Args:
        store: the run directory.
        groups: a label, or a list of labels; by default all groups, which may not fit into memory.
        names: a local parameter, or several; by default all.

    Returns:
        An `xarray.Dataset` whose variables have the axes chain, draw, the groups in the order in
        which they were asked for, and those of the parameter.
    """
    check_pyarrow()
    folder = current_run(store).locals
    index = folder.index()
    if index is None:
        raise StoreError(
            f"{folder.path} has no complete local draws. Repeat the call of infer with "
            'store=... and locals="file" to make them, or to resume the run.'
        )
    numbers = np.arange(len(index.labels)) if groups is None else _numbers(index, groups)
    return _dataset(index, numbers, _read(folder, index, numbers, _chosen_names(index, names)))


def _numbers(index: LocalIndex, groups: Any) -> Int[np.ndarray, " group"]:
    """Return the numbers of groups by their labels."""
    is_one = isinstance(groups, str | bytes) or not isinstance(groups, Iterable)
    wanted = np.asarray([groups] if is_one else list(groups))
    known = index.labels
    if known.dtype.kind in "Mm" and wanted.dtype.kind in "OUMm":
        wanted = _as_dates(wanted, known.dtype)
    if (wanted.dtype.kind in "US") != (known.dtype.kind in "US"):
        raise _unknown(index, wanted)
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
    numbers = order[places]
    if (is_unknown := known[numbers] != wanted).any():
        raise _unknown(index, wanted[is_unknown])
    return numbers


def _as_dates(wanted: np.ndarray, dtype: Any) -> np.ndarray:
    try:
        return wanted.astype(dtype)
    except (TypeError, ValueError):
        return wanted


def _unknown(index: LocalIndex, wanted: np.ndarray) -> ValueError:
    return ValueError(
        f"groups must be labels of {index.column!r}, e.g. {named_labels(index.labels)}; "
        f"{len(wanted)} are unknown: {named_labels(wanted)}."
    )


def _chosen_names(index: LocalIndex, names: str | Iterable[str] | None) -> list[str]:
    chosen = (
        list(index.shapes) if names is None else [names] if isinstance(names, str) else [*names]
    )
    if unknown := [name for name in chosen if name not in index.shapes]:
        raise ValueError(
            f"names must be local parameters, {list(index.shapes)}; got {unknown[0]!r}."
        )
    return chosen


def _read(
    folder: LocalsFolder, index: LocalIndex, numbers: Int[np.ndarray, " group"], names: list[str]
) -> dict[str, np.ndarray]:
    """Return arrays (group, chain, draw, …) of the chosen groups and names."""
    shape = (len(numbers), index.num_chains, index.num_draws)
    arrays: dict[str, np.ndarray] = {}
    for file in np.unique(index.files[numbers]).tolist():
        chosen = np.flatnonzero(index.files[numbers] == file)
        places = index.places[numbers[chosen]]
        for few, part in _row_groups(folder.parquet(file), index, places, names):
            for name, values in part.items():
                if name not in arrays:
                    arrays[name] = np.empty((*shape, *index.shapes[name]), values.dtype)
                arrays[name][chosen[few]] = values.reshape(-1, *shape[1:], *index.shapes[name])
    return arrays


def _row_groups(
    path: Path, index: LocalIndex, places: Int[np.ndarray, " group"], names: list[str]
) -> Any:
    """Yield, for each row group that is needed, which of the places it has, and their values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    num_draws = index.num_chains * index.num_draws
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            sizes = [
                file.metadata.row_group(number).num_rows // num_draws
                for number in range(file.metadata.num_row_groups)
            ]
            ends = np.cumsum(sizes)
            holders = np.searchsorted(ends, places, side="right")
            for holder in np.unique(holders).tolist():
                few = np.flatnonzero(holders == holder)
                within = places[few] - (ends[holder] - sizes[holder])
                table = file.read_row_group(holder, columns=names)
                yield (
                    few,
                    {
                        name: _values(table.column(name)).reshape(sizes[holder], -1)[within]
                        for name in names
                    },
                )
    except (pa.ArrowException, OSError, IndexError, KeyError) as error:
        raise StoreError(
            f"{path} cannot be read ({type(error).__name__}: {error}). Repeat the call of infer, "
            "which draws what is missing or damaged again."
        ) from error


def _values(column: Any) -> np.ndarray:
    """Return the numbers of a column; those of lists one after the other."""
    import pyarrow as pa

    column = column.combine_chunks()
    if pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    return column.to_numpy(zero_copy_only=False)


def _dataset(
    index: LocalIndex, numbers: Int[np.ndarray, " group"], arrays: dict[str, np.ndarray]
) -> "Dataset":
    from xarray import Dataset  # slow to import

    variables = {}
    for name, array in arrays.items():
        axes = [default_dim(name, axis + 1) for axis in range(len(index.shapes[name]))]
        variables[name] = ([CHAIN, DRAW, index.column, *axes], np.moveaxis(array, 0, 2))
    coords = {
        CHAIN: np.arange(index.num_chains),
        DRAW: np.arange(index.num_draws),
        index.column: index.labels[numbers],
    }
    return Dataset(variables, coords)
