"""Arrays made of columns; `test_files.py` makes them of files."""

import numpy as np
import pytest

import vcmc
from vcmc.data.columns import choose_columns, expand_columns


def test_columns_are_stacked_and_renamed():
    batch = {"a": np.arange(3.0), "b": np.ones(3)}
    arrays = choose_columns(batch, {"x": ["b", "a"], "y": "a"})
    np.testing.assert_array_equal(arrays["x"], [[1, 0], [1, 1], [1, 2]])
    np.testing.assert_array_equal(arrays["y"], batch["a"])
    assert choose_columns(batch, None) is batch


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, r"columns must map names of arrays to columns, e\.g\..*; got \{\}"),
        (["a"], r"columns must map names .*; got \['a'\]"),
        ({"x": 3}, r"columns\['x'\] must be a column's name or a list of names; got 3"),
        ({"x": []}, r"columns\['x'\] must be a column's name or a list of names; got \[\]"),
        ({"x": ["a", "m"]}, r"columns\['x'\] must be columns of one shape; got a: \(\), m: \(2,\)"),
    ],
)
def test_columns_that_make_no_arrays_are_refused(columns, message):
    rows = {"a": np.arange(4.0), "m": np.zeros((4, 2))}
    with pytest.raises(ValueError, match=message):
        vcmc.split(rows, 2, columns=columns)


NAMES = ["y", "age", "children", "income", "x91", "x92", "x8", "a:b", "z*"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("age", "age"),
        ("age:income", ["age", "children", "income"]),
        (["age:income", "x9*"], ["age", "children", "income", "x91", "x92"]),
        (["x?", "age"], ["x8", "age"]),
        (["children", "age:income"], ["children", "age", "income"]),
        ("a:b", "a:b"),
        (["z*", "y:y"], ["z*", "y"]),
    ],
)
def test_ranges_and_patterns_are_columns_in_the_order_of_the_file(source, expected):
    assert expand_columns({"x": source, "y": "y"}, NAMES) == {"x": expected, "y": "y"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("income:age", r"must be in the order of the data.*Try age:income"),
        ("age:salary", r"'age:salary' must have columns .* at its ends; got 'salary'"),
        (":age", r"':age' must have columns .* at its ends; got ''"),
        ("q*", r"'q\*' must match columns of the data; it matches none of \['y', 'age'"),
    ],
)
def test_ranges_and_patterns_without_columns_are_refused(source, message):
    with pytest.raises(ValueError, match=message):
        expand_columns({"x": [source]}, NAMES)
