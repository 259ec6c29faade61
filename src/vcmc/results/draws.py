"""Shard draws that exist already, in any form that `combine` takes, and their space."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..data.labels import NO_LABELS, Labels
from ..data.rows import NUMBER_KINDS
from ..data.shard import check_loader
from ..data.space_description import space_from_description
from ..space import Product, Real, Space

NamedArrays = dict[str, np.ndarray]


class LazyDraws:
    """Draws of shards that are loaded one shard at a time and not held in memory.

    Args:
        load: a function from a shard's number to its draws, a mapping from names to arrays
            (draw, …).
        num_shards: number of shards.

    >>> draws = LazyDraws(
    ...     lambda shard: {"beta": np.random.default_rng(shard).normal(size=(500, 2))}, num_shards=4
    ... )
    >>> draws[3]["beta"].shape
    (500, 2)
    """

    def __init__(self, load: Callable[[int], Mapping[str, Any]], num_shards: int):
        check_loader(load, num_shards, "draws")
        self.load = load
        self.num_shards = int(num_shards)

    def __len__(self) -> int:
        return self.num_shards

    def __getitem__(self, shard: int) -> Mapping[str, Any]:
        if not 0 <= shard < self.num_shards:
            raise IndexError(f"shard must be from 0 to {self.num_shards - 1}; got {shard}.")
        return self.load(shard)


class StreamedDraws:
    """Checked draws, one shard at a time: arrays (draw, …) by name; shards may differ in number.

    Attributes:
        shapes: the shape of one draw of every parameter.
        held: whether all draws are in memory anyway.
    """

    def __init__(self, shards: Any, held: bool):
        self.shards = shards
        self.held = held
        if not len(shards):
            raise ValueError("draws must be of at least one shard; got none.")
        self.shapes = {name: array.shape[1:] for name, array in self._arrays(0).items()}

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, shard: int) -> NamedArrays:
        arrays = self._arrays(shard)
        shapes = {name: array.shape[1:] for name, array in arrays.items()}
        if shapes != self.shapes:
            raise ValueError(
                f"all shards must have the parameters of shard 0, {self.shapes}; shard {shard} "
                f"has {shapes}."
            )
        return {name: arrays[name] for name in self.shapes}

    def _arrays(self, shard: int) -> NamedArrays:
        draws = self.shards[shard]
        if not isinstance(draws, Mapping):
            raise TypeError(
                "the draws of a shard must be a mapping from names to arrays (draw, …), e.g. "
                f'{{"beta": draws}}; got {type(draws).__name__} for shard {shard}.'
            )
        arrays = {name: np.asarray(values) for name, values in draws.items()}
        return _check_draws(arrays, ("draw",), f" of shard {shard}")


def named_draws(draws: Any) -> NamedArrays | StreamedDraws:
    """Return draws in any accepted form as arrays (shard, chain, draw, …), or shard by shard."""
    if hasattr(draws, "children"):
        return _from_tree(draws)
    if hasattr(draws, "data_vars"):
        return _from_dataset(draws)
    if isinstance(draws, Mapping):
        if any(_is_ragged(values) for values in draws.values()):
            return _in_memory(_by_shard(draws))
        arrays = {name: np.asarray(values) for name, values in draws.items()}
        arrays = _check_draws(arrays, ("shard", "draw"))
        return {name: array[:, None] for name, array in arrays.items()}
    is_sequence = hasattr(draws, "__len__") and hasattr(draws, "__getitem__")
    if isinstance(draws, str | np.ndarray) or not is_sequence:
        raise TypeError(
            "draws must be a mapping from names to arrays (shard, draw, …), e.g. "
            '{"beta": draws}, or one mapping per shard, as a list or as '
            f"vcmc.LazyDraws(load, num_shards); got {type(draws).__name__}."
        )
    if isinstance(draws, Sequence):
        return _in_memory(list(draws))
    return StreamedDraws(draws, held=False)


def _from_tree(tree: Any) -> NamedArrays | StreamedDraws:
    if "subposterior" not in tree.children:
        raise ValueError(
            "a DataTree of draws must have the group 'subposterior', with a dimension 'shard'; "
            f"got the groups {list(tree.children)}."
        )
    arrays = _from_dataset(tree["subposterior"].to_dataset())
    if "draw_counts" not in tree.attrs:
        return arrays
    num_shards = len(next(iter(arrays.values())))
    return _in_memory([_unpad(arrays, shard) for shard in range(num_shards)])


def _from_dataset(dataset: Any) -> NamedArrays:
    if not {"shard", "draw"} <= set(dataset.dims):
        raise ValueError(
            f"a Dataset of draws must have the dimensions shard and draw; got {list(dataset.dims)}."
        )
    if "chain" not in dataset.dims:
        dataset = dataset.expand_dims("chain")
    dataset = dataset.transpose("shard", "chain", "draw", ...)
    arrays = {str(name): dataset[name].to_numpy() for name in dataset.data_vars}
    return _check_draws(arrays, ("shard", "chain", "draw"))


def _unpad(arrays: NamedArrays, shard: int) -> NamedArrays:
    """Return the draws of one shard without those at its end that are NaN in all parameters."""
    is_number = [
        ~np.isnan(array[shard, 0]).reshape(array.shape[2], -1).all(axis=1)
        for array in arrays.values()
    ]
    count = int(np.flatnonzero(np.any(is_number, axis=0)).max(initial=-1)) + 1
    return {name: array[shard, 0, :count] for name, array in arrays.items()}


def _is_ragged(values: Any) -> bool:
    return isinstance(values, Sequence) and len({np.shape(shard)[:1] for shard in values}) > 1


def _by_shard(draws: Mapping[str, Any]) -> list[NamedArrays]:
    """Turn draws by parameter and shard into draws by shard and parameter."""
    num_shards = {name: len(values) for name, values in draws.items()}
    if len(set(num_shards.values())) > 1:
        raise ValueError(f"all parameters must have the same number of shards; got {num_shards}.")
    return [
        {name: np.asarray(values[shard]) for name, values in draws.items()}
        for shard in range(max(num_shards.values()))
    ]


def _in_memory(shards: Sequence[Mapping[str, Any]]) -> NamedArrays | StreamedDraws:
    """Return draws of shards as arrays, if all shards have the same number of draws."""
    streamed = StreamedDraws(shards, held=True)
    checked = [streamed[shard] for shard in range(len(shards))]
    if len({len(array) for draws in checked for array in draws.values()}) > 1:
        return streamed
    return {name: np.stack([draws[name] for draws in checked])[:, None] for name in streamed.shapes}


def _check_draws(arrays: NamedArrays, axes: tuple[str, ...], where: str = "") -> NamedArrays:
    leading = f"({', '.join(axes)}, …)"
    if not arrays:
        raise ValueError(f"draws{where} must hold at least one parameter; got none.")
    for name, array in arrays.items():
        if array.ndim < len(axes) or array.dtype.kind not in NUMBER_KINDS:
            raise ValueError(
                f"draws[{name!r}]{where} must be a numeric array with axes {leading}; got shape "
                f"{array.shape} and dtype {array.dtype}."
            )
    shapes = {name: array.shape[: len(axes)] for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(
            f"all parameters{where} must share their axes {leading}; got "
            + ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
            + "."
        )
    if (num_draws := next(iter(shapes.values()))[-1]) < 2:
        raise ValueError(f"combine needs at least 2 draws in every shard; got {num_draws}{where}.")
    return arrays


def draws_labels(draws: Any) -> Labels:
    """Return the dims and coords of the parameters of a tree or dataset; others have none."""
    if hasattr(draws, "children"):
        draws = draws["subposterior"].to_dataset()
    if not hasattr(draws, "data_vars"):
        return NO_LABELS
    leading = [dim for dim in ("shard", "chain", "draw") if dim in draws.dims]
    return Labels.of_dataset(draws.transpose(*leading, ...), leading)


def shapes_of(draws: NamedArrays | StreamedDraws) -> dict[str, tuple[int, ...]]:
    """Return the shape of one draw of every parameter."""
    if isinstance(draws, StreamedDraws):
        return draws.shapes
    return {name: array.shape[3:] for name, array in draws.items()}


def tree_space(draws: Any, space: Mapping[str, Space]) -> Mapping[str, Space]:
    """Return the space that a tree records, overridden by the user's `space`."""
    if not hasattr(draws, "children") or "space" not in draws.attrs:
        return space
    return {**space_from_description(draws.attrs["space"], space), **space}


def resolve_space(shapes: Mapping[str, tuple[int, ...]], space: Mapping[str, Space]) -> Product:
    """Return the space of all parameters; those that `space` does not name are real."""
    if unknown := set(space) - set(shapes):
        raise ValueError(f"space names {sorted(unknown)}, but the draws are of {list(shapes)}.")
    if isinstance(space, Product) and list(space) == list(shapes):
        product = space  # the model's own, for which programs may be compiled already
    else:
        product = Product({name: space.get(name, Real(*shape)) for name, shape in shapes.items()})
    for name, shape in shapes.items():
        if product[name].shape != shape:
            raise ValueError(
                f"draws[{name!r}] have values of shape {shape}, but space[{name!r}] is "
                f"{product[name]}."
            )
    return product
