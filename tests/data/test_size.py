"""Sizes of rows in memory and in files."""

import numpy as np
import pytest

from vcmc.data.size import FileRows, RowsSize, rows_size

ROWS = {"x": np.zeros((50, 3), np.float32), "y": np.zeros(50, np.int8)}


def test_arrays_frames_and_lists_have_a_size():
    assert rows_size(ROWS) == RowsSize(50, 8 * 5)
    assert rows_size(ROWS).num_bytes == 2000
    assert rows_size({"y": [1.0, 2.0]}) == RowsSize(2, 16)
    pandas = pytest.importorskip("pandas")
    assert rows_size(pandas.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})) == RowsSize(2, 24)


def test_parquet_files_have_a_size(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({name: np.zeros(20) for name in "abc"})
    frame.to_parquet(tmp_path / "one.parquet")
    frame.to_parquet(tmp_path / "two.parquet")
    assert rows_size(tmp_path) == RowsSize(40, 32)
    columns = {"y": "a", "x": ["b"]}
    assert rows_size(FileRows(str(tmp_path / "one.parquet"), columns)) == RowsSize(20, 24)


def test_zarr_stores_and_mapped_arrays_have_a_size(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "rows.zarr"), mode="w")
    group.create_array("x", data=np.zeros((30, 2)))
    group.create_array("y", data=np.zeros(30))
    assert rows_size(str(tmp_path / "rows.zarr")) == RowsSize(30, 32)
    np.save(tmp_path / "y.npy", np.zeros(10))
    assert rows_size({"y": np.load(tmp_path / "y.npy", mmap_mode="r")}) == RowsSize(10, 16)


def test_rows_without_a_leading_axis_are_refused():
    with pytest.raises(ValueError, match="leading axis"):
        rows_size({"y": 1.0})
