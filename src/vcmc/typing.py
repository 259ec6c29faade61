"""The types that everybody speaks of: rows, params, points."""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Float

Rows: TypeAlias = Mapping[str, Array | np.ndarray]
"""Named arrays that share their leading axis: one entry per row."""

Params: TypeAlias = Mapping[str, Array]
"""Named values, each in its own space."""

Point: TypeAlias = Float[Array, " dim"]
"""Params as one vector of real numbers."""

Scalar: TypeAlias = Float[Array, ""]
