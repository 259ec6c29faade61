"""Labels of groups, read batch by batch: the same groups and shards as of rows in memory."""

import datetime

import numpy as np
import pytest

import vcmc
from vcmc.data import batches
from vcmc.data.group_labels import assign_groups, checked_labels, index_groups
from vcmc.data.grouped import GroupedPartition, encode_groups

NUM_ROWS = 1003
GENERATOR = np.random.default_rng(0)
CODES = GENERATOR.integers(0, 60, NUM_ROWS)
Y = GENERATOR.normal(size=NUM_ROWS)
LABELS = {
    "texts": np.array([f"county {code}" for code in range(60)])[CODES],
    "numbers": 7 * CODES - 100,
    "whole numbers": 7.0 * CODES,
    "fractions": np.where(CODES == 59, 0.5, CODES),  # in some batches all are whole
    "days": np.datetime64("2020-01-01") + CODES,
    "booleans": CODES > 30,
}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", 2000)


def parquet(path, **columns):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), path, row_group_size=300)
    return path


def parquet_folder(path, **columns):
    path.mkdir()
    for part in range(3):
        chosen = slice(part * 400, (part + 1) * 400)
        few = {name: array[chosen] for name, array in columns.items()}
        parquet(path / f"part-{part}.parquet", **few)
    return path


def zarr_store(path, **columns):
    group = pytest.importorskip("zarr").open_group(str(path), mode="w")
    for name, array in columns.items():
        data = array.astype(np.dtypes.StringDType()) if array.dtype.kind == "U" else array
        group.create_array(name, data=data, chunks=(100,))
    return path


def memory_mapped(path, **columns):
    path.mkdir()
    for name, array in columns.items():
        np.save(path / f"{name}.npy", array)
    return {name: np.load(path / f"{name}.npy", mmap_mode="r") for name in columns}


FORMS = {
    "Parquet": parquet,
    "folder": parquet_folder,
    "Zarr": zarr_store,
    "mapped": memory_mapped,
    "labels in memory": lambda path, g, y: memory_mapped(path, y=y) | {"g": list(g)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", LABELS)
def test_shards_are_those_of_rows_in_memory(form, kind, tmp_path):
    if form == "Zarr" and kind == "days":
        pytest.skip("Zarr has no dates")
    rows = FORMS[form](tmp_path / "rows.parquet", g=LABELS[kind], y=Y)
    encoded, labels = encode_groups({"g": LABELS[kind], "y": Y}, "g")
    num_shards = min(4, len(labels))
    expected = GroupedPartition(vcmc.split(encoded, num_shards, groups="g"), "g", labels)
    partition = GroupedPartition(
        vcmc.split(rows, num_shards, groups="g", folder=tmp_path / "shards"), "g"
    )
    assert partition.labels.tolist() == expected.labels.tolist()
    assert partition.labels.dtype.kind == expected.labels.dtype.kind
    for shard in range(num_shards):
        assert partition.members[shard].tolist() == expected.members[shard].tolist()
        assert partition.load(shard).checksum() == expected.load(shard).checksum()


def test_categories_of_parquet_are_labels(tmp_path):
    pa = pytest.importorskip("pyarrow")
    categories = ["unused", *np.unique(LABELS["texts"]).tolist()]
    texts = pa.DictionaryArray.from_arrays(
        np.searchsorted(categories[1:], LABELS["texts"]) + 1, categories
    )
    path = parquet(tmp_path / "rows.parquet", g=texts, y=Y)
    index = index_groups(path, "g")
    labels, counts = np.unique(LABELS["texts"], return_counts=True)
    partition = GroupedPartition(vcmc.split(path, 3, groups="g"), "g")
    assert partition.labels.tolist() == labels.tolist()
    assert index.labels.tolist() == labels.tolist()
    assert index.counts.tolist() == counts.tolist()


def test_labels_may_come_from_another_column(tmp_path):
    path = parquet(tmp_path / "rows.parquet", cty=LABELS["texts"], a=Y, b=Y)
    columns = {"g": "cty", "x": ["a", "b"]}
    partition = vcmc.split(path, 3, groups="g", columns=columns)
    assert sum(partition.sizes) == NUM_ROWS
    assert GroupedPartition(partition, "g").labels[0] == "county 0"
    with pytest.raises(ValueError, match=r"columns\['x'\] must be one column"):
        vcmc.split(path, 3, groups="x", columns=columns)
    with pytest.raises(ValueError, match=r"groups must name a column of the rows, one of \['g'"):
        vcmc.split(path, 3, groups="cty", columns=columns)


@pytest.mark.parametrize("form", ["Parquet", "folder", "mapped"])
def test_missing_labels_are_counted_over_all_batches(form, tmp_path):
    labels = np.where((CODES == 7) & (np.arange(NUM_ROWS) > 500), np.nan, CODES)
    rows = FORMS[form](tmp_path / "rows.parquet", g=labels, y=Y)
    count, first = int(np.isnan(labels).sum()), int(np.argmax(np.isnan(labels)))
    message = rf"rows\['g'\] must give a group to every row; {count} .* \(first: row {first}\)"
    with pytest.raises(ValueError, match=message):
        vcmc.split(rows, 3, groups="g")


def test_null_labels_of_parquet_are_missing(tmp_path):
    texts = [None if row in (901, 950) else text for row, text in enumerate(LABELS["texts"])]
    path = parquet(tmp_path / "rows.parquet", g=texts, y=Y)
    with pytest.raises(ValueError, match=r"2 labels are missing \(first: row 901\)"):
        vcmc.split(path, 3, groups="g")


def test_bad_groups_are_refused(tmp_path):
    path = parquet(tmp_path / "rows.parquet", g=CODES, y=Y)
    with pytest.raises(ValueError, match=r"one of \['g', 'y'\]; got 'county'"):
        vcmc.split(path, 3, groups="county")
    with pytest.raises(ValueError, match=r"must not exceed the number of groups \(60\)"):
        vcmc.split(path, 61, groups="g")
    with pytest.raises(
        ValueError, match=r"must name a column of rows that are read .* got ndarray"
    ):
        vcmc.split(path, 3, groups=CODES)
    matrix = memory_mapped(tmp_path / "arrays", g=np.ones((5, 2)), y=np.ones(5))
    with pytest.raises(ValueError, match=r"must hold one label per row; got shape \(5, 2\)"):
        vcmc.split(matrix, 2, groups="g")


def test_another_split_of_the_same_rows_is_refused(tmp_path):
    path = parquet(tmp_path / "rows.parquet", g=CODES, y=Y)
    vcmc.split(path, 3, groups="g", folder=tmp_path / "shards")
    vcmc.split(path, 3, groups="g", folder=tmp_path / "shards")
    with pytest.raises(ValueError, match="holds another split: groups differ"):
        vcmc.split(path, 3, folder=tmp_path / "shards")


def test_damaged_labels_of_a_split_are_noticed(tmp_path):
    path = parquet(tmp_path / "rows.parquet", g=CODES, y=Y)
    partition = vcmc.split(path, 3, groups="g", folder=tmp_path / "shards")
    (tmp_path / "shards" / "groups.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"groups\.npz is missing or damaged"):
        GroupedPartition(partition, "g")


def test_the_largest_groups_are_assigned_first():
    counts = np.array([1, 1, 1, 1, 6, 5])
    shards = assign_groups(counts, 3, seed=1)
    assert sorted(np.bincount(shards, counts).tolist()) == [4, 5, 6]


def test_labels_of_any_kind_are_sortable():
    assert checked_labels([1.0, 3.0], "g").dtype.kind == "i"
    days = [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]
    assert checked_labels(np.array(days, object), "g").tolist() == ["2020-01-02", "2020-01-01"]
    with pytest.raises(ValueError, match=r"1 labels are missing \(first: row 1\)"):
        checked_labels(np.array(["2020", "NaT"], "M8[Y]"), "g")
