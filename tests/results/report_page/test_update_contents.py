"""The section of the report page on updates."""

import json

import numpy as np

import vcmc
from vcmc.results.quantities import quantities
from vcmc.results.report_page.update_contents import MAX_VALUES, update_contents
from vcmc.results.tree import add_groups


def some_tree(num_updates=3, dim=2):
    draws = np.random.default_rng(0).normal(size=(2, 50, dim))
    tree = vcmc.combine({"beta": draws, "extra": draws[..., 0]}, progress=False)
    history = {
        "updates": {
            "num_rows": np.arange(num_updates) * 1000 - 5,
            "num_shards": np.full(num_updates, 4),
            "time": np.array(["2026-11-18T20:59:16+00:00"] * num_updates),
            "verdict": np.array(["good"] * num_updates),
            "name": np.array([f"month <{number}>" for number in range(num_updates)]),
        },
        "update_mean": {"beta": np.arange(num_updates * dim, dtype=float).reshape(-1, dim)},
        "update_sd": {"beta": np.full((num_updates, dim), 0.25)},
    }
    history["update_sd"]["beta"][0, 1] = np.nan
    return add_groups(tree, history, {})


def test_estimates_are_by_element_and_update():
    tree = some_tree()
    found = update_contents(tree, list(quantities(tree)))
    assert [update["name"] for update in found["updates"]] == [
        "month <0>",
        "month <1>",
        "month <2>",
    ]
    assert found["updates"][0]["rows"] == -5
    assert found["estimates"] == {
        "beta[0]": [[0, 2, 4], [0.25, 0.25, 0.25]],
        "beta[1]": [[1, 3, 5], [None, 0.25, 0.25]],
    }
    json.dumps(found, allow_nan=False)


def test_results_without_updates_have_none():
    tree = some_tree()
    plain = add_groups(tree, {}, {}, drop=("updates", "update_mean", "update_sd"))
    assert update_contents(plain, list(quantities(plain))) is None


def test_the_number_of_estimates_is_bounded():
    tree = some_tree(num_updates=300, dim=100)
    found = update_contents(tree, list(quantities(tree)))
    assert len(found["estimates"]) == MAX_VALUES // 600


def test_the_page_has_the_section(tmp_path):
    text = vcmc.report(some_tree(), tmp_path / "page.html").read_text()
    assert 'id="update-chart"' in text
    assert "drawUpdates" in text
    assert "month <0>" not in text  # names are escaped
