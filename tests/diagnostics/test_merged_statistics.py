"""Statistics merged from parts, against NumPy's of all values."""

import numpy as np
import pytest

from vcmc.diagnostics import merged_statistics
from vcmc.diagnostics.merged_statistics import STATISTICS, Moments, OrderStatistics

VALUES = np.random.default_rng(0).poisson(1.5, size=(101, 7)) + 1e3
VALUES[::3] = 0.0
PARTS = np.split(VALUES, [1, 40, 77])
EXPECTED = {
    "mean": VALUES.mean(axis=0),
    "sd": VALUES.std(axis=0, ddof=1),
    "share of zeros": np.mean(VALUES == 0, axis=0),
    "smallest": VALUES.min(axis=0),
    "q05": np.quantile(VALUES, 0.05, axis=0),
    "q50": np.quantile(VALUES, 0.5, axis=0),
    "q95": np.quantile(VALUES, 0.95, axis=0),
    "largest": VALUES.max(axis=0),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_merged_statistics_are_those_of_all_values(name):
    statistic = STATISTICS[name]
    merged = statistic.summary.merge([statistic.summary.reduce(part) for part in PARTS])
    # means and sums of squares are rounded differently by part, nothing else is
    rtol = 1e-14 if name in ("mean", "sd") else 0.0
    np.testing.assert_allclose(statistic.value(merged), EXPECTED[name], rtol=rtol, atol=0)


@pytest.mark.parametrize("kind", [Moments, OrderStatistics])
def test_blocks_of_replicates_are_joined(kind):
    together = kind.reduce(VALUES)
    joined = kind.join([kind.reduce(VALUES[:, :3]), kind.reduce(VALUES[:, 3:])])
    for one, other in zip(joined, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_sd_of_a_single_value_is_unknown():
    assert np.isnan(Moments.reduce(VALUES[:1]).sd).all()


def test_the_level_of_a_thinned_quantile_is_off_by_less_than_its_bound(monkeypatch):
    """The bound is 1 / m; errors are far smaller, as those of shards cancel."""
    num_points, num_shards = 50, 4
    monkeypatch.setattr(merged_statistics, "MAX_POINTS", num_points)
    values = np.random.default_rng(1).normal(size=(num_shards * 1000, 20))
    summaries = [OrderStatistics.reduce(part) for part in np.split(values, num_shards)]
    assert [len(summary.points) for summary in summaries] == [num_points] * num_shards
    merged = OrderStatistics.merge(summaries)
    for level in (0.05, 0.5, 0.95):
        levels = np.mean(values <= merged.quantile(level), axis=0)
        assert np.abs(levels - level).max() < 1 / num_points
        typical = 1 / (num_points * np.sqrt(12 * num_shards))
        # the root mean square of 20 errors is within 1 ± 3 / sqrt(40) of what is expected,
        # or below, as the error of stratified points is at most that of uniform ones
        assert np.sqrt(np.mean((levels - level) ** 2)) < (1 + 3 / np.sqrt(40)) * typical
