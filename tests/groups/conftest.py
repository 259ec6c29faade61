"""Comparison of draws with a truth, in Monte Carlo standard errors."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

MAX_STANDARD_ERRORS = 4.5  # of several hundred comparisons, one in 500 sets exceeds it by chance
LEVELS = (0.05, 0.5, 0.95)


class MonteCarlo:
    """Draws of one quantity, by chain: their moments, quantiles and effective numbers."""

    def __init__(self, draws):
        self.draws = np.asarray(draws, float).reshape(-1, np.shape(draws)[-1])
        self.mean, self.sd = self.draws.mean(), self.draws.std()
        standard = (self.draws - self.mean) / self.sd
        self.mean_se = self.sd / np.sqrt(self._effective(standard))
        spread = np.sqrt(np.mean(standard**4) - 1) / 2  # of the sd, relatively, for one draw
        self.sd_se = self.sd * spread / np.sqrt(self._effective(standard**2))

    def _effective(self, values):
        count = array_stats.ess(values, chain_axis=0, draw_axis=1, method="mean")
        return min(float(count), values.size)

    def quantile(self, level):
        return np.quantile(self.draws, level)

    def share_below(self, value):
        """Return the share of draws below a value, and its standard error."""
        below = (self.draws < value).astype(float)
        share = below.mean()
        return share, np.sqrt(share * (1 - share) / self._effective(below))


@pytest.fixture(scope="session")
def monte_carlo():
    """A function that makes draws, (chain, draw) or (draw,), comparable."""
    return MonteCarlo


@pytest.fixture(scope="session")
def assert_same():
    """A function that compares draws with a truth, or with other draws.

    A truth has `mean`, `sd` and `share_below`, whose standard errors are zero.
    """
    return _assert_same


def _assert_same(draws, truth, name):
    for statistic in ("mean", "sd"):
        difference = getattr(draws, statistic) - getattr(truth, statistic)
        se = np.hypot(*(getattr(part, f"{statistic}_se", 0.0) for part in (draws, truth)))
        assert abs(difference) <= MAX_STANDARD_ERRORS * se, (name, statistic, difference / se)
    for level in LEVELS:
        at = draws.quantile(level)
        shares = [part.share_below(at) for part in (draws, truth)]
        se = np.hypot(*(se for _, se in shares))
        difference = shares[0][0] - shares[1][0]
        assert abs(difference) <= MAX_STANDARD_ERRORS * se, (name, level, difference / se)
