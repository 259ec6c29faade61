"""Shard draws that exist already, in any form that `combine` takes, and their space."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..data.labels import NO_LABELS, Labels
from ..data.rows import NUMBER_KINDS
from ..data.shard import check_loader
from ..data.space_description import described_names, space_from_description
from ..space import Product, Real, Space
from .draw_axes import Axes, NamedArrays, Shapes
from .draw_supports import DrawSupports


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


class FlatDraws(list[NamedArrays]):
    """Draws of shards, each a mapping from names to arrays (draw, …), with chains concatenated."""


class StreamedDraws:
    """Checked draws, one shard at a time: arrays (draw, …) by name; shards may differ in number.

    Args:
        shards: arrays (draw, …) or (chain, draw, …) of every shard. Chains are concatenated.
        held: whether all draws are in memory anyway.
        axes: which of the two they are.

    Attributes:
        shapes: the shape of one draw of every parameter.
        supports: the supports of the draws that were loaded.
    """

    def __init__(self, shards: Any, held: bool, axes: Axes):
        self.shards = shards
        self.held = held
        self.axes = axes
        self.supports = DrawSupports()
        self._chain_counts: set[int] = set()
        if not len(shards):
            raise ValueError("draws must be of at least one shard; got none.")
        self.shapes = {name: array.shape[1:] for name, array in self._arrays(0).items()}

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def num_chains(self) -> int:
        """Number of chains of all shards that were loaded; one if they differ."""
        return next(iter(self._chain_counts)) if len(self._chain_counts) == 1 else 1

    def __getitem__(self, shard: int) -> NamedArrays:
        arrays = self._arrays(shard)
        shapes = {name: array.shape[1:] for name, array in arrays.items()}
        if shapes != self.shapes:
            raise ValueError(
                f"all shards must have the parameters of shard 0, {self.shapes}; shard {shard} "
                f"has {shapes}."
            )
        for name, array in arrays.items():
            self.supports.add(name, array, self.shapes[name])
        return {name: arrays[name] for name in self.shapes}

    def _arrays(self, shard: int) -> NamedArrays:
        draws = self.shards[shard]
        if not isinstance(draws, Mapping):
            raise TypeError(
                "the draws of a shard must be a mapping from names to arrays (draw, …), e.g. "
                f'{{"beta": draws}}; got {type(draws).__name__} for shard {shard}.'
            )
        arrays = {name: np.asarray(values) for name, values in draws.items()}
        where = f" of shard {shard}"
        if self.axes.has_chains(arrays, 0, where):
            arrays = _check_draws(arrays, ("chain", "draw"), where)
            self._chain_counts.add(len(next(iter(arrays.values()))))
            return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
        return _check_draws(arrays, ("draw",), where)


def named_draws(
    draws: Any, chains: bool | None = None, shapes: Shapes = MappingProxyType({})
) -> NamedArrays | StreamedDraws:
    """Return draws in any accepted form as arrays (shard, chain, draw, …), or shard by shard.

    Args:
        draws: draws of shards, as `combine` takes them.
        chains: whether arrays have an axis of chains; None if the user has not told.
        shapes: shapes of values, as far as they are known.
    """
    axes = Axes(False if isinstance(draws, FlatDraws) else chains, shapes)
    if hasattr(draws, "children"):
        return _from_tree(draws)
    if hasattr(draws, "data_vars"):
        return _from_dataset(draws)
    if isinstance(draws, Mapping):
        if any(_is_ragged(values) for values in draws.values()):
            return _in_memory(_by_shard(draws), axes)
        arrays = {name: np.asarray(values) for name, values in draws.items()}
        if axes.has_chains(arrays, 1):
            return _check_draws(arrays, ("shard", "chain", "draw"))
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
        return _in_memory(list(draws), axes)
    return StreamedDraws(draws, held=False, axes=axes)


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
    shards = [_unpad(arrays, shard) for shard in range(num_shards)]
    return _in_memory(shards, Axes(False, {}))


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


def _in_memory(shards: Sequence[Mapping[str, Any]], axes: Axes) -> NamedArrays | StreamedDraws:
    """Return draws of shards as arrays, if all shards have the same number of draws."""
    streamed = StreamedDraws(shards, True, axes)
    checked = [streamed[shard] for shard in range(len(shards))]
    if len({len(array) for draws in checked for array in draws.values()}) > 1:
        return streamed
    arrays = {name: np.stack([draws[name] for draws in checked]) for name in streamed.shapes}
    num_chains = streamed.num_chains
    return {
        name: array.reshape(len(shards), num_chains, -1, *array.shape[2:])
        for name, array in arrays.items()
    }


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
        raise ValueError(
            f"combine needs at least 2 draws in every shard; got {num_draws}{where}. If an axis is "
            "one of chains, pass chains=True."
        )
    return arrays


def draws_labels(draws: Any) -> Labels:
    """Return the dims and coords of the parameters of a tree or dataset; others have none."""
    if hasattr(draws, "children"):
        draws = draws["subposterior"].to_dataset()
    if not hasattr(draws, "data_vars"):
        return NO_LABELS
    leading = [dim for dim in ("shard", "chain", "draw") if dim in draws.dims]
    return Labels.of_dataset(draws.transpose(*leading, ...), leading)


def support_warning(draws: NamedArrays | StreamedDraws, declared: Iterable[str]) -> list[str]:
    """Return a warning about parameters that look constrained and have no declared space."""
    if isinstance(draws, StreamedDraws):
        return draws.supports.warning(declared)
    supports = DrawSupports()
    for name, array in draws.items():
        supports.add(name, array, array.shape[3:])
    return supports.warning(declared)


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


def check_recorded_names(draws: Any, space: Mapping[str, Space]) -> None:
    """Refuse a tree that records parameters besides those of a space: it is of another model."""
    attributes = getattr(draws, "attrs", {})
    recorded = described_names(attributes["space"]) if "space" in attributes else []
    if others := [name for name in recorded if name not in space]:
        raise ValueError(
            f"the model has the parameters {list(space)}, but the draws are of {others}, too: they "
            "are those of another model. Pass the model that they were made with."
        )


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
