"""What the command line does: run a model of a Python file on rows of a file, combine files of draws, diagnose, refine.

Each job takes paths and returns a tree; what is wrong with a path is one error that says what was expected.
"""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from .. import executors
from ..data.files import Columns, batches, choose_columns
from ..data.partition import split
from ..data.rows import as_rows
from ..data.shard import AbstractPartition
from ..diagnostics.verdict import Diagnosis
from ..inference.combination import combine
from ..inference.diagnosis import diagnose
from ..inference.pipeline import infer
from ..inference.refinement import refine
from ..model import Model
from ..models.frontends.numpyro import from_numpyro
from ..models.frontends.pymc import from_pymc, is_pymc
from ..results.draw_files import read_draws, read_tree
from ..results.loading import load
from ..results.report_page import report
from ..results.store import Store, write

if TYPE_CHECKING:
    from xarray import DataTree


COMMAND = "command.txt"  # in a run directory: what was typed


def named_model(where: str, rows: Any) -> Model:
    """The model that `file.py:name` says: a `Model`, or a NumPyro or PyMC model, whose shapes are learnt from some rows."""
    path, _, name = where.rpartition(":")
    if not path or not name:
        raise ValueError(
            f"a model is named as file.py:name, such as model.py:model; got {where!r}."
        )
    inside = _module(Path(path)).__dict__
    found = inside.get(name)
    if found is None:
        public = [each for each in inside if not each.startswith("_")]
        raise ValueError(f"there is no {name!r} in {path}; there are {public}.")
    if isinstance(found, Model):
        return found
    if is_pymc(found):
        return from_pymc(found, rows)
    if callable(found):
        return from_numpyro(found, rows)
    raise TypeError(
        f"{where} must be a vcmc.Model, a NumPyro model (a function) or a pymc.Model; got {type(found).__name__}."
    )


def _module(path: Path) -> Any:
    """A Python file as a module, whose functions travel to other processes as they are."""
    if path.suffix != ".py" or not path.exists():
        raise FileNotFoundError(f"there is no Python file {path} (looked in {Path.cwd()}).")
    name = f"vcmc_model_{path.stem}"
    if name in sys.modules and sys.modules[name].__file__ == str(path.absolute()):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"{path} could not be run: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)
    return module


def rows_of(path: str, columns: Columns | None) -> Any:
    """Rows in a file: a path that is read batch by batch, or the arrays of a NumPy file."""
    file = Path(path)
    if file.suffix != ".npz":
        return path
    if not file.exists():
        raise FileNotFoundError(f"there is no file {path} (looked in {Path.cwd()}).")
    with np.load(file, allow_pickle=False) as kept:
        return as_rows(choose_columns({name: kept[name] for name in kept.files}, columns))


def some_rows(rows: Any, columns: Columns | None) -> Any:
    """Some rows to learn shapes from."""
    if isinstance(rows, Mapping):
        return rows
    for batch in batches(rows):
        return as_rows(choose_columns(batch, columns))
    raise ValueError(f"{rows} has no rows.")


def model_and_rows(model: str, data: str, columns: Columns | None) -> tuple[Model, Any]:
    """The model that is named, and the rows that it is of."""
    rows = rows_of(data, columns)
    return named_model(model, some_rows(rows, columns)), rows


def executor_named(name: str) -> executors.AbstractExecutor:
    """An executor by what the command line calls it: local, processes:4, dask:ADDRESS, ray or ray:ADDRESS."""
    kind, _, rest = name.partition(":")
    if kind == "local" and (not rest or rest.isdigit()):
        return executors.Local(int(rest) if rest else None)
    if kind == "processes" and (not rest or rest.isdigit()):
        return executors.Processes(int(rest) if rest else None)
    if kind == "dask" and rest:
        return executors.Dask(rest)
    if kind == "ray":
        return executors.Ray(rest or None)
    raise ValueError(
        f"an executor is local, local:THREADS, processes, processes:N, dask:ADDRESS, ray or ray:ADDRESS; got {name!r}."
    )


def run(
    model: str,
    data: str,
    out: Path,
    *,
    num_shards: int,
    num_draws: int,
    seed: int,
    executor: str,
    columns: Columns | None,
    refined: bool,
    command: str = "",
) -> "DataTree":
    """Sample a model of a Python file on rows of a file, into a run directory, which also keeps what was typed."""
    found, rows = model_and_rows(model, data, columns)
    chosen = executor_named(executor)
    _write_command(out, command)
    try:
        return infer(
            found,
            dealt(rows, num_shards, seed, columns, out / "rows"),
            seed=seed,
            num_draws=num_draws,
            executor=chosen,
            store=out,
            refine=refined,
            progress="lines",
        )
    finally:
        chosen.close()


def _write_command(folder: Path, command: str) -> None:
    kept = Store(folder).folder / COMMAND
    if command and not kept.exists():
        write(kept, lambda path: path.write_text(command + "\n"))


def reported(path: str, out: Path | None) -> Path:
    """A page about a result, written into the run directory or beside the file unless it is said where."""
    tree = tree_of(path)
    is_run = Path(path).is_dir()
    typed = Path(path) / COMMAND
    command = typed.read_text().strip() if is_run and typed.exists() else ""
    where = out or (Path(path) / "report.html" if is_run else Path(path).with_suffix(".html"))
    return report(tree, where, title=Path(path).absolute().name, command=command)


def dealt(
    rows: Any, num_shards: int, seed: int, columns: Columns | None, folder: Path | None
) -> AbstractPartition:
    """Rows in shards: those of a file in a folder, or in one that is there already."""
    if isinstance(rows, Mapping):
        return split(rows, num_shards, seed=seed)
    return split(rows, num_shards, seed=seed, columns=columns, folder=folder, progress="lines")


def tree_of(path: str) -> "DataTree":
    """A result: a run directory, or an ArviZ file."""
    if Path(path).is_dir():
        return load(path)
    if not Path(path).exists():
        raise FileNotFoundError(
            f"there is no run directory or file {path} (looked in {Path.cwd()})."
        )
    return read_tree(Path(path))


def combined(draws: Sequence[str], out: Path, seed: int) -> "DataTree":
    """Files of draws, one for each shard, combined and written to a file."""
    _check_netcdf(out)
    tree = combine(read_draws(*draws), seed=seed, progress="lines")
    write_tree(tree, out)
    return tree


def judged(path: str, model: str | None, data: str | None, columns: Columns | None) -> Diagnosis:
    """How good a result is."""
    tree = tree_of(path)
    if model is None or data is None:
        return diagnose(tree)
    found, rows = model_and_rows(model, data, columns)
    return diagnose(tree, found, _partition(path, rows, tree, columns))


def refined(
    path: str, model: str, data: str, out: Path, columns: Columns | None, seed: int
) -> "DataTree":
    """A result, refined and written to a file."""
    _check_netcdf(out)
    tree = tree_of(path)
    found, rows = model_and_rows(model, data, columns)
    better = refine(tree, found, _partition(path, rows, tree, columns), seed=seed, progress="lines")
    write_tree(better, out)
    return better


def _partition(path: str, rows: Any, tree: "DataTree", columns: Columns | None) -> Any:
    """Rows as they were dealt for a run, if it has them; else dealt anew."""
    if isinstance(rows, Mapping):
        return rows
    num_shards, seed = int(tree.attrs.get("num_shards", 1)), int(tree.attrs.get("seed", 0))
    return dealt(
        rows, num_shards, seed, columns, Path(path) / "rows" if Path(path).is_dir() else None
    )


def _check_netcdf(out: Path) -> None:
    if out.suffix != ".nc":
        raise ValueError(f"results are written to ArviZ files, such as posterior.nc; got {out}.")
    if not out.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {out.absolute().parent} to write {out.name} to."
        )
    if importlib.util.find_spec("h5netcdf") is None:
        raise ImportError('writing ArviZ files needs h5netcdf: pip install "vcmc[netcdf]"')


def write_tree(tree: "DataTree", out: Path) -> None:
    """Write a tree to an ArviZ file."""
    try:
        tree.to_netcdf(out, engine="h5netcdf")
    except OSError as error:
        raise OSError(f"{out} cannot be written: {error}. Try another folder.") from error
