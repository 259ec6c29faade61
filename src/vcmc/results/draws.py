"""Draws that were made elsewhere, in the forms that people have them in."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..data.shard import check_loader
from ..space import Product, Real, Space

Named = dict[str, np.ndarray]


class LazyDraws:
    """Draws of shards that are loaded when they are needed, and not held.

    Args:
        load: a function from a shard's number to its draws: a mapping from names to arrays (draw, …).
        num_shards: how many shards there are.

    >>> draws = LazyDraws(lambda shard: {"beta": np.random.default_rng(shard).normal(size=(500, 2))}, 4)
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
    """Checked draws of one shard after the other: arrays (draw, …) by name, which need not be equally many.

    Attributes:
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

    def __getitem__(self, shard: int) -> Named:
        arrays = self._arrays(shard)
        shapes = {name: array.shape[1:] for name, array in arrays.items()}
        if shapes != self.shapes:
            raise ValueError(
                f"all shards must have the parameters of shard 0, {self.shapes}; shard {shard} has {shapes}."
            )
        return {name: arrays[name] for name in self.shapes}

    def _arrays(self, shard: int) -> Named:
        draws = self.shards[shard]
        if not isinstance(draws, Mapping):
            raise TypeError(
                f'the draws of a shard must be a mapping from names to arrays (draw, …), such as {{"beta": draws}}; got '
                f"{type(draws).__name__} for shard {shard}."
            )
        arrays = {name: np.asarray(values) for name, values in draws.items()}
        return _check_draws(arrays, ("draw",), f" of shard {shard}")


def named_draws(draws: Any, space: Mapping[str, Space] | None = None) -> Named | StreamedDraws:
    """Draws in any accepted form as arrays (shard, chain, draw, …), or one shard after the other."""
    padded = False
    if hasattr(draws, "children"):  # a DataTree
        if "subposterior" not in draws.children:
            raise ValueError(
                "a DataTree of draws must have the group 'subposterior', with a dimension 'shard'; got "
                f"the groups {list(draws.children)}."
            )
        curved = [
            name
            for name in np.atleast_1d(draws.attrs.get("curved", []))
            if name not in (space or {})
        ]
        if curved:
            raise ValueError(
                f"the draws of {list(map(str, curved))} do not live in a space of real numbers, and averages would leave it. "
                "Say where they live: vcmc.combine(tree, space=model.space)."
            )
        padded = "draw_counts" in draws.attrs
        draws = draws["subposterior"].to_dataset()
    if hasattr(draws, "data_vars"):  # a Dataset
        if not {"shard", "draw"} <= set(draws.dims):
            raise ValueError(
                f"a Dataset of draws must have the dimensions shard and draw; got {list(draws.dims)}."
            )
        if "chain" not in draws.dims:
            draws = draws.expand_dims("chain")
        draws = draws.transpose("shard", "chain", "draw", ...)
        arrays = {str(name): draws[name].to_numpy() for name in draws.data_vars}
        arrays = _check_draws(arrays, ("shard", "chain", "draw"))
        return (
            _held([_unpadded(arrays, shard) for shard in range(draws.sizes["shard"])])
            if padded
            else arrays
        )
    if isinstance(draws, Mapping):
        if any(_is_ragged(values) for values in draws.values()):
            return _held(_by_shard(draws))
        arrays = {name: np.asarray(values) for name, values in draws.items()}
        arrays = _check_draws(arrays, ("shard", "draw"))
        return {name: array[:, None] for name, array in arrays.items()}
    if isinstance(draws, str | np.ndarray) or not (
        hasattr(draws, "__len__") and hasattr(draws, "__getitem__")
    ):
        raise TypeError(
            'draws must be a mapping from names to arrays (shard, draw, …), such as {"beta": draws}, or one mapping for every '
            f"shard, as a list or as vcmc.LazyDraws(load, num_shards); got {type(draws).__name__}."
        )
    return _held(list(draws)) if isinstance(draws, Sequence) else StreamedDraws(draws, held=False)


def _unpadded(arrays: Named, shard: int) -> Named:
    """The draws of one shard without those at the end that are not a number in any parameter."""
    real = [
        ~np.isnan(array[shard, 0]).reshape(array.shape[2], -1).all(axis=1)
        for array in arrays.values()
    ]
    count = int(np.flatnonzero(np.any(real, axis=0)).max(initial=-1)) + 1
    return {name: array[shard, 0, :count] for name, array in arrays.items()}


def _is_ragged(values: Any) -> bool:
    return isinstance(values, Sequence) and len({np.shape(shard)[:1] for shard in values}) > 1


def _by_shard(draws: Mapping[str, Any]) -> list[Named]:
    """Draws by parameter and shard as draws by shard and parameter."""
    numbers = {name: len(values) for name, values in draws.items()}
    if len(set(numbers.values())) > 1:
        raise ValueError(f"all parameters must have as many shards; got {numbers}.")
    return [
        {name: np.asarray(values[shard]) for name, values in draws.items()}
        for shard in range(max(numbers.values()))
    ]


def _held(shards: list[Mapping[str, Any]] | list[Named]) -> Named | StreamedDraws:
    """Draws of shards as arrays, if all have as many."""
    checked = StreamedDraws(shards, held=True)
    every = [checked[shard] for shard in range(len(shards))]
    if len({len(array) for draws in every for array in draws.values()}) > 1:
        return checked
    return {name: np.stack([draws[name] for draws in every])[:, None] for name in checked.shapes}


def _check_draws(arrays: Named, axes: tuple[str, ...], where: str = "") -> Named:
    leading = f"({', '.join(axes)}, …)"
    if not arrays:
        raise ValueError(f"draws{where} must hold at least one parameter; got none.")
    for name, array in arrays.items():
        if array.ndim < len(axes) or array.dtype.kind not in "biuf":
            raise ValueError(
                f"draws[{name!r}]{where} must be an array of numbers with axes {leading}; got shape "
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


def shapes_of(draws: Named | StreamedDraws) -> dict[str, tuple[int, ...]]:
    """The shape of one draw of every parameter."""
    if isinstance(draws, StreamedDraws):
        return draws.shapes
    return {name: array.shape[3:] for name, array in draws.items()}


def space_of(shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, Space]) -> Product:
    """The space of named draws: what is given, and real numbers for the rest."""
    if unknown := set(given) - set(shapes):
        raise ValueError(f"space names {sorted(unknown)}, but the draws are of {list(shapes)}.")
    if isinstance(given, Product) and list(given) == list(shapes):
        product = given  # a model's own, for which programs may be compiled already
    else:
        product = Product({name: given.get(name, Real(*shape)) for name, shape in shapes.items()})
    for name, shape in shapes.items():
        if product[name].shape != shape:
            raise ValueError(
                f"draws[{name!r}] hold values of shape {shape}, but space[{name!r}] is {product[name]}."
            )
    return product
