"""Simulated data sets, and a check of the user's rows."""

from typing import NamedTuple

import numpy as np

from ..data.shard import Shards


class Simulated(NamedTuple):
    """Params, and rows drawn given them."""

    params: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]


def check_columns(shards: Shards, dim: int) -> None:
    """Raise an error unless rows are named `x` and have `dim` columns.

    All shards have the same columns: the first is checked.
    """
    rows = shards[0].rows
    if "x" not in rows:
        raise ValueError(f"rows must be named x; got {sorted(rows)}.")
    if rows["x"].shape[1:] != (dim,):
        raise ValueError(
            f"rows['x'] must have {dim} columns; got shape {rows['x'].shape[1:]} per row."
        )
