"""Read draws that were made elsewhere: CmdStan's CSV files, ArviZ files, NumPy files, and fits of PyStan.

CmdStan writes one file for each chain: comments that begin with `#`, a line of column names, and a line for each draw. Column `beta.2.3` is entry
(2, 3) of `beta`, counted from one; names that end with `__` are the sampler's own.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .tree import make_tree

if TYPE_CHECKING:
    from xarray import DataTree

STATS = {  # CmdStan's names of what it reports of a draw, and ArviZ's
    "lp__": "lp",
    "accept_stat__": "acceptance_rate",
    "stepsize__": "step_size",
    "treedepth__": "tree_depth",
    "n_leapfrog__": "n_steps",
    "divergent__": "diverging",
    "energy__": "energy",
}
FORMATS = "CmdStan's CSV files (.csv), ArviZ files (.nc), and NumPy files of arrays by name (.npz)"

Arrays = dict[str, np.ndarray]


def read_draws(*shards: Any) -> "DataTree | list[Arrays]":
    """Draws of shards from files or fits, as `vcmc.combine` takes them.

    Args:
        shards: for every shard a file, a list of files with a chain each, a fit of PyStan, or an ArviZ tree with the group `posterior`. Files
            are CmdStan's CSV files, ArviZ files (`.nc`), or NumPy files (`.npz`) with an array (draw, …) for each name.

    Returns:
        A tree with the groups `subposterior` (shard, chain, draw, …) and, if the sampler reported something, `sample_stats`. If shards have
        different numbers of draws, a list of mappings from names to arrays (draw, …), chains one after the other.
    """
    if len(shards) == 1 and isinstance(shards[0], Sequence) and not isinstance(shards[0], str):
        shards = tuple(shards[0])
    if not shards:
        raise ValueError("read_draws needs a file or a fit for every shard; got none.")
    found = [_shard(number, shard) for number, shard in enumerate(shards)]
    names = list(found[0][0])
    for number, (draws, _) in enumerate(found):
        kinds = {name: array.shape[2:] for name, array in draws.items()}
        if kinds != {name: array.shape[2:] for name, array in found[0][0].items()}:
            first = {name: array.shape[2:] for name, array in found[0][0].items()}
            raise ValueError(
                f"all shards must have the same parameters; shard 0 has {first}, shard {number} has {kinds}."
            )
    if len({draws[names[0]].shape[:2] for draws, _ in found}) > 1:
        return [
            {name: array.reshape(-1, *array.shape[2:]) for name, array in draws.items()}
            for draws, _ in found
        ]
    groups = {
        "subposterior": {name: np.stack([draws[name] for draws, _ in found]) for name in names}
    }
    reported = set.intersection(*(set(stats) for _, stats in found))
    if reported:
        groups["sample_stats"] = {
            name: np.stack([stats[name] for _, stats in found]) for name in sorted(reported)
        }
    return make_tree(groups, {"num_shards": len(found)})


def _shard(number: int, shard: Any) -> tuple[Arrays, Arrays]:
    """Draws (chain, draw, …) of a shard by name, and what the sampler reported."""
    if isinstance(shard, str | Path):
        return _file(Path(shard))
    if isinstance(shard, Sequence):
        chains = [_file(Path(path)) for path in shard]
        return tuple(_joined(number, [chain[part] for chain in chains]) for part in range(2))  # type: ignore[return-value]
    if hasattr(shard, "param_names") and hasattr(shard, "num_chains"):
        return _pystan(shard)
    if "posterior" in getattr(shard, "children", ()) or hasattr(shard, "posterior"):
        return _arviz(shard)
    raise TypeError(
        f"shard {number} must be a file, a list of files with a chain each, a fit of PyStan or an ArviZ tree; got {type(shard).__name__}."
    )


def _joined(number: int, chains: list[Arrays]) -> Arrays:
    shapes = [{name: array.shape[1:] for name, array in chain.items()} for chain in chains]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"the chains of shard {number} must be of one shape; got {shapes}.")
    return {name: np.concatenate([chain[name] for chain in chains]) for name in chains[0]}


def _file(path: Path) -> tuple[Arrays, Arrays]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path} (looked in {Path.cwd()}).")
    if path.suffix == ".csv":
        return _cmdstan(path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as kept:
            return {name: kept[name][None] for name in kept.files}, {}
    if path.suffix in (".nc", ".h5", ".netcdf"):
        return _arviz(read_tree(path))
    raise ValueError(f"draws are read from {FORMATS}; got {path}.")


def _cmdstan(path: Path) -> tuple[Arrays, Arrays]:
    lines = path.read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    body = [line for line in lines if line and not line.startswith("#")]
    if not body or "lp__" not in body[0].split(","):
        raise ValueError(
            f"{path} must be a CSV file of CmdStan, with a column lp__; its first line is {(body or [''])[0][:80]!r}."
        )
    names = body[0].split(",")
    try:
        table = np.array([line.split(",") for line in body[1:]], float)
    except ValueError as error:
        raise ValueError(
            f"{path} must have {len(names)} numbers in every line; a line has not ({error}). Was the chain stopped?"
        ) from None
    table = table[_num_warmup(comments) :]
    if table.ndim != 2 or not len(table):
        raise ValueError(f"{path} has no draws after warm-up.")
    columns = dict(zip(names, table.T, strict=True))
    stats = {STATS[name]: columns[name][None] for name in names if name in STATS}
    if "diverging" in stats:
        stats["diverging"] = stats["diverging"] > 0
    draws = _arrays(
        {name: column for name, column in columns.items() if not name.endswith("__")}, path
    )
    return {name: array[None] for name, array in draws.items()}, stats


def _num_warmup(comments: list[str]) -> int:
    """Draws of warm-up that are in the file: none, unless they were asked for."""

    def setting(name: str, default: str) -> str:
        found = re.search(rf"^#\s*{name}\s*=\s*(\w+)", "\n".join(comments), re.MULTILINE)
        return found[1] if found else default

    if setting("save_warmup", "0").lower() not in ("1", "true"):
        return 0
    return -(-int(setting("num_warmup", "1000")) // int(setting("thin", "1")))


def _arrays(columns: Mapping[str, np.ndarray], path: Path) -> Arrays:
    """Columns such as beta.2.3, put together to arrays (draw, …)."""
    entries: dict[str, dict[tuple[int, ...], np.ndarray]] = {}
    for name, column in columns.items():
        stem, *indices = re.split(r"[.:]", name)
        if not all(index.isdigit() for index in indices):
            raise ValueError(
                f"{path}: column {name!r} is neither a number nor an entry of an array; take it out of the model's output."
            )
        entries.setdefault(stem, {})[tuple(int(index) - 1 for index in indices)] = column
    return {name: _array(name, parts, path) for name, parts in entries.items()}


def _array(name: str, parts: Mapping[tuple[int, ...], np.ndarray], path: Path) -> np.ndarray:
    """One parameter's draws (draw, …), from those of its entries."""
    places = np.array(list(parts))
    shape = tuple((places.max(axis=0) + 1).tolist()) if places.size else ()
    size = int(np.prod(shape))
    if len(parts) != size:
        raise ValueError(
            f"{path}: {name} has {len(parts)} of the {size} entries of an array of shape {shape}."
        )
    found = np.empty((*shape, len(next(iter(parts.values())))))
    for place, column in parts.items():
        found[place] = column
    return np.moveaxis(found, -1, 0)


def _pystan(fit: Any) -> tuple[Arrays, Arrays]:
    """A fit of PyStan 3, whose arrays are (…, draw), chains within draws."""

    def chains(array: np.ndarray) -> np.ndarray:
        array = np.moveaxis(np.asarray(array), -1, 0)
        array = array.reshape(-1, fit.num_chains, *array.shape[1:])
        return np.moveaxis(array, 1, 0)

    return {name: _squeezed(chains(fit[name]), fit, name) for name in fit.param_names}, {
        STATS[name]: chains(fit[name])[:, :, 0] if np.ndim(fit[name]) > 1 else chains(fit[name])
        for name in STATS
        if name in fit
    }


def _squeezed(array: np.ndarray, fit: Any, name: str) -> np.ndarray:
    """A number by draw, where PyStan has an axis of length one for it."""
    dims = dict(zip(fit.param_names, getattr(fit, "dims", []), strict=False)).get(name)
    return array[..., 0] if dims == [] and array.ndim == 3 else array


def read_tree(path: Path) -> "DataTree":
    """The tree in an ArviZ file."""
    import xarray as xr

    try:
        with xr.open_datatree(path) as tree:
            return tree.load()
    except (ValueError, ImportError) as error:
        raise ValueError(
            f'{path} could not be read as an ArviZ file ({error}). If a library is missing: pip install "vcmc[netcdf]"'
        ) from error


def _arviz(tree: Any) -> tuple[Arrays, Arrays]:
    def group(name: str) -> Arrays:
        found = tree[name] if name in getattr(tree, "children", ()) else getattr(tree, name, None)
        if found is None:
            return {}
        data = found.to_dataset() if hasattr(found, "to_dataset") else found
        data = data.transpose("chain", "draw", ...)
        return {str(name): data[name].to_numpy() for name in data.data_vars}

    posterior = group("posterior")
    if not posterior:
        raise ValueError("an ArviZ tree must have the group posterior.")
    return posterior, group("sample_stats")
