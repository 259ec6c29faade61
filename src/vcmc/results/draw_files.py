"""Read draws that were sampled elsewhere: CmdStan CSV, ArviZ and NumPy files, and PyStan fits.

CmdStan writes one CSV file per chain: comments that begin with `#`, a line of column names, and one
line per draw. Column `beta.2.3` is element (2, 3) of `beta`, counted from one; names that end with
`__` are statistics of the sampler.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data.batches import read_npz
from ..data.labels import NO_LABELS, Labels
from .draw_axes import Axes
from .draw_origins import check_one_per_shard, check_same_data, files_of_folder
from .draws import FlatDraws
from .tree import make_tree

if TYPE_CHECKING:
    from xarray import DataTree

STATS = {  # CmdStan's names of the sampler's statistics, and ArviZ's
    "lp__": "lp",
    "accept_stat__": "acceptance_rate",
    "stepsize__": "step_size",
    "treedepth__": "tree_depth",
    "n_leapfrog__": "n_steps",
    "divergent__": "diverging",
    "energy__": "energy",
}
ARVIZ_SUFFIXES = (".nc", ".h5", ".netcdf")
FORMATS = "CmdStan CSV files (.csv), ArviZ files (.nc) or NumPy files of named arrays (.npz)"

Arrays = dict[str, np.ndarray]


class ShardDraws(NamedTuple):
    """Draws and statistics of one shard, each an array (chain, draw, …) by name.

    Attributes:
        draws: the draws.
        stats: statistics of the sampler.
        labels: dims and coords of the draws, if their file has them.
    """

    draws: Arrays
    stats: Arrays
    labels: Labels = NO_LABELS


def read_draws(*shards: Any, chains: bool | None = None) -> "DataTree | list[Arrays]":
    """Read the shards' draws from files or fits, in the form that `vcmc.combine` takes.

    Args:
        shards: for every shard a file, a list of files with one chain each, a folder of such
            files, a PyStan fit, or an ArviZ tree with the group `posterior`. Files are CmdStan CSV
            files, ArviZ files (`.nc`) or NumPy files (`.npz`) with an array (draw, …) for each
            parameter. Single files that look like chains of one shard, by their names or by
            CmdStan's headers, are refused: pass lists, of one file each if they are shards.
        chains: whether arrays of NumPy files are (chain, draw, …); by default as in `combine`.

    Returns:
        A tree with the group `subposterior` (shard, chain, draw, …) and, if the sampler reported
        statistics, `sample_stats`. If shards have different numbers of draws: a list with a mapping
        from names to arrays (draw, …) for each shard, chains concatenated.
    """
    if len(shards) == 1 and isinstance(shards[0], Sequence) and not isinstance(shards[0], str):
        shards = tuple(shards[0])
    if not shards:
        raise ValueError("read_draws needs a file or a fit for every shard; got none.")
    check_one_per_shard([Path(shard) for shard in shards if _is_file(shard)])
    loaded = [_read_shard(number, shard, chains) for number, shard in enumerate(shards)]
    first = _shapes(loaded[0].draws, 2)
    for number, shard in enumerate(loaded):
        if (shapes := _shapes(shard.draws, 2)) != first:
            raise ValueError(
                "all shards must have the same parameters; "
                f"shard 0 has {first}, shard {number} has {shapes}."
            )
    names = list(first)
    if len({shard.draws[names[0]].shape[:2] for shard in loaded}) > 1:
        return FlatDraws(
            {name: array.reshape(-1, *array.shape[2:]) for name, array in shard.draws.items()}
            for shard in loaded
        )
    groups = {
        "subposterior": {name: np.stack([shard.draws[name] for shard in loaded]) for name in names}
    }
    common = set.intersection(*(set(shard.stats) for shard in loaded))
    if common:
        groups["sample_stats"] = {
            name: np.stack([shard.stats[name] for shard in loaded]) for name in sorted(common)
        }
    return make_tree(groups | loaded[0].labels.groups, {"num_shards": len(loaded)})


def _shapes(arrays: Arrays, num_axes: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of arrays, without the first axes."""
    return {name: array.shape[num_axes:] for name, array in arrays.items()}


def _is_file(shard: Any) -> bool:
    return isinstance(shard, str | Path) and not Path(shard).is_dir()


def _read_shard(number: int, shard: Any, chains: bool | None) -> ShardDraws:
    if _is_file(shard):
        return _read_file(Path(shard), chains)
    if isinstance(shard, str | Path):
        shard = files_of_folder(Path(shard))
    if isinstance(shard, Sequence):
        files = [Path(path) for path in shard]
        parts = [_read_file(file, chains) for file in files]
        check_same_data(number, files)
        return ShardDraws(
            _join_chains(number, [part.draws for part in parts]),
            _join_chains(number, [part.stats for part in parts]),
            parts[0].labels,
        )
    if hasattr(shard, "param_names") and hasattr(shard, "num_chains"):
        return _from_pystan(shard)
    if "posterior" in getattr(shard, "children", ()) or hasattr(shard, "posterior"):
        return _from_arviz(shard)
    raise TypeError(
        f"shard {number} must be a file, a list of files with one chain each, a folder of them, a "
        f"PyStan fit or an ArviZ tree; got {type(shard).__name__}."
    )


def _join_chains(number: int, chains: list[Arrays]) -> Arrays:
    shapes = [_shapes(chain, 1) for chain in chains]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"all chains of shard {number} must have the same shapes; got {shapes}.")
    return {name: np.concatenate([chain[name] for chain in chains]) for name in chains[0]}


def _read_file(path: Path, chains: bool | None) -> ShardDraws:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path} (in {Path.cwd()}).")
    if path.suffix == ".csv":
        return _read_cmdstan(path)
    if path.suffix == ".npz":
        arrays = read_npz(path)
        if Axes(chains, {}).has_chains(arrays, 0, f" of {path}"):
            return ShardDraws(arrays, {})
        return ShardDraws({name: array[None] for name, array in arrays.items()}, {})
    if path.suffix in ARVIZ_SUFFIXES:
        return _from_arviz(read_tree(path))
    raise ValueError(f"draws are read from {FORMATS}; got {path}.")


def _read_cmdstan(path: Path) -> ShardDraws:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    body = [line for line in lines if line and not line.startswith("#")]
    if not body or "lp__" not in body[0].split(","):
        raise ValueError(
            f"{path} must be a CmdStan CSV file, with a column lp__; "
            f"its first line is {(body or [''])[0][:80]!r}."
        )
    names = body[0].split(",")
    try:
        table = np.array([line.split(",") for line in body[1:]], float)
    except ValueError as error:
        raise ValueError(
            f"{path} must have {len(names)} numbers in every line, but one line does not "
            f"({error}). Was the chain interrupted?"
        ) from None
    table = table[_num_saved_warmup(comments) :]
    if table.ndim != 2 or not len(table):
        raise ValueError(f"{path} has no draws after warm-up.")
    columns = dict(zip(names, table.T, strict=True))
    stats = {STATS[name]: columns[name][None] for name in names if name in STATS}
    if "diverging" in stats:
        stats["diverging"] = stats["diverging"] > 0
    parameters = {name: column for name, column in columns.items() if not name.endswith("__")}
    draws = _arrays_from_columns(parameters, path)
    return ShardDraws({name: array[None] for name, array in draws.items()}, stats)


def _num_saved_warmup(comments: list[str]) -> int:
    """Return the number of warm-up draws in a file: zero unless CmdStan was asked to save them."""

    def setting(name: str, default: str) -> str:
        match = re.search(rf"^#\s*{name}\s*=\s*(\w+)", "\n".join(comments), re.MULTILINE)
        return match[1] if match else default

    if setting("save_warmup", "0").lower() not in ("1", "true"):
        return 0
    return -(-int(setting("num_warmup", "1000")) // int(setting("thin", "1")))


def _arrays_from_columns(columns: Mapping[str, np.ndarray], path: Path) -> Arrays:
    """Assemble columns of single elements, e.g. beta.2.3, to arrays (draw, …)."""
    elements: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    for column_name, column in columns.items():
        name, *indices = re.split(r"[.:]", column_name)
        if not all(index.isdigit() for index in indices):
            raise ValueError(
                f"{path}: column {column_name!r} is neither a scalar nor an element of an array; "
                "remove it from the model's output."
            )
        elements.setdefault(name, {})[tuple(int(index) - 1 for index in indices)] = column
    return {name: _assemble(name, parts, path) for name, parts in elements.items()}


def _assemble(name: str, elements: Mapping[tuple[int, ...], np.ndarray], path: Path) -> np.ndarray:
    """Return the draws (draw, …) of a parameter from those of its elements."""
    indices = np.array(list(elements))
    shape = tuple((indices.max(axis=0) + 1).tolist()) if indices.size else ()
    size = int(np.prod(shape))
    if len(elements) != size:
        raise ValueError(
            f"{path}: {name} has {len(elements)} of the {size} elements of an array of shape "
            f"{shape}."
        )
    array = np.empty((*shape, len(next(iter(elements.values())))))
    for index, column in elements.items():
        array[index] = column
    return np.moveaxis(array, -1, 0)


def _from_pystan(fit: Any) -> ShardDraws:
    """Convert a PyStan 3 fit, whose arrays are (…, draw) with the chains of a draw side by side."""

    def by_chain(array: np.ndarray) -> np.ndarray:
        array = np.moveaxis(np.asarray(array), -1, 0)
        array = array.reshape(-1, fit.num_chains, *array.shape[1:])
        return np.moveaxis(array, 1, 0)

    draws = {name: _drop_scalar_axis(by_chain(fit[name]), fit, name) for name in fit.param_names}
    stats = {
        STATS[name]: by_chain(fit[name])[:, :, 0] if np.ndim(fit[name]) > 1 else by_chain(fit[name])
        for name in STATS
        if name in fit
    }
    return ShardDraws(draws, stats)


def _drop_scalar_axis(array: np.ndarray, fit: Any, name: str) -> np.ndarray:
    """Drop the axis of length one that PyStan gives to scalars."""
    dims = dict(zip(fit.param_names, getattr(fit, "dims", []), strict=False)).get(name)
    return array[..., 0] if dims == [] and array.ndim == 3 else array


def read_tree(path: Path) -> "DataTree":
    """Read the tree of an ArviZ file."""
    import xarray as xr

    try:
        with xr.open_datatree(path) as tree:
            return tree.load()
    except (ValueError, ImportError, OSError, RuntimeError, KeyError) as error:
        reason = str(error).split(". ")[0]
        raise ValueError(
            f"{path} could not be read as an ArviZ file: {reason}. "
            "If a package is missing, try: pip install 'vcmc[netcdf]'"
        ) from error


def _from_arviz(tree: Any) -> ShardDraws:
    def dataset(name: str) -> Any:
        group = tree[name] if name in getattr(tree, "children", ()) else getattr(tree, name, None)
        if group is None:
            return None
        data = group.to_dataset() if hasattr(group, "to_dataset") else group
        return data.transpose("chain", "draw", ...)

    posterior, stats = dataset("posterior"), dataset("sample_stats")
    if posterior is None or not posterior.data_vars:
        raise ValueError("an ArviZ tree must have the group 'posterior', with draws in it.")
    labels = Labels.of_dataset(posterior, ["chain", "draw"])
    return ShardDraws(_arrays(posterior), {} if stats is None else _arrays(stats), labels)


def _arrays(dataset: Any) -> Arrays:
    return {str(name): dataset[name].to_numpy() for name in dataset.data_vars}
