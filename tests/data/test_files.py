"""Rows beyond memory: all are read, each is in one shard, and the posterior is right."""

import gc
import json
import os
import pickle

import numpy as np
import pytest

import vcmc
from vcmc.data import batches, shard_writer

NUM_ROWS = 1003


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", 2000)
    monkeypatch.setattr(shard_writer, "BUFFER_BYTES", 10_000)


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, 3))
    return {
        "x": x,
        "y": x @ [1.0, -2.0, 0.5] + generator.normal(size=NUM_ROWS),
        "n": np.arange(NUM_ROWS),
    }


def parquet(rows, path, **changed):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = pa.FixedSizeListArray.from_arrays(pa.array(rows["x"].ravel()), 3)
    columns = {"x": x, "y": pa.array(rows["y"]), "n": pa.array(rows["n"])} | changed
    pq.write_table(pa.table(columns), path, row_group_size=300)
    return path


def parquet_folder(rows, path):
    path.mkdir()
    for part in range(3):
        chosen = slice(part * 400, (part + 1) * 400)
        parquet(
            {name: array[chosen] for name, array in rows.items()}, path / f"part-{part}.parquet"
        )
    return path


def zarr_store(rows, path):
    group = pytest.importorskip("zarr").open_group(str(path), mode="w")
    for name, array in rows.items():
        group.create_array(name, data=array, chunks=(100, *array.shape[1:]))
    return path


def memory_mapped(rows, path):
    path.mkdir()
    for name, array in rows.items():
        np.save(path / f"{name}.npy", array)
    return {name: np.load(path / f"{name}.npy", mmap_mode="r") for name in rows}


def zarr_arrays(rows, path):
    return dict(
        pytest.importorskip("zarr").open_group(str(zarr_store(rows, path)), mode="r").arrays()
    )


FORMS = {
    "a Parquet file": lambda rows, path: parquet(rows, path.with_suffix(".parquet")),
    "Parquet files": parquet_folder,
    "a Zarr store": zarr_store,
    "Zarr arrays": zarr_arrays,
    "memory-mapped arrays": memory_mapped,
}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_shards", [1, 7])
def test_every_row_is_in_exactly_one_shard(form, num_shards, rows, tmp_path):
    partition = vcmc.split(FORMS[form](rows, tmp_path / "rows"), num_shards)
    shards = [partition.load(shard) for shard in range(num_shards)]
    assert [shard.num_rows for shard in shards] == partition.sizes
    assert max(partition.sizes) - min(partition.sizes) <= 1
    assert len({shard.weights.shape for shard in shards}) == 1
    real = [
        {name: np.asarray(array)[: shard.num_rows] for name, array in shard.rows.items()}
        for shard in shards
    ]
    numbers = np.concatenate([shard_rows["n"] for shard_rows in real])
    assert sorted(numbers) == list(range(NUM_ROWS))
    for name in ("x", "y"):
        np.testing.assert_array_equal(
            np.concatenate([shard_rows[name] for shard_rows in real]), rows[name][numbers]
        )


@pytest.mark.usefixtures("small_batches")
def test_rows_are_split_at_random(rows, tmp_path):
    """Of every seven consecutive rows each shard gets one, at random."""
    path = parquet(rows, tmp_path / "rows.parquet")
    one, same, other = (vcmc.split(path, 7, seed=seed) for seed in (0, 0, 1))
    numbers = [np.asarray(split.load(3).rows["n"]) for split in (one, same, other)]
    np.testing.assert_array_equal(numbers[0], numbers[1])
    assert (numbers[0] != numbers[2]).mean() > 0.5
    residues = numbers[0][: one.sizes[3]] % 7
    counts = np.bincount(residues, minlength=7)
    # the 99.9 % point of a chi-squared distribution with 6 degrees of freedom
    assert np.sum((counts - counts.mean()) ** 2 / counts.mean()) < 22.5


def test_columns_are_put_together(rows, tmp_path):
    path = parquet(rows, tmp_path / "rows.parquet")
    shard = vcmc.split(path, 1, columns={"both": ["y", "n"], "response": "y"}).load(0)
    assert {name: array.shape for name, array in shard.rows.items()} == {
        "both": (NUM_ROWS, 2),
        "response": (NUM_ROWS,),
    }
    with pytest.raises(
        ValueError, match=r"columns names \['z'\], .* their columns are \['n', 'x', 'y'\]"
    ):
        vcmc.split(path, 2, columns={"x": ["x", "z"]})


@pytest.mark.slow
def test_infer_takes_a_path_and_a_loader(conjugate, tmp_path):
    """The rows are the same, but split differently: posteriors agree up to Monte Carlo error."""
    path = parquet({**conjugate.rows, "n": conjugate.rows["y"]}, tmp_path / "rows.parquet")
    partition = vcmc.split(conjugate.rows, 4)

    def load(shard):
        return {name: array[partition.members[shard]] for name, array in conjugate.rows.items()}

    mean, covariance = conjugate.posterior()
    for rows in (path, load):
        tree = vcmc.infer(conjugate.model, rows, num_shards=4)
        assert sorted(tree.attrs["shard_sizes"]) == [250, 251, 251, 251]
        gaps = (tree["posterior"]["beta"].mean(("chain", "draw")) - mean) / np.sqrt(
            np.diag(covariance)
        )
        assert (np.abs(gaps) < 0.15).all()  # 4.5 standard errors of 1000 draws
        combined = vcmc.combine(tree, model=conjugate.model, rows=rows)
        np.testing.assert_allclose(
            combined["posterior"]["beta"], tree["posterior"]["beta"], rtol=1e-6
        )


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # 100 draws are few
def test_rows_in_a_store_are_split_once(conjugate, tmp_path):
    path = parquet({**conjugate.rows, "n": conjugate.rows["y"]}, tmp_path / "rows.parquet")
    arguments = {"num_shards": 3, "shard_draws": 100, "store": tmp_path / "run"}
    arguments["combiner"] = vcmc.combiners.Consensus()
    first = vcmc.infer(conjugate.model, path, **arguments)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run" / "rows").iterdir()}
    again = vcmc.infer(conjugate.model, path, **arguments)
    assert before == {
        file: file.stat().st_mtime_ns for file in (tmp_path / "run" / "rows").iterdir()
    }
    np.testing.assert_array_equal(first["posterior"]["beta"], again["posterior"]["beta"])
    changed = {**conjugate.rows, "n": conjugate.rows["y"], "y": conjugate.rows["y"] + 1}
    parquet(changed, path)
    with pytest.raises(ValueError, match="the rows have changed since"):
        vcmc.infer(conjugate.model, path, **arguments)


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_have_changed_are_not_taken_from_an_earlier_split(form, rows, tmp_path):
    before = FORMS[form](rows, tmp_path / "before")
    split = vcmc.split(before, 3, folder=tmp_path / "split")
    changed = FORMS[form](rows | {"y": rows["y"] + 5}, tmp_path / "after")
    with pytest.raises(ValueError, match=r"the rows have changed since .* Delete the folder"):
        vcmc.split(changed, 3, folder=tmp_path / "split")
    again = vcmc.split(before, 3, folder=tmp_path / "split")
    np.testing.assert_array_equal(again.load(1).rows["y"], split.load(1).rows["y"])


def test_changes_through_a_memory_map_are_noticed(rows, tmp_path):
    np.save(tmp_path / "y.npy", rows["y"])
    y = np.load(tmp_path / "y.npy", mmap_mode="r+")
    vcmc.split({"y": y}, 3, folder=tmp_path / "split")
    y[17] += 1e-9
    with pytest.raises(ValueError, match=r"the rows have changed since .*: y\."):
        vcmc.split({"y": y}, 3, folder=tmp_path / "split")


def test_rows_in_memory_that_have_changed_are_noticed(rows, tmp_path):
    vcmc.split(rows, 3, folder=tmp_path / "split")
    with pytest.raises(ValueError, match=r"the rows have changed since .*: n\."):
        vcmc.split(rows | {"n": rows["n"] + 1}, 3, folder=tmp_path / "split")


def test_rows_that_were_copied_or_touched_are_the_same(rows, tmp_path):
    path = parquet_folder(rows, tmp_path / "rows")
    split = vcmc.split(path, 3, folder=tmp_path / "split")
    copy = parquet_folder(rows, tmp_path / "copy")
    assert vcmc.split(copy, 3, folder=tmp_path / "split").sizes == split.sizes


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # 100 draws are few
def test_a_store_does_not_use_the_rows_of_a_file_that_has_changed(tmp_path):
    model = vcmc.Model(
        {"mean": vcmc.Real()},
        lambda params: -0.005 * params["mean"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["mean"]) ** 2,
    )
    y = np.memmap(tmp_path / "y.bin", float, "w+", shape=(400,))
    y[:] = np.random.default_rng(0).normal(size=400)
    arguments = {"num_shards": 2, "shard_draws": 100, "store": tmp_path / "run"}
    vcmc.infer(model, {"y": y}, **arguments)
    y += 5
    with pytest.raises(ValueError, match="the rows have changed since"):
        vcmc.infer(model, {"y": y}, **arguments)


def test_columns_may_have_any_name(tmp_path):
    names = ["km/h", "../y", "", "Y", "y", "y" * 1000, "CON", "a\nb", 7]
    arrays = {name: np.arange(100) + 1000 * number for number, name in enumerate(names)}
    partition = vcmc.split(arrays, 3, folder=tmp_path / "split")
    shard = partition.load(1)
    assert list(shard.rows) == [str(name) for name in names]
    for number, column in enumerate(shard.rows.values()):
        np.testing.assert_array_equal(column, shard.rows["km/h"] + 1000 * number)


@pytest.mark.usefixtures("small_batches")
def test_columns_of_files_may_be_in_any_order(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    y = np.arange(2000.0)
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"y": y, "x": -y}), tmp_path / "rows" / "a.parquet")
    pq.write_table(pa.table({"x": -y, "y": y}), tmp_path / "rows" / "b.parquet")
    shard = vcmc.split(tmp_path / "rows", 1).load(0)
    assert (np.asarray(shard.rows["y"]) >= 0).all()
    np.testing.assert_array_equal(shard.rows["x"], -shard.rows["y"])


def test_a_changed_byte_in_the_files_of_a_shard_is_noticed(rows, tmp_path):
    vcmc.split(rows, 3, folder=tmp_path / "split")
    path = tmp_path / "split" / "00001.1.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    partition = vcmc.split(rows, 3, folder=tmp_path / "split")
    assert partition.load(0).num_rows == partition.sizes[0]
    with pytest.raises(ValueError, match=r"00001\.1\.bin is damaged.*Delete its folder"):
        partition.load(1)


def test_a_temporary_folder_is_deleted_with_its_partition(rows, tmp_path):
    partition = vcmc.split(parquet(rows, tmp_path / "rows.parquet"), 3)
    folder = partition.folder
    assert folder.exists()
    del partition
    gc.collect()
    assert not folder.exists()


def test_an_interrupted_split_is_repeated(rows, tmp_path):
    path, folder = parquet(rows, tmp_path / "rows.parquet"), tmp_path / "split"
    whole = vcmc.split(path, 3, folder=folder)
    expected = whole.load(1)
    (folder / "rows.json").unlink()
    repeated = vcmc.split(path, 3, folder=folder).load(1)
    np.testing.assert_array_equal(repeated.rows["x"], expected.rows["x"])
    (folder / "00001.0.bin").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"00001.0.bin must hold 8016 bytes of rows; got 5"):
        vcmc.split(path, 3, folder=folder).load(1)
    (folder / "rows.json").write_text(json.dumps({"sizes": [1]}))
    with pytest.raises(
        ValueError,
        match=r"must be a folder from vcmc.split with a readable rows.json; got KeyError",
    ):
        vcmc.split(path, 3, folder=folder)


def _with_nan(rows):
    y = rows["y"].copy()
    y[400] = np.nan
    return {"y": y}


def _with_null(rows):
    import pyarrow as pa

    values = rows["y"].tolist()
    values[400] = None
    return {"y": pa.array(values)}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (_with_nan, r"rows\['y'\] must be finite; .* \(first: row 400\)"),
        (_with_null, r"rows\['y'\] must not have missing values; got 1 \(first: row 400\)"),
        (lambda rows: {"y": [b"a"] * NUM_ROWS}, r"rows\['y'\] must hold numbers"),
    ],
)
def test_bad_rows_are_refused(changed, message, rows, tmp_path):
    path = parquet(rows, tmp_path / "rows.parquet", **changed(rows))
    with pytest.raises(ValueError, match=message):
        vcmc.split(path, 3, folder=tmp_path / "split")


def test_bad_arguments_are_refused(rows, tmp_path):
    path = parquet(rows, tmp_path / "rows.parquet")
    with pytest.raises(FileNotFoundError, match=r"there is no .*other.parquet"):
        vcmc.split(tmp_path / "other.parquet", 3)
    (tmp_path / "rows.txt").write_text("x\n1\n")
    with pytest.raises(ValueError, match=r"must be a Parquet file .* got .*rows.txt"):
        vcmc.split(tmp_path / "rows.txt", 3)
    with pytest.raises(ValueError, match=r"between 1 and the number of rows \(1003\); got 2000"):
        vcmc.split(path, 2000)
    with pytest.raises(ValueError, match=r"num_shards must be an integer of at least 1, .*; got 0"):
        vcmc.split(path, 0)
    with pytest.raises(ValueError, match="groups must name a column of rows that are read"):
        vcmc.split(path, 3, groups=rows["n"])
    with pytest.raises(TypeError, match="load must be a function"):
        vcmc.LazyRows([1, 2], 2)


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            lambda shard: {"y": np.full(5, np.nan)},
            r"shard 0 could not be loaded: rows\['y'\] must be finite",
        ),
        (
            lambda shard: {"y": [1.0] * 5} if shard else {"y": [1] * 5},
            "shard 0 has .*int64.*, shard 1 has .*float64",
        ),
        (lambda shard: {}[shard], "shard 0 could not be loaded: 0"),
    ],
)
def test_bad_loaders_are_refused(load, message):
    model = vcmc.Model(
        {"mean": vcmc.Real()},
        lambda params: -0.5 * params["mean"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["mean"]) ** 2,
    )
    with pytest.raises(ValueError, match=message):
        vcmc.infer(model, load, num_shards=3)


@pytest.mark.slow
def test_a_parquet_file_is_not_held_whole(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(batches, "BATCH_BYTES", 2**18)
    table = pa.table({"x": np.random.default_rng(0).normal(size=4_000_000)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100_000)
    del table
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in batches.batches(tmp_path / "rows.parquet")]
    assert len(held) > 40
    assert max(held) < 0.2 * (tmp_path / "rows.parquet").stat().st_size


@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_nothing_in_a_zarr_store_is_unpickled(place, tmp_path):
    pytest.importorskip("zarr")
    marker, array = tmp_path / "marker", tmp_path / "rows.zarr" / "y"
    array.mkdir(parents=True)
    (array.parent / ".zgroup").write_text('{"zarr_format": 2}')
    codec = {"id": "pickle"}
    description = {
        "zarr_format": 2,
        "shape": [4],
        "chunks": [4],
        "dtype": "<f8",
        "fill_value": 0,
        "order": "C",
        "compressor": codec if place == "compressor" else None,
        "filters": [codec] if place == "filters" else None,
    }
    (array / ".zarray").write_text(json.dumps(description))
    (array / "0").write_bytes(pickle.dumps(MakesFolder(marker)))
    with pytest.raises(ValueError, match="pickle"):
        vcmc.split(array.parent, 2)
    assert not marker.exists()


class MakesFolder:
    """An object whose unpickling makes a folder, as it could run any other code."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)
