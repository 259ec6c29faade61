import numpy as np
import pandas as pd
import polars as pl
import pytest

from vcmc.data.rows import as_rows


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict])
def test_columns_of_frames_are_arrays(frame):
    rows = as_rows(frame({"a": [1.5, 2.5], "b": [True, False]}))
    assert list(rows) == ["a", "b"]
    np.testing.assert_array_equal(rows["a"], [1.5, 2.5])
    assert rows["b"].dtype == bool


def test_unsigned_numbers_become_signed():
    """In 8 unsigned bits, 2 * 0 - 1 is 255."""
    rows = as_rows({"y": np.zeros(2, np.uint8)})
    np.testing.assert_array_equal(2 * rows["y"] - 1, [-1, -1])


def test_the_first_bad_row_is_counted_from_the_first_of_all_batches():
    with pytest.raises(ValueError, match=r"1 of 3 rows \(first: row 102\)"):
        as_rows({"y": [0.0, 1.0, np.nan]}, first=100)


def test_masked_values_are_refused():
    with pytest.raises(ValueError, match=r"must not be masked; got 1 masked values\. Drop"):
        as_rows({"y": np.ma.array([1.0, 2.0], mask=[False, True])})


def test_repeated_columns_are_refused():
    frame = pd.DataFrame(np.zeros((2, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match=r"different names; got \['a'\] more than once"):
        as_rows(frame)


def test_arrays_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"got x: 3, y: 2\. Put arguments that are not per row"):
        as_rows({"x": np.zeros(3), "y": np.zeros(2)})
