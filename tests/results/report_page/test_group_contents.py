"""The data of the section on groups."""

import json

import numpy as np
import pytest

from vcmc.results.report_page import group_contents as module
from vcmc.results.report_page.group_contents import group_contents
from vcmc.results.tree import make_tree

STATISTICS = ("mean", "sd", "q05", "q50", "q95")


def summary_tree(means, sds, sizes=None):
    """A result with a summary of local parameters (group, …)."""
    num_groups = len(means)
    values = [means, sds, means - 1.6 * sds, means, means + 1.6 * sds]
    groups = {
        "posterior": {"mu": np.zeros((1, 10))},
        "dims": {
            "alpha": np.array(["county", *[""] * (means.ndim - 1)]),
            "num_rows": np.array(["county"]),
        },
        "coords": {"county": np.arange(num_groups) * 10},
        **{
            f"local_{name}": {"alpha": value}
            for name, value in zip(STATISTICS, values, strict=True)
        },
    }
    if sizes is not None:
        groups["group_sizes"] = {"num_rows": sizes}
    return make_tree(groups, {"groups": "county"})


def test_numbers_are_rounded_to_digits_of_the_sd():
    means = np.array([[1234.56789, 1.0], [0.5, np.nan]])
    sds = np.array([[0.0123456, 0.0], [123.456, np.nan]])
    contents = group_contents(summary_tree(means, sds, np.array([4, 2])))
    json.dumps(contents, allow_nan=False)
    first, second = contents["quantities"]
    assert (first["label"], second["label"]) == ("alpha[0]", "alpha[1]")
    assert first["mean"] == [1234.5679, 0]  # to the last of three digits of the sd
    assert first["sd"] == [0.0123, 123]
    assert second["mean"] == [1, None]
    assert contents["labels"] == ["0", "10"]
    assert contents["sizes"] == [4, 2]
    assert "ranks" not in first


def test_of_many_groups_extremes_and_evenly_spaced_ones_are_kept(monkeypatch):
    generator = np.random.default_rng(0)
    means, sizes = generator.normal(size=(3000, 2)), generator.integers(1, 9, size=3000)
    sizes[1717] = 1000
    monkeypatch.setattr(module, "MAX_NUMBERS", 4 * 2 * 300)
    contents = group_contents(summary_tree(means, np.ones((3000, 2)), sizes))
    kept = np.array([int(label) // 10 for label in contents["labels"]])
    assert 250 < len(kept) <= 300
    assert contents["numGroups"] == 3000
    assert contents["sizes"][list(kept).index(1717)] == 1000
    for index, quantity in enumerate(contents["quantities"]):
        order = np.argsort(means[:, index])
        assert {*order[:5], *order[-5:]} <= set(kept)
        ranks = np.argsort(order)
        assert quantity["ranks"] == ranks[kept].tolist()
        assert quantity["average"] == pytest.approx(means[:, index].mean(), abs=0.01)
    gaps = np.diff(np.sort(contents["quantities"][0]["ranks"]))
    assert gaps.max() < 2 * 3000 / 220


def test_results_without_local_parameters_have_no_numbers():
    posterior = {"posterior": {"mu": np.zeros((1, 10))}}
    assert group_contents(make_tree(posterior, {})) is None
    contents = group_contents(make_tree(posterior, {"groups": "county"}))
    assert contents == {"column": "county", "quantities": []}
    unfinished = make_tree({"subposterior": {"mu": np.zeros((2, 1, 9))}}, {"groups": "county"})
    assert group_contents(unfinished) is None
