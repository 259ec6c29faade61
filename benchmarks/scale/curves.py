r"""Fitted exponents: cost ∝ x^b over the upper part of a curve, by least squares of logarithms.

The upper part has the last half of the points, and at least three, because compilation and the
start, which do not grow, are most of the cost of the others. The standard error is that of the
slope, from the residuals; three points leave it one degree of freedom.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

MIN_POINTS = 3
# stages of `infer` under the names of the tables
COLUMNS = {
    "splitting": ("split",),
    "start": ("start", "compile"),
    "sampling": ("sample",),
    "modes": ("modes",),
    "combining": ("check", "combine"),
    "diagnosis": ("diagnose",),
    "locals": ("locals",),
}


class Exponent(NamedTuple):
    """A fitted exponent with its standard error, and the line that it is the slope of."""

    slope: float
    error: float
    x: np.ndarray
    y: np.ndarray

    def __str__(self) -> str:
        return f"{self.slope:.2f} ± {self.error:.2f}"


def fitted(x: Sequence[float], y: Sequence[float]) -> Exponent | None:
    """Fit an exponent to the upper part of a curve; None if it has less than three points."""
    order = np.argsort(x)
    with np.errstate(divide="ignore", invalid="ignore"):  # stages that take no time
        points = np.log(np.column_stack([np.asarray(x, float), np.asarray(y, float)])[order])
    points = points[np.isfinite(points).all(axis=1)]
    upper = points[-max(MIN_POINTS, -(-len(points) // 2)) :]
    if len(upper) < MIN_POINTS:
        return None
    centred = upper - upper.mean(axis=0)
    spread = np.sum(centred[:, 0] ** 2)
    slope = centred[:, 0] @ centred[:, 1] / spread
    residuals = centred[:, 1] - slope * centred[:, 0]
    error = np.sqrt(np.sum(residuals**2) / (len(upper) - 2) / spread)
    line = upper[:, 1].mean() + slope * centred[:, 0]
    return Exponent(slope, error, np.exp(upper[:, 0]), np.exp(line))


def quantities(record: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of a run in all and by stage, its processor seconds and its memory."""
    stages = record["stages"]
    return {
        "seconds": record["seconds"],
        **{name: sum(stages.get(key, 0.0) for key in keys) for name, keys in COLUMNS.items()},
        "processor s": record["cpu_driver"] + record["cpu_workers"],
        "driver, MB": record["peak_driver_mb"],
        "process, MB": max(record["peak_workers_mb"], default=0.0),
    }


def measured(records: Sequence[dict[str, Any]], sweep: str) -> list[dict[str, Any]]:
    """Return the records of a sweep that have no failure."""
    return [each for each in records if each["sweep"] == sweep and not each["failure"]]
