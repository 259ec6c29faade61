"""Arrays made of columns; `test_files.py` makes them of files."""

import numpy as np
import pytest

import vcmc
from vcmc.data.columns import choose_columns


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
