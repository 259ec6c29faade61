"""Local parameters by group, from draws and from summaries."""

import numpy as np
import pytest

from vcmc.results.group_summaries import describe_groups, group_sizes, group_summaries
from vcmc.results.tree import make_tree

LABELS = np.array(["b", "a", "c"])
SIZES = np.array([7, 0, 40])
DRAWS = np.random.default_rng(0).normal(size=(2, 250, 3, 2)) + np.array([2.0, 0.0, 1.0])[:, None]
FLAT = DRAWS.reshape(500, 3, 2)
NAMES = {
    "dims": {"alpha": np.array(["county", ""]), "num_rows": np.array(["county"])},
    "coords": {"county": LABELS},
}


def tree_of(mode):
    groups = {"posterior": {"mu": np.zeros((2, 250))}, **NAMES}
    if mode == "draws":
        groups["posterior"]["alpha"] = DRAWS
    elif mode == "summary":
        levels = np.quantile(FLAT, [0.05, 0.5, 0.95], axis=0)
        statistics = {"mean": FLAT.mean(axis=0), "sd": FLAT.std(axis=0)}
        statistics |= dict(zip(("q05", "q50", "q95"), levels, strict=True))
        groups |= {f"local_{name}": {"alpha": values} for name, values in statistics.items()}
    if mode != "none":
        groups["group_sizes"] = {"num_rows": SIZES}
    return make_tree(groups, {"groups": "county"})


@pytest.mark.parametrize("mode", ["draws", "summary"])
def test_statistics_are_those_of_the_draws_of_every_group(mode):
    first, second = group_summaries(tree_of(mode))
    assert (first.name, first.label, second.label) == ("alpha", "alpha[0]", "alpha[1]")
    assert first.groups.tolist() == LABELS.tolist()
    np.testing.assert_allclose(second.mean, FLAT[..., 1].mean(axis=0))
    np.testing.assert_allclose(second.sd, FLAT[..., 1].std(axis=0))
    np.testing.assert_allclose(first.low, np.quantile(FLAT[..., 0], 0.05, axis=0))
    np.testing.assert_allclose(first.high, np.quantile(FLAT[..., 0], 0.95, axis=0))
    assert first.at(first.order()).groups.tolist() == ["a", "c", "b"]
    assert group_sizes(tree_of(mode)).tolist() == SIZES.tolist()


def test_the_total_sd_is_that_of_all_groups_values_together():
    first = group_summaries(tree_of("draws"))[0]
    assert first.total_sd == pytest.approx(FLAT[..., 0].std())


def test_some_are_chosen_by_parameter_or_label():
    tree = tree_of("draws")
    assert [each.label for each in group_summaries(tree, "alpha")] == ["alpha[0]", "alpha[1]"]
    assert [each.label for each in group_summaries(tree, ["alpha[1]"])] == ["alpha[1]"]
    with pytest.raises(ValueError, match=r"names must be local parameters, \['alpha'\].*got 'mu'"):
        group_summaries(tree, ["mu"])


def test_results_without_local_parameters_are_refused():
    with pytest.raises(ValueError, match="has no groups"):
        group_summaries(make_tree({"posterior": {"mu": np.zeros((1, 5))}}, {}))
    with pytest.raises(ValueError, match='locals="none"'):
        group_summaries(tree_of("none"))
    assert group_sizes(tree_of("none")) is None


@pytest.mark.parametrize("mode", ["draws", "summary"])
def test_groups_are_described_by_their_number_and_extremes(mode):
    lines = describe_groups(tree_of(mode)).splitlines()
    low, high = (FLAT[:, number, 0] for number in (1, 0))
    assert lines[0] == "3 groups (county), of 0 to 40 rows."
    decimals = [1 if values.std() >= 1 else 2 for values in (low, high)]
    assert lines[1] == (
        f"alpha[0]: means from {low.mean():.{decimals[0]}f} ± {low.std():.{decimals[0]}f} (a) to "
        f"{high.mean():.{decimals[1]}f} ± {high.std():.{decimals[1]}f} (b)."
    )
    assert len(lines) == 3
    assert describe_groups(tree_of("none")) == ""
