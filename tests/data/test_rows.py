import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import vcmc
from vcmc.data.rows import as_rows


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict])
def test_columns_of_frames_are_arrays(frame):
    rows = as_rows(frame({"a": [1.5, 2.5], "b": [True, False]}))
    assert list(rows) == ["a", "b"]
    np.testing.assert_array_equal(rows["a"], [1.5, 2.5])
    assert rows["b"].dtype == bool


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


def test_names_that_are_equal_as_text_are_refused():
    with pytest.raises(ValueError, match=r"different names; got \['1'\] more than once"):
        as_rows({1: np.zeros(3), "1": np.ones(3)})


@pytest.mark.parametrize(
    ("given", "native"),
    [
        ("i1", "i8"),
        (">i2", "i8"),
        ("<i4", "i8"),
        ("u4", "i8"),
        ("u8", "i8"),
        ("f2", "f8"),
        (">f4", "f8"),
        (">f8", "f8"),
        ("g", "f8"),
        ("?", "?"),
    ],
)
@pytest.mark.parametrize("folder", [None, "split"])
def test_rows_reach_the_model_in_64_bits_of_this_machine(given, native, folder, tmp_path):
    values = np.array([1, 0, 1, 1], given)
    partition = vcmc.split({"y": values}, 1, folder=folder and tmp_path / folder)
    y = partition.load(0).rows["y"]
    assert y.dtype == np.dtype(native)
    np.testing.assert_array_equal(np.sort(y), np.sort(values))
    loaded = vcmc.LazyRows(lambda shard: {"y": values}, 1).load(0).rows["y"]
    assert loaded.dtype == np.dtype(native)


def test_small_integers_do_not_overflow():
    y = vcmc.split({"y": np.full(3, 100, np.int8)}, 1).load(0).rows["y"]
    np.testing.assert_array_equal(y * 2, [200, 200, 200])


def test_rows_are_converted_shard_by_shard():
    values = np.zeros(8, np.float32)
    assert vcmc.split({"y": values}, 2).rows["y"] is values


def test_numbers_beyond_64_bits_are_refused():
    with pytest.raises(
        ValueError, match=r"rows\['y'\] must be at most 9223372036854775807; got 922"
    ):
        as_rows({"y": np.array([1, 2**63], np.uint64)})
    with pytest.raises(ValueError, match=r"rows\['y'\] must be finite.*1 of 2 rows"):
        vcmc.split({"y": np.array([1, np.finfo("g").max], "g")}, 1)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            np.array([1, 2], object),
            r"rows\['y'\] must hold numbers, booleans or text; got dtype o",
        ),
        (np.array([1, 2], "M8[s]"), "got dtype datetime64"),
        (np.array([1j, 2]), "got dtype complex128"),
        (np.zeros((2, 0)), r"rows\['y'\] must have at least one value per row; got shape \(2, 0\)"),
        (np.zeros(0), "at least one row"),
        (3.0, "must have a leading axis"),
    ],
)
def test_columns_without_numbers_are_refused(column, message):
    with pytest.raises(ValueError, match=message):
        as_rows({"y": column})


def test_forms_that_are_not_arrays_yet_are_refused_with_the_way_out():
    with pytest.raises(TypeError, match=r"got a LazyFrame.*\.collect\(\)"):
        as_rows(pl.LazyFrame({"y": [1, 2]}))
    with pytest.raises(ValueError, match=r"rows\['x'\] is a sparse matrix.*\.toarray\(\)"):
        as_rows({"x": scipy.sparse.eye(3).tocsr()})
