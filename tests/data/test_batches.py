"""Reading rows in batches: which files are read, and what is said of damaged ones."""

import numpy as np
import pytest

import vcmc
from vcmc.data.batches import batches, read_npz


def write_parquet(path, values):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"y": np.asarray(values, float)}), path)
    return path


def values(path):
    return np.concatenate([batch["y"] for batch in batches(path)]).tolist()


@pytest.fixture
def folder(tmp_path):
    write_parquet(tmp_path / "rows" / "part-0.parquet", [0, 1])
    write_parquet(tmp_path / "rows" / "year=2026" / "part-1.parquet", [2])
    return tmp_path / "rows"


@pytest.mark.parametrize(
    "name",
    [
        ".ipynb_checkpoints/part-0-checkpoint.parquet",
        "_temporary/0/part-1.parquet",
        "_delta_log/00010.checkpoint.parquet",
        ".part-1.parquet",
        "_part-1.parquet",
        "year=2026/.part-1.parquet",
    ],
)
def test_hidden_and_temporary_files_are_not_rows(name, folder):
    write_parquet(folder / name, [99])
    assert values(folder) == [0, 1, 2]


def test_a_hidden_file_or_folder_that_is_named_is_read(tmp_path):
    assert values(write_parquet(tmp_path / ".rows" / "_a.parquet", [5])) == [5]
    write_parquet(tmp_path / ".rows" / "b.parquet", [6])
    assert values(tmp_path / ".rows") == [6]


def test_links_to_folders_are_followed_once(folder, tmp_path):
    write_parquet(tmp_path / "elsewhere" / "c.parquet", [3])
    (folder / "z").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(folder)
    assert values(folder) == [0, 1, 2, 3]


def test_folders_called_like_files_are_folders(folder):
    write_parquet(folder / "year=2027.parquet" / "part-2.parquet", [4])
    assert values(folder) == [0, 1, 2, 4]


@pytest.mark.parametrize("damage", ["truncate", "overwrite", "empty"])
def test_a_damaged_parquet_file_is_named(damage, folder, tmp_path):
    path = write_parquet(folder / "a b.parquet", np.random.default_rng(0).normal(size=20_000))
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "overwrite":
        content[4:40] = bytes(36)
    else:
        content = bytearray()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a b\.parquet cannot be read as a Parquet file \("):
        vcmc.split(folder, 2, folder=tmp_path / "split")


def test_a_damaged_zarr_store_is_named(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "rows.zarr"), mode="w")
    group.create_array("y", data=np.random.default_rng(0).normal(size=1000), chunks=(100,))
    chunk = next(path for path in (tmp_path / "rows.zarr").rglob("*/c/3") if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:20])
    with pytest.raises(ValueError, match=r"rows\.zarr.*rows\['y'\] cannot be read"):
        vcmc.split(tmp_path / "rows.zarr", 2, folder=tmp_path / "split")
    (tmp_path / "rows.zarr" / "zarr.json").write_text("{")
    with pytest.raises(ValueError, match=r"rows\.zarr cannot be read as a Zarr store"):
        vcmc.split(tmp_path / "rows.zarr", 2, folder=tmp_path / "split")


def test_a_damaged_numpy_archive_is_named(tmp_path):
    path = tmp_path / "rows.npz"
    np.savez(path, y=np.random.default_rng(0).normal(size=1000))
    whole = path.read_bytes()
    np.testing.assert_array_equal(read_npz(path)["y"][:2], np.load(path)["y"][:2])
    flipped = bytearray(whole)
    flipped[500] ^= 1
    for content in (whole[:4000], whole[:-30], flipped, b"", b"no archive"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"rows\.npz cannot be read as a NumPy archive \("):
            read_npz(path)
    with path.open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(ValueError, match=r"rows\.npz cannot be read as a NumPy archive \("):
        read_npz(path)


def test_names_in_an_archive_may_end_like_its_members(tmp_path):
    arrays = {"a": np.arange(3), "a.npy": np.ones(2), "a.npy.npy": np.zeros(1)}
    np.savez(tmp_path / "rows.npz", **arrays)
    read = read_npz(tmp_path / "rows.npz")
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)


def test_rows_that_cannot_be_opened_are_named(folder):
    (folder / "part-2.parquet").symlink_to(folder / "gone.parquet")
    with pytest.raises(ValueError, match=r"part-2\.parquet cannot be read"):
        values(folder)


def test_a_folder_of_rows_within_a_zarr_store_is_refused(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "rows.zarr"), mode="w")
    group.create_array("y", data=np.arange(100.0))
    with pytest.raises(ValueError, match=r"folder must lie outside of the rows.*rows\.zarr"):
        vcmc.split(tmp_path / "rows.zarr", 2, folder=tmp_path / "rows.zarr" / "split")


def test_repeated_columns_of_a_parquet_file_are_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["y", "y"])
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"rows\.parquet must have columns of different names"):
        vcmc.split(tmp_path / "rows.parquet", 1)


def test_rows_without_rows_are_refused(tmp_path):
    np.save(tmp_path / "y.npy", np.zeros((0, 3)))
    for rows in (
        write_parquet(tmp_path / "rows.parquet", []),
        {"y": np.load(tmp_path / "y.npy", mmap_mode="r")},
    ):
        with pytest.raises(ValueError, match="rows must hold at least one row; got none"):
            vcmc.split(rows, 1)


def test_lists_beside_mapped_arrays_are_arrays(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(5.0))
    rows = {"y": np.load(tmp_path / "y.npy", mmap_mode="r"), "x": [0, 1, 2, 3, 4]}
    for folder in (None, tmp_path / "split", tmp_path / "split"):
        shard = vcmc.split(rows, 1, folder=folder).load(0)
        np.testing.assert_array_equal(shard.rows["x"], shard.rows["y"])


def test_an_array_that_shrinks_while_it_is_read_is_refused():
    class Shrinking:
        shape, chunks, dtype = (10,), (10,), np.dtype(float)

        def __getitem__(self, index):
            return np.zeros(10)[index][:7]

    with pytest.raises(ValueError, match=r"rows\['y'\] must keep its number of rows .* got 7"):
        vcmc.split({"y": Shrinking()}, 2)
