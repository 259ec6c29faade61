"""Dims and coords: what is checked, kept and renamed."""

import datetime

import numpy as np
import pytest

from vcmc.data.labels import NO_LABELS, Labels, as_coords
from vcmc.results.tree import add_groups, build_tree

SHAPES = {"beta": (2,), "table": (2, 3), "alpha": ()}
LABELS = Labels.checked(
    SHAPES, {"beta": "feature", "table": ["feature", None]}, {"feature": ["age", "income"]}
)


def test_dims_without_coords_are_numbered():
    labels = Labels.checked(SHAPES, {"table": ["row", "kind"]}, {"unused": [1]})
    assert {dim: values.tolist() for dim, values in labels.coords.items()} == {
        "row": [0, 1],
        "kind": [0, 1, 2],
    }


@pytest.mark.parametrize(
    ("dims", "coords", "error", "message"),
    [
        ({"table": ["a"]}, {}, ValueError, r"must name the 2 axes of a value of shape \(2, 3\)"),
        ({"beta": ["a"]}, {"a": [1, 2, 3]}, ValueError, "each of the 2 elements .* got 3"),
        ({"table": ["a", "a"]}, {}, ValueError, "each of the 3 elements .* got 2"),
        ({"beta": [1]}, {}, TypeError, r"e.g. {'beta': \['feature'\]}; got 1"),
    ],
)
def test_labels_that_do_not_fit_are_refused(dims, coords, error, message):
    with pytest.raises(error, match=message):
        Labels.checked(SHAPES, dims, coords)


def test_labels_are_the_same_after_groups_and_datasets():
    assert LABELS.groups["dims"]["table"].tolist() == ["feature", ""]
    groups = {"posterior": {name: np.zeros((1, 4, *shape)) for name, shape in SHAPES.items()}}
    tree = build_tree(groups | LABELS.groups, {})
    assert tree.children.keys() == {"posterior"}
    assert tree["posterior"]["table"].dims == ("chain", "draw", "feature", "table_dim_1")
    again = Labels.of_dataset(tree["posterior"].to_dataset(), ["chain", "draw"])
    for labels in (Labels.from_groups(LABELS.groups), again):
        assert labels.dims == LABELS.dims
        assert labels.coords["feature"].tolist() == ["age", "income"]
    new = add_groups(tree, {"mean_error": {"beta": np.zeros(2)}}, {})
    assert new["mean_error"]["beta"].dims == ("feature",)
    assert NO_LABELS.groups == {}


def test_names_that_clash_are_replaced_by_default_ones():
    shapes = {"a": (2,), "b": (2,), "c": (2,), "d": (2, 2), "e": (3,)}
    dims = {"a": "chain", "b": "shard", "c": "a", "d": ["k", "k"], "e": "k"}
    labels = Labels.checked({**shapes, "e": (2,)}, dims, {})
    assert labels.names(shapes, ["shard", "chain", "draw"]) == {
        "a": ["a_dim_0"],
        "b": ["b_dim_0"],
        "c": ["c_dim_0"],
        "d": ["k", "d_dim_1"],
        "e": ["e_dim_0"],  # of another size, as unconstrained coordinates may be
    }
    assert labels.names(shapes, ["chain", "draw"])["b"] == ["shard"]


def test_coords_can_be_stored():
    assert as_coords(("a", "b")).dtype.kind == "U"
    assert as_coords((datetime.datetime(2024, 1, 1),)).dtype.kind == "M"
    assert as_coords([("a", 1), ("b", 2)]).tolist() == ["('a', 1)", "('b', 2)"]
    assert as_coords([None, 2]).tolist() == ["None", "2"]


def test_dims_that_results_cannot_have_are_refused_before_sampling():
    for dim in ("km/h", "", "a\nb"):
        with pytest.raises(ValueError, match=r"dims\['beta'\] must be printable names without"):
            Labels.checked(SHAPES, {"beta": [dim]}, None)
