"""Modes survive a tree and a file."""

import numpy as np
import pytest
import xarray

import vcmc
from vcmc.diagnostics.mode_regions import ModeDraws, ModeRegions
from vcmc.diagnostics.sampling_error import DrawSource
from vcmc.results.mode_groups import mode_groups, stored_modes
from vcmc.results.tree import make_tree
from vcmc.space import Product

SPACE = Product({"scale": vcmc.Positive()})


@pytest.fixture
def modes():
    regions = ModeRegions(np.array([[0.0], [2.0]]), np.ones((2, 1, 1)), np.zeros(2))
    labels = np.array([0, 1, 1, 1])
    sources = (DrawSource(1.0), DrawSource(3.0))
    weights = np.array([0.25, 0.75])
    return ModeDraws(
        labels, regions, weights, np.full(2, 0.01), np.zeros(2), sources, ("", "exact")
    )


def test_modes_are_read_as_they_were_stored(modes, tmp_path):
    groups = mode_groups(modes, modes.labels.reshape(1, 4), SPACE)
    tree = make_tree(groups, {"mode_exact": list(modes.exact)})
    tree.to_netcdf(tmp_path / "tree.nc")
    for stored in (tree, xarray.open_datatree(tmp_path / "tree.nc")):
        found = stored_modes(stored)
        np.testing.assert_array_equal(found.labels, modes.labels)
        np.testing.assert_array_equal(found.regions.centres, modes.regions.centres)
        np.testing.assert_array_equal(found.weights, modes.weights)
        assert found.exact == modes.exact
        assert [source.num_independent for source in found.sources] == [1.0, 3.0]


def test_modes_are_in_the_parameters_units(modes):
    tree = make_tree(mode_groups(modes, modes.labels.reshape(1, 4), SPACE), {})
    np.testing.assert_allclose(tree["modes"]["scale"], [1.0, np.exp(2)])
    assert tree["draw_modes"]["mode"].dims == ("chain", "draw")


def test_a_tree_without_modes_has_none():
    assert stored_modes(make_tree({"posterior": {"scale": np.ones((1, 4))}}, {})) is None
