"""Tell an axis of chains from one of draws in arrays of draws."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

NamedArrays = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]

# Fewer elements of an axis may be chains; more chains than this in one shard are unheard of.
MIN_CLEAR_DRAWS = 100


class Axes(NamedTuple):
    """What is known about the axes of arrays of draws.

    Attributes:
        chains: whether there is an axis of chains before that of draws; None if not told.
        shapes: the known shapes of values.
    """

    chains: bool | None
    shapes: Shapes

    def has_chains(self, arrays: NamedArrays, num_first: int, where: str = "") -> bool:
        """Return whether arrays have an axis of chains after `num_first` axes of another kind.

        Raise an error if this cannot be told.
        """
        if self.chains is not None or not arrays:
            return bool(self.chains)
        known = {
            array.ndim - num_first - len(self.shapes[name])
            for name, array in arrays.items()
            if name in self.shapes
        }
        if known & {1, 2}:
            return known == {2}
        all_sizes = {array.shape[num_first : num_first + 2] for array in arrays.values()}
        sizes = next(iter(all_sizes))
        if len(all_sizes) > 1 or len(sizes) < 2:
            return False  # some values are scalars, or differ in what would be the axis of draws
        is_clear = sizes[0] >= MIN_CLEAR_DRAWS and sizes[0] > sizes[1]
        if is_clear or min(sizes) < 2:
            return False
        first = "shard, " if num_first else ""
        shapes = ", ".join(f"{name}: {array.shape}" for name, array in arrays.items())
        raise ValueError(
            f"draws{where} must have axes ({first}draw, …) or ({first}chain, draw, …), and their "
            f"shapes do not tell which they have: {shapes}. Pass chains=True if there is an axis "
            "of chains, chains=False if not (--chains or --no-chains on the command line), or "
            f"the spaces of the parameters, e.g. space={{{next(iter(arrays))!r}: vcmc.Real(...)}}."
        )
