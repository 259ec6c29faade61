"""Local draws of some groups, read from files."""

import sys

import numpy as np
import pytest

import vcmc
from vcmc.results import local_reading
from vcmc.results.local_files import LocalIndex, LocalsFolder, LocalsWriter

pq = pytest.importorskip("pyarrow.parquet")

LABELS = {
    "texts": np.array([f"county {number:02d}" for number in range(20)]),
    "numbers": 10 * np.arange(20) - 50,
    "days": np.datetime64("2020-01-01") + np.arange(20),
}
VALUES = {
    "x": np.random.default_rng(0).normal(size=(6, 20)),
    "z": np.random.default_rng(1).normal(size=(6, 20, 3)),
}
FILES = np.arange(20) % 3


def write_run(path, labels, monkeypatch):
    monkeypatch.setattr("vcmc.results.local_files.ROW_GROUP_ROWS", 12)
    folder = LocalsFolder(path / "locals")
    folder.begin("a")
    places = np.empty(20, int)
    for file in range(3):
        numbers = np.flatnonzero(file == FILES)
        places[numbers] = np.arange(len(numbers))
        writer = LocalsWriter(folder.parquet(file), "county", 2)
        writer.write(labels[numbers], {name: array[:, numbers] for name, array in VALUES.items()})
        writer.close()
    shapes = {"x": (), "z": (3,)}
    folder.save_index(LocalIndex(labels, FILES, places, "county", 2, 3, shapes, "a"))
    return path


@pytest.fixture
def run(tmp_path, monkeypatch):
    return write_run(tmp_path, LABELS["texts"], monkeypatch)


@pytest.mark.parametrize("kind", LABELS)
def test_groups_are_read_in_the_order_in_which_they_are_named(kind, tmp_path, monkeypatch):
    labels = LABELS[kind]
    dataset = vcmc.load_locals(
        write_run(tmp_path, labels, monkeypatch), labels[[7, 0, 19]].tolist()
    )
    assert dataset["x"].dims == ("chain", "draw", "county")
    assert dataset["z"].dims == ("chain", "draw", "county", "z_dim_1")
    assert (dataset["county"].to_numpy() == labels[[7, 0, 19]]).all()
    for name, array in VALUES.items():
        expected = array[:, [7, 0, 19]].reshape(2, 3, *array[:, [7, 0, 19]].shape[1:])
        np.testing.assert_array_equal(dataset[name], expected)


def test_all_groups_are_read_by_default(run):
    dataset = vcmc.load_locals(run)
    np.testing.assert_array_equal(dataset["x"].to_numpy().reshape(6, 20), VALUES["x"])


def test_only_what_is_needed_is_read(run, monkeypatch):
    read = []
    original = local_reading._values
    monkeypatch.setattr(
        local_reading, "_values", lambda column: read.append(len(column)) or original(column)
    )
    (run / "locals" / "00000.parquet").unlink()
    dataset = vcmc.load_locals(run, "county 01", names="x")
    assert list(dataset.data_vars) == ["x"]
    assert read == [12]  # a row group of two groups


def test_unknown_labels_and_names_are_refused(run):
    with pytest.raises(
        ValueError, match=r"labels of 'county', e\.g\. 'county 00'.* 1 are unknown: 'x'"
    ):
        vcmc.load_locals(run, ["county 01", "x"])
    with pytest.raises(ValueError, match="1 are unknown: 3"):
        vcmc.load_locals(run, 3)
    with pytest.raises(ValueError, match=r"names must be local parameters, \['x', 'z'\]; got 'y'"):
        vcmc.load_locals(run, names=["x", "y"])


def test_unknown_dates_are_refused(tmp_path, monkeypatch):
    run = write_run(tmp_path, LABELS["days"], monkeypatch)
    assert vcmc.load_locals(run, "2020-01-03").sizes["county"] == 1
    with pytest.raises(ValueError, match="1 are unknown"):
        vcmc.load_locals(run, ["2021-01-03"])
    with pytest.raises(ValueError, match="1 are unknown"):
        vcmc.load_locals(run, "someday")


def test_damaged_and_missing_files_are_named(run, tmp_path):
    path = run / "locals" / "00001.parquet"
    content = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(0).column(3)
    content[chunk.data_page_offset + chunk.total_compressed_size - 8] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(vcmc.StoreError, match=r"00001\.parquet cannot be read"):
        vcmc.load_locals(run, "county 01")
    path.unlink()
    with pytest.raises(vcmc.StoreError, match=r"00001\.parquet cannot be read"):
        vcmc.load_locals(run, "county 01")
    with pytest.raises(vcmc.StoreError, match="has no complete local draws"):
        vcmc.load_locals(tmp_path / "other")


def test_a_missing_package_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'pip install "vcmc\[parquet\]"'):
        vcmc.load_locals(run)
