"""Draws that were made elsewhere, in the forms that people have them in."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .space import Product, Real, Space


def named_draws(draws: Any, space: Mapping[str, Space] | None = None) -> dict[str, np.ndarray]:
    """Draws in any accepted form as arrays (shard, chain, draw, …)."""
    if hasattr(draws, "children"):  # a DataTree
        if "subposterior" not in draws.children:
            raise ValueError(
                "a DataTree of draws must have the group 'subposterior', with a dimension 'shard'; got "
                f"the groups {list(draws.children)}."
            )
        if space is None and len(curved := np.atleast_1d(draws.attrs.get("curved", []))):
            raise ValueError(
                f"the draws of {curved.tolist()} do not live in a space of real numbers, and averages would leave it. "
                "Say where they live: vcmc.combine(tree, space=model.space)."
            )
        draws = draws["subposterior"].to_dataset()
    if hasattr(draws, "data_vars"):  # a Dataset
        if not {"shard", "draw"} <= set(draws.dims):
            raise ValueError(
                f"a Dataset of draws must have the dimensions shard and draw; got {list(draws.dims)}."
            )
        if "chain" not in draws.dims:
            draws = draws.expand_dims("chain")
        draws = draws.transpose("shard", "chain", "draw", ...)
        return _check_draws({name: draws[name].to_numpy() for name in draws.data_vars}, 3)
    if not isinstance(draws, Mapping):
        raise TypeError(
            'draws must be a mapping from names to arrays (shard, draw, …), such as {"beta": draws}; '
            f"got {type(draws).__name__}."
        )
    arrays = _check_draws({name: _array(name, values) for name, values in draws.items()}, 2)
    return {name: array[:, None] for name, array in arrays.items()}


def _array(name: str, values: Any) -> np.ndarray:
    """An array of one parameter's draws, from an array or from one array per shard."""
    if isinstance(values, Sequence):
        counts = [len(shard) for shard in values]
        if len(set(counts)) > 1:
            raise ValueError(
                f"all shards must have the same number of draws; got {counts} draws of {name!r}. Thin "
                f"or cut them to {min(counts)} draws each, and say so where you report the result."
            )
    return np.asarray(values)


def _check_draws(arrays: dict[str, np.ndarray], num_axes: int) -> dict[str, np.ndarray]:
    leading = "(shard, draw, …)" if num_axes == 2 else "(shard, chain, draw, …)"
    if not arrays:
        raise ValueError("draws must hold at least one parameter; got none.")
    for name, array in arrays.items():
        if array.ndim < num_axes or array.dtype.kind not in "biuf":
            raise ValueError(
                f"draws[{name!r}] must be an array of numbers with axes {leading}; got shape "
                f"{array.shape} and dtype {array.dtype}."
            )
    shapes = {name: array.shape[:num_axes] for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(
            f"all parameters must share their axes {leading}; got "
            + ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
            + "."
        )
    if (num_draws := next(iter(shapes.values()))[-1]) < 2:
        raise ValueError(f"combine needs at least 2 draws in every shard; got {num_draws}.")
    return arrays


def space_of(arrays: Mapping[str, np.ndarray], given: Mapping[str, Space]) -> Product:
    """The space of named draws: what is given, and real numbers for the rest."""
    if unknown := set(given) - set(arrays):
        raise ValueError(f"space names {sorted(unknown)}, but the draws are of {list(arrays)}.")
    product = Product({name: given.get(name, Real(*a.shape[3:])) for name, a in arrays.items()})
    for name, array in arrays.items():
        if product[name].shape != array.shape[3:]:
            raise ValueError(
                f"draws[{name!r}] hold values of shape {array.shape[3:]}, but space[{name!r}] is "
                f"{product[name]}."
            )
    return product
