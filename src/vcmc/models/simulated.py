"""Synthetic data, and the params that they were made with."""

from typing import NamedTuple

import numpy as np


class Simulated(NamedTuple):
    """Params, and rows that were drawn given them."""

    params: dict[str, np.ndarray]
    rows: dict[str, np.ndarray]
