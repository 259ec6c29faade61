"""The jobs behind the commands: run a model, combine files of draws, assess, refine.

Each job takes paths and returns a result.
"""

import contextlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..data.columns import Columns
from ..data.files import MANIFEST, FilePartition
from ..data.partition import split
from ..data.shard import AbstractPartition
from ..data.size import FileRows
from ..diagnostics.verdict import Diagnosis
from ..inference.assessment import weights_of
from ..inference.combination import combine
from ..inference.cross_validation import loo
from ..inference.diagnosis import diagnose
from ..inference.local_tasks import LocalsMode
from ..inference.marginal_likelihood import LogEvidence, evidence
from ..inference.model_rows import model_rows
from ..inference.pipeline import infer
from ..inference.refinement import refine
from ..model import Model
from ..results.checked_files import write
from ..results.draw_files import read_draws, read_tree
from ..results.draws import named_draws, shapes_of
from ..results.lock import locked
from .inputs import (
    NO_GROUPS,
    GroupNames,
    columns_in_data,
    load_model_and_rows,
    load_result,
    parse_draws,
    parse_executor,
    parse_spaces,
    with_column,
)

if TYPE_CHECKING:
    from arviz_stats import ELPDData
    from xarray import DataTree

# Files of a run directory that the command line adds
COMMAND, ROWS = "command.txt", "rows"


def run_model(
    model: str,
    data: str,
    out: Path,
    *,
    num_shards: int | None,
    num_draws: int | None,
    shard_draws: int | None,
    error: float | None,
    seed: int,
    executor: str,
    columns: Columns | None,
    names: GroupNames = NO_GROUPS,
    locals_mode: LocalsMode | None = None,
    weights: str | None = None,
    refined: bool,
    command: str,
) -> "DataTree":
    """Sample the model of a Python file on the rows of a data file, in a run directory.

    Args:
        model: the model, as `file.py:name`.
        data: the data file.
        out: the run directory.
        num_shards: number of shards; None lets vcmc choose it.
        num_draws: draws of the posterior, as in `infer`.
        shard_draws: draws of every shard, as in `infer`.
        error: the error to reach, as in `infer`.
        seed: random seed.
        executor: the executor, as `parse_executor` takes it.
        columns: columns of the data by name of the model's array.
        names: what the groups are, if there are any.
        locals_mode: how local parameters are reported, as in `infer`.
        weights: the column of the data with the weights of rows.
        refined: whether to refine the combined draws.
        command: the command as typed, which the run directory stores.
    """
    columns = with_column(columns_in_data(data, columns, model, names), weights)
    loaded_model, rows = load_model_and_rows(model, data, columns, names, weights)
    pool = parse_executor(executor)
    try:
        with locked(out.absolute()):
            tree = infer(
                loaded_model,
                rows if isinstance(rows, Mapping) else FileRows(rows, columns),
                num_shards=num_shards,
                seed=seed,
                num_draws=num_draws,
                shard_draws=shard_draws,
                error=error,
                executor=pool,
                store=out,
                refine=refined,
                locals=locals_mode,
                weights=weights,
                progress="lines",
            )
            write(out.absolute() / COMMAND, f"{command}\n".encode())
            return tree
    finally:
        pool.close()


def _split(
    model: Model,
    path: str,
    num_shards: int,
    seed: int,
    columns: Columns | None,
    folder: Path | None,
    weights: str | None = None,
) -> AbstractPartition:
    """Split the rows of a file; they are written to a folder, or reused if they are in it."""
    rows = model_rows(FileRows(path, columns), model, weights)
    return split(
        rows.path,
        num_shards,
        seed=seed,
        groups=model.local.groups if model.local else None,
        columns=rows.columns,
        levels=rows.levels,
        folder=folder,
        progress="lines",
    )


def combine_files(
    files: Sequence[str],
    out: Path,
    seed: int,
    *,
    one_file_per_shard: bool = False,
    chains: bool | None = None,
    spaces: Mapping[str, str] = MappingProxyType({}),
    model: str | None = None,
    data: str | None = None,
    columns: Columns | None = None,
) -> "DataTree":
    """Combine files of draws, and write the result.

    Args:
        files: the files of every shard, as `parse_draws` takes them.
        out: the ArviZ file to write.
        seed: random seed.
        one_file_per_shard: whether the user says that every file is a shard.
        chains: whether arrays in NumPy files have an axis of chains; None if not told.
        spaces: kinds of spaces by parameter, as `parse_spaces` takes them.
        model: the model, as `file.py:name`.
        data: the file of all rows; with it and the model the result is assessed.
        columns: columns of the data by name of the model's array.
    """
    shards = parse_draws(files, one_file_per_shard)
    _check_output(
        out, *(path for shard in shards for path in ([shard] if isinstance(shard, str) else shard))
    )
    draws = read_draws(shards, chains=chains)
    if model is None or data is None:
        space = parse_spaces(spaces, shapes_of(named_draws(draws)))
        tree = combine(draws, space=space, seed=seed, progress="lines")
    else:
        columns = columns_in_data(data, columns, model)
        loaded_model, rows = load_model_and_rows(model, data, columns)
        if not isinstance(rows, Mapping):
            rows = _split(loaded_model, rows, len(shards), seed, columns, None)
        tree = combine(draws, model=loaded_model, rows=rows, seed=seed, progress="lines")
    _write_tree(tree, out)
    return tree


def diagnose_result(
    path: str,
    model: str | None,
    data: str | None,
    columns: Columns | None,
    names: GroupNames = NO_GROUPS,
) -> tuple["DataTree", Diagnosis]:
    """Load a result, and diagnose it with a model and data or return its stored diagnosis."""
    tree = load_result(path)
    if model is None or data is None:
        return tree, diagnose(tree)
    weights = weights_of(tree, None)
    columns = with_column(columns_in_data(data, columns, model, names), weights)
    loaded_model, rows = load_model_and_rows(model, data, columns, names, weights)
    partition = split_as_before(path, loaded_model, rows, tree, columns)
    return tree, diagnose(tree, loaded_model, partition)


def refine_result(
    path: str,
    model: str,
    data: str,
    out: Path,
    columns: Columns | None,
    seed: int,
    names: GroupNames = NO_GROUPS,
) -> "DataTree":
    """Refine a result, and write the refined one."""
    _check_output(out, path)
    tree = load_result(path)
    weights = weights_of(tree, None)
    columns = with_column(columns_in_data(data, columns, model, names), weights)
    loaded_model, rows = load_model_and_rows(model, data, columns, names, weights)
    partition = split_as_before(path, loaded_model, rows, tree, columns)
    refined = refine(tree, loaded_model, partition, seed=seed, progress="lines")
    _write_tree(refined, out)
    return refined


def leave_one_out(
    path: str,
    model: str,
    data: str,
    columns: Columns | None,
    names: GroupNames = NO_GROUPS,
    *,
    num_draws: int | None = None,
    moment_matching: bool = False,
    executor: str = "local",
) -> "ELPDData":
    """Assess a result by leave-one-out cross-validation on the rows of a data file."""
    tree = load_result(path)
    columns = columns_in_data(data, columns, model, names)
    loaded_model, rows = load_model_and_rows(model, data, columns, names)
    partition = split_as_before(path, loaded_model, rows, tree, columns)
    pool = parse_executor(executor)
    try:
        return loo(
            tree,
            loaded_model,
            partition,
            num_draws=num_draws,
            moment_matching=moment_matching,
            executor=pool,
            progress="lines",
        )
    finally:
        pool.close()


def log_evidence(
    path: str,
    model: str,
    data: str,
    columns: Columns | None,
    names: GroupNames = NO_GROUPS,
    *,
    num_draws: int,
    seed: int = 0,
    executor: str = "local",
) -> LogEvidence:
    """Estimate the log marginal likelihood of a result's model on the rows of a data file."""
    tree = load_result(path)
    weights = weights_of(tree, None)
    columns = with_column(columns_in_data(data, columns, model, names), weights)
    loaded_model, rows = load_model_and_rows(model, data, columns, names, weights)
    partition = split_as_before(path, loaded_model, rows, tree, columns)
    pool = parse_executor(executor)
    try:
        return evidence(
            tree, loaded_model, partition, num_draws=num_draws, executor=pool, seed=seed
        )
    finally:
        pool.close()


def split_as_before(
    path: str, model: Model, rows: Any, tree: "DataTree", columns: Columns | None
) -> Any:
    """Return the partition of a run, which its directory may hold; arrays need none."""
    if isinstance(rows, Mapping):
        return rows
    num_shards, seed = int(tree.attrs.get("num_shards", 1)), int(tree.attrs.get("seed", 0))
    folder = Path(path) / ROWS if Path(path).is_dir() and "update" not in tree.attrs else None
    if folder is not None and (folder / MANIFEST).exists():
        source = FilePartition(folder).source
        folder = folder if "rows" in source else None  # else rows were given in memory
    return _split(model, rows, num_shards, seed, columns, folder, weights_of(tree, None))


def _check_output(out: Path, *inputs: str) -> None:
    """Raise an error before the work begins if the result cannot or must not be written."""
    if out.suffix != ".nc":
        raise ValueError(f"--out must be an ArviZ file, e.g. posterior.nc; got {out}.")
    if not out.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {out.absolute().parent} to write {out.name} to. Create it first."
        )
    if importlib.util.find_spec("h5netcdf") is None:
        raise ImportError("writing ArviZ files needs h5netcdf. Try: pip install 'vcmc[netcdf]'")
    if out.exists():
        if any(Path(path).exists() and out.samefile(path) for path in inputs):
            raise ValueError(f"--out must be another file than the input; got {out}.")
        if not _is_own_result(out):
            raise ValueError(
                f"{out} exists and is not a result of vcmc: it is not overwritten. Delete it, or "
                "choose another name with --out."
            )


def _is_own_result(path: Path) -> bool:
    try:
        versions = read_tree(path).attrs.get("versions", [])
    except ValueError:
        return False
    return any(str(package).startswith("vcmc ") for package in versions)


def _write_tree(tree: "DataTree", out: Path) -> None:
    new = out.with_name(f"{out.stem}.{os.getpid()}.new.nc")
    try:
        tree.to_netcdf(new, engine="h5netcdf")
        new.replace(out)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise OSError(f"{out} cannot be written: {error}. Try another folder.") from error
