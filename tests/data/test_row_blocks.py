"""Rows in their order, from all forms, in blocks of one size."""

import numpy as np
import pytest

import vcmc
from vcmc.data.grouped import GroupedPartition
from vcmc.data.row_blocks import RowStream, blocks_of, checked_batches, num_entries
from vcmc.data.size import FileRows

ROWS = {"x": np.arange(22.0).reshape(11, 2), "y": np.arange(11, dtype=np.int8)}


def forms(folder):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zarr = pytest.importorskip("zarr")
    columns = {"a": ROWS["x"][:, 0], "b": ROWS["x"][:, 1], "y": ROWS["y"]}
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=4)
    group = zarr.open_group(str(folder / "rows.zarr"), mode="w")
    for name, array in ROWS.items():
        group.create_array(name, data=array)
        np.save(folder / f"{name}.npy", array)
    return {
        "memory": ROWS,
        "parquet": FileRows(folder / "rows.parquet", {"x": ["a", "b"], "y": "y"}),
        "zarr": folder / "rows.zarr",
        "mapped": {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ROWS},
        "split": vcmc.split(ROWS, 3),
        "lazy": vcmc.LazyRows(
            lambda shard: {name: array[4 * shard : 4 * shard + 4] for name, array in ROWS.items()},
            3,
        ),
    }


def test_all_forms_are_read_in_the_order_of_the_rows(tmp_path):
    for form, rows in forms(tmp_path).items():
        stream = RowStream(rows)
        blocks = list(blocks_of(checked_batches(stream, ["x", "y"]), 4))
        assert [num_entries(block) for block in blocks] == [4, 4, 3], form
        for name, array in ROWS.items():
            np.testing.assert_array_equal(np.concatenate([b[name] for b in blocks]), array)
        assert blocks[0]["y"].dtype == np.int64
        assert stream.num_rows == (None if form == "lazy" else 11), form


def test_only_the_columns_that_are_used_are_checked():
    rows = {**ROWS, "note": np.array(["a"] * 11), "z": np.full(11, np.nan)}
    (batch,) = checked_batches(RowStream(rows), ["y"])
    assert list(batch) == ["y"]
    with pytest.raises(ValueError, match=r"rows\['z'\] must be finite"):
        list(checked_batches(RowStream(rows), ["z"]))


def test_fingerprints_tell_rows_apart(tmp_path):
    for form, rows in forms(tmp_path).items():
        assert RowStream(rows).fingerprint() == RowStream(rows).fingerprint(), form
    changed = {**ROWS, "y": ROWS["y"] + 1}
    assert RowStream(changed).fingerprint() != RowStream(ROWS).fingerprint()
    texts = [RowStream({"g": np.array([label], object)}).fingerprint() for label in "ab"]
    assert texts[0] != texts[1]


def test_what_is_no_stream_of_rows_is_refused():
    with pytest.raises(TypeError, match=r"vcmc\.LazyRows"):
        RowStream(lambda shard: ROWS)
    grouped = GroupedPartition(vcmc.split(ROWS, 2, groups="y"), "y")
    with pytest.raises(TypeError, match="not split by groups"):
        RowStream(grouped)


def test_text_in_files_becomes_numbers_of_the_levels_that_are_known(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "rows.csv").write_text("region,y\nsouth,1\nnorth,2\nsouth,3\n")
    levels = {"region": np.array(["east", "north", "south"])}
    (batch,) = RowStream(FileRows(tmp_path / "rows.csv", None, levels)).batches()
    assert batch["region"].tolist() == [2, 1, 2]
    with pytest.raises(ValueError, match=r"must hold levels that are known, .*got 'south'"):
        next(RowStream(FileRows(tmp_path / "rows.csv", None, {"region": ["north"]})).batches())
