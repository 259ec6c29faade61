"""What the answers to a problem are compared with: means, sds and quantiles of all parameters."""

from typing import NamedTuple

import numpy as np
from answer import Draws
from scipy.stats import norm

LEVELS = (0.05, 0.95)  # of the quantiles
MEDIAN_OF_ABSOLUTE_NORMAL = 0.6745


class Truth(NamedTuple):
    """Means, sds and quantiles of every parameter, and their own errors.

    Attributes:
        summary: mean, sd, 5 % and 95 % quantile of each parameter, as arrays (4, …) by name.
        errors: median errors of means (in sds), of sds (relative) and of quantiles (in sds).
        origin: how they were computed.
    """

    summary: Draws
    errors: tuple[float, float, float]
    origin: str


def summary_of(draws: np.ndarray) -> np.ndarray:
    """Return mean, sd and quantiles of draws (draw, …) as an array (4, …)."""
    return np.stack([draws.mean(axis=0), draws.std(axis=0), *np.quantile(draws, LEVELS, axis=0)])


def truth_of_draws(draws: Draws, num_effective: float, origin: str) -> Truth:
    """Return the statistics of draws, with the asymptotic errors of as many normal draws."""
    unit = MEDIAN_OF_ABSOLUTE_NORMAL / np.sqrt(num_effective)
    level = LEVELS[0]
    of_quantile = np.sqrt(level * (1 - level)) / norm.pdf(norm.ppf(level))
    return Truth(
        {name: summary_of(values) for name, values in draws.items()},
        (unit, unit / np.sqrt(2), unit * of_quantile),
        f"{origin}, {num_effective:.0f} effective draws",
    )
