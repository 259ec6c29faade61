"""Inputs of the commands: models in Python files, rows in data files, executors, results."""

import importlib.util
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

from .. import executors
from ..data.batches import batches, columns_of, read_npz
from ..data.categories import warn_of_ignored
from ..data.columns import Columns, choose_columns, expand_columns, source_columns
from ..data.files import SplitSettings, levels_in_files
from ..model import Model
from ..models.frontends.numpyro import from_numpyro
from ..models.frontends.pymc import from_pymc, is_pymc
from ..models.frontends.sites import argument_names
from ..results.draw_files import ARVIZ_SUFFIXES, read_tree
from ..results.loading import load
from ..space import (
    Correlation,
    Interval,
    Ordered,
    Positive,
    PositiveDefinite,
    Real,
    Simplex,
    Space,
)

if TYPE_CHECKING:
    from xarray import DataTree


class GroupNames(NamedTuple):
    """Names that say what the groups of a hierarchical model are; none for other models.

    Attributes:
        groups: the column with the group of every row.
        num_groups: the argument of a NumPyro model with the number of groups.
    """

    groups: str | None = None
    num_groups: str | None = None


NO_GROUPS = GroupNames()


def load_model(location: str, rows: Any, names: GroupNames = NO_GROUPS) -> Model:
    """Return the model at `file.py:name`.

    Args:
        location: where a `vcmc.Model`, a NumPyro model or a PyMC model is defined.
        rows: some rows, from which NumPyro and PyMC models learn their shapes.
        names: what the groups are, if there are any.
    """
    return _converted(location, _defined(location), rows, names)


def _defined(location: str) -> Any:
    """Return what is defined at `file.py:name`."""
    path, _, name = location.rpartition(":")
    if not path or not name:
        raise ValueError(f"the model must be FILE.PY:NAME, e.g. model.py:model; got {location!r}.")
    defined = vars(_load_module(Path(path)))
    if name not in defined:
        public = [
            key
            for key, value in defined.items()
            if not key.startswith("_") and not isinstance(value, ModuleType)
        ]
        raise ValueError(f"there is no {name!r} in {path}; it defines {', '.join(public)}.")
    return defined[name]


def _converted(location: str, model: Any, rows: Any, names: GroupNames) -> Model:
    """Return a model in any language as a `vcmc.Model`."""
    if isinstance(model, Model):
        return model
    if is_pymc(model):
        return from_pymc(model, rows, groups=names.groups)
    if callable(model):
        return from_numpyro(model, rows, groups=names.groups, num_groups=names.num_groups)
    raise TypeError(
        f"{location} must be a vcmc.Model, a NumPyro model (a function) or a pymc.Model; "
        f"got {type(model).__name__}."
    )


def _load_module(path: Path) -> ModuleType:
    """Import a Python file; its functions are pickled by value, so that workers need no copy."""
    if path.suffix != ".py" or not path.exists():
        raise FileNotFoundError(f"there is no Python file {path} (in {Path.cwd()}).")
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
        raise ValueError(
            f"{path} could not be imported: {type(error).__name__}: {error}"
        ) from error
    cloudpickle.register_pickle_by_value(module)
    return module


def load_rows(path: str, columns: Columns | None) -> Any:
    """Return the arrays of a NumPy file, or else the path, which is read batch by batch."""
    file = Path(path)
    if file.suffix != ".npz":
        return path
    return choose_columns(read_npz(file), columns)


def columns_in_data(
    path: str, columns: Columns | None, model: str, names: GroupNames = NO_GROUPS
) -> Columns | None:
    """Return the columns of the model's arrays that --column and the names of the columns say.

    Args:
        path: the data file.
        columns: columns by name of the array, from --column; ranges and patterns are replaced.
        model: the model as `file.py:name`; a column named like one of its arrays is that array.
        names: what the groups are, whose column is kept.
    """
    if columns is None:
        return None
    file = Path(path)
    present = list(read_npz(file) if file.suffix == ".npz" else columns_of(file))
    read = {*(_read_names(_defined(model)) or ()), names.groups}
    own = {name: name for name in present if name in read and name not in columns}
    return {**(expand_columns(columns, present) or {}), **own}


def load_model_and_rows(
    model: str,
    data: str,
    columns: Columns | None,
    names: GroupNames = NO_GROUPS,
    weights: str | None = None,
) -> tuple[Model, Any]:
    """Return the model at `file.py:name`, and the rows of a data file.

    `weights` is the column with the weights of rows, which the model does not see.
    """
    rows = load_rows(data, columns)
    defined = _defined(model)
    first = rows
    if not isinstance(rows, Mapping):
        first = _first_rows(rows, columns, defined, {names.groups, weights})
    named = _with_names(first, columns)
    if weights is not None:
        named.pop(weights, None)
    return _converted(model, defined, named, names), rows


def _read_names(model: Any) -> Collection[str] | None:
    """Return the names of the arrays that a model reads; None if it does not say."""
    if isinstance(model, Model):
        return model.columns
    if is_pymc(model):
        return [variable.name for variable in model.data_vars]
    return argument_names(model) if callable(model) else None


def with_column(columns: Columns | None, name: str | None) -> Columns | None:
    """Return the columns of a model's arrays, and another column beside them, e.g. weights."""
    if columns is None or name is None or name in columns:
        return columns
    return {**columns, name: name}


def _with_names(rows: Mapping[str, Any], columns: Columns | None) -> dict[str, Any]:
    """Return rows with arrays of several columns as data frames, which have the columns' names."""
    from pandas import DataFrame  # slow to import

    names = {name: value for name, value in (columns or {}).items() if not isinstance(value, str)}
    frames = {name: DataFrame(rows[name], columns=list(value)) for name, value in names.items()}
    return {**rows, **frames}


def _first_rows(
    path: Any, columns: Columns | None, model: Any, extra: Collection[str | None]
) -> dict[str, Any]:
    """Return the first batch of a file, as arrays that a model reads.

    Text for a NumPyro model has the levels of the whole file. The columns `extra` are kept.
    """
    from pandas import Categorical  # slow to import

    sources = dict(columns or {name: name for name in columns_of(path)})
    names = _read_names(model)
    kept = {
        name: source
        for name, source in sources.items()
        if names is None or name in names or name in extra
    }
    if not kept or len(kept) == len(sources):
        kept = sources
    elif columns is None:
        warn_of_ignored([name for name in sources if name not in kept])
    skip = next((name for name in extra if name in kept), None)
    levels = levels_in_files(path, SplitSettings(1, 0, kept, skip))
    for batch in batches(path, wanted=source_columns(kept)):
        chosen: dict[str, Any] = dict(choose_columns(batch, kept))
        return chosen | {
            name: Categorical(chosen[name], categories=own) for name, own in levels.items()
        }
    raise ValueError(f"{path} has no rows.")


def parse_draws(arguments: Sequence[str], one_file_per_shard: bool) -> list[str | list[str]]:
    """Return the shards that arguments of `vcmc combine` name: files, folders, lists of chains.

    Args:
        arguments: each a file, a folder, or the files of a shard's chains with commas in between.
            A label before a colon, e.g. `shard-1:a.csv,b.csv`, may be repeated.
        one_file_per_shard: whether the user says that every file is a shard.
    """
    shards: list[str | list[str]] = []
    labelled: dict[str, list[str]] = {}
    for argument in arguments:
        label, colon, rest = argument.partition(":")
        if Path(argument).exists() or not (colon or "," in argument):
            shards.append([argument] if one_file_per_shard else argument)
            continue
        files = (rest if colon else argument).split(",")
        if not all(files) or (colon and not label):
            raise ValueError(
                "DRAWS must be files, folders, or chains of a shard, e.g. a_1.csv,a_2.csv or "
                f"shard-1:a_1.csv,a_2.csv; got {argument!r}."
            )
        if colon and label in labelled:
            labelled[label] += files
        else:
            shards.append(files)
            if colon:
                labelled[label] = files
    return shards


SPACES: dict[str, Callable[[tuple[int, ...]], Space]] = {
    "real": lambda shape: Real(*shape),
    "positive": lambda shape: Positive(*shape),
    "interval": lambda shape: Interval(0, 1, *shape),
    "simplex": lambda shape: Simplex(*shape),
    "ordered": lambda shape: Ordered(*shape),
    "positive-definite": lambda shape: PositiveDefinite(shape[-1], batch=shape[:-2]),
    "correlation": lambda shape: Correlation(shape[-1], batch=shape[:-2]),
}


def parse_spaces(
    kinds: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Space]:
    """Return the spaces that a user names by kind, with the shapes of the draws."""
    if unknown := set(kinds) - set(shapes):
        raise ValueError(f"--space names {sorted(unknown)}, but the draws are of {sorted(shapes)}.")
    return {name: _parse_space(kind, shapes[name]) for name, kind in kinds.items()}


def _parse_space(text: str, shape: tuple[int, ...]) -> Space:
    kind, colon, bounds = text.partition(":")
    if kind == "interval" and colon:
        try:
            low, high = map(float, bounds.split(","))
        except ValueError:
            raise ValueError(
                f"the bounds of an interval must be two numbers, e.g. interval:-1,1; got {text!r}."
            ) from None
        return Interval(low, high, *shape)
    if kind not in SPACES or colon:
        raise ValueError(
            f"--space must be NAME=KIND, where KIND is {', '.join(SPACES)}, or interval:LOW,HIGH; "
            f"got the kind {text!r}."
        )
    if kind in ("positive-definite", "correlation") and len(shape) < 2:
        raise ValueError(f"--space {kind} is for matrices; got draws of shape {shape}.")
    return SPACES[kind](shape)


def load_result(path: str) -> "DataTree":
    """Return the result in a run directory or in an ArviZ file."""
    if Path(path).is_dir():
        return load(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no run directory or file {path} (in {Path.cwd()}).")
    if Path(path).suffix not in ARVIZ_SUFFIXES:
        raise ValueError(f"RESULT must be a run directory or an ArviZ file (.nc); got {path}.")
    return read_tree(Path(path))


def parse_executor(text: str) -> executors.AbstractExecutor:
    """Return the executor that a text names, e.g. `processes:4` or `dask:tcp://head:8786`."""
    kind, _, argument = text.partition(":")
    if kind == "local" and (not argument or argument.isdigit()):
        return executors.Local(int(argument) if argument else None)
    if kind == "processes" and (not argument or argument.isdigit()):
        return executors.Processes(int(argument) if argument else None)
    if kind == "dask" and argument:
        return executors.Dask(argument)
    if kind == "ray":
        return executors.Ray(argument or None)
    raise ValueError(
        "--executor must be local, local:THREADS, processes, processes:N, dask:ADDRESS, ray or "
        f"ray:ADDRESS; got {text!r}."
    )
