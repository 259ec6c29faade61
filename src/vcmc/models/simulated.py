"""Rows of the models here: synthetic ones, and a check of those given."""

from typing import NamedTuple

import numpy as np

from ..data.shard import Shards


class Simulated(NamedTuple):
    """Params, and rows that were drawn given them."""

    params: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]


def check_columns(shards: Shards, dim: int) -> None:
    """Rows must be named `x` and have `dim` columns; all shards have the same columns, so that one is looked at."""
    rows = shards[0].rows
    if "x" not in rows:
        raise ValueError(f"rows must be named x; got {sorted(rows)}.")
    if rows["x"].shape[1:] != (dim,):
        raise ValueError(
            f"rows['x'] must have {dim} columns; got shape {rows['x'].shape[1:]} a row."
        )
