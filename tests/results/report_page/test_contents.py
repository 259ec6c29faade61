"""The data of the report page: packed numbers, distances, and what is left out."""

import base64
import json

import numpy as np
import pytest

from vcmc.results.report_page import contents as module
from vcmc.results.report_page.contents import contents
from vcmc.results.tree import make_tree


@pytest.fixture
def draws():
    return np.random.default_rng(0).normal(size=(5, 1, 200, 3))


def tree_of(draws, **attributes):
    groups = {"posterior": {"beta": draws.mean(axis=0)}, "subposterior": {"beta": draws}}
    return make_tree(groups, {"num_shards": len(draws)} | attributes)


def test_the_data_are_json_without_nan(draws):
    draws[2, 0, 150:] = np.nan  # a shard with fewer draws
    posterior = np.nan_to_num(draws).mean(axis=0)
    groups = {"posterior": {"beta": posterior}, "subposterior": {"beta": draws}}
    json.dumps(contents(make_tree(groups, {})), allow_nan=False)


def test_quantiles_are_unpacked_to_those_of_the_draws(draws):
    line = contents(tree_of(draws))["quantities"][1]
    integers = np.frombuffer(base64.b64decode(line["quantiles"]), "<u2").reshape(5, 5)
    low, high = line["forest"]
    expected = np.quantile(draws[:, 0, :, 1], [0.05, 0.25, 0.5, 0.75, 0.95], axis=1).T
    np.testing.assert_allclose(low + integers / 65535 * (high - low), expected, atol=1e-3)
    curves = np.frombuffer(base64.b64decode(line["curves"]), np.uint8)
    assert len(curves) == 6 * module.NUM_GRID_POINTS
    assert curves.max() == 255


def test_each_shard_names_the_quantity_in_which_it_is_most_distant(draws):
    draws[3, ..., 2] += 30
    data = contents(tree_of(draws))
    assert data["shards"][3]["distantIn"] == "beta[2]"
    outliers = [
        shard["shard"]
        for shard in data["shards"]
        if abs(shard["distance"]) > data["outlierThreshold"]
    ]
    assert outliers == [3]


def test_charts_are_limited_to_the_quantities_most_in_doubt(draws, monkeypatch):
    draws[3, ..., 2] += 30
    monkeypatch.setattr(module, "MAX_INTERVALS", 5)  # one quantity of five shards
    data = contents(tree_of(draws))
    assert [line["label"] for line in data["quantities"] if "quantiles" in line] == ["beta[2]"]
    assert data["numDetailed"] == 1


@pytest.mark.parametrize("attributes", [{"model": "Model(c: Exchangeable(3))"}, {}])
def test_exchangeable_components_have_no_distances(draws, attributes):
    data = contents(tree_of(draws, **attributes))
    assert data["exchangeable"] == bool(attributes)
    assert (data["outlierThreshold"] is None) == bool(attributes)
    assert ("distance" in data["shards"][0]) != bool(attributes)


@pytest.mark.parametrize("is_several", [False, True])
def test_chains_of_several_modes_are_not_compared(draws, is_several):
    groups = {
        "posterior": {"beta": draws.mean(axis=0)},
        "subposterior": {"beta": draws},
        "subposterior_rhat": {"beta": np.full((5, 3), 1.8)},
        "subposterior_ess": {"beta": np.full((5, 3), 3.0)},
    }
    if is_several:
        groups["draw_modes"] = {"mode": np.zeros((1, 200), int)}
    shard = contents(make_tree(groups, {}))["shards"][0]
    assert ("rhat" in shard, "ess" in shard) == (not is_several, not is_several)
