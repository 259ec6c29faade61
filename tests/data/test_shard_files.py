"""Shards of any partition are written to files, and read as they were."""

import numpy as np

import vcmc
from vcmc.data.files import FilePartition
from vcmc.data.shard_files import plain_partition, plain_rows, rows_of, write_shards
from vcmc.data.weighted import weighted


def test_shards_are_read_as_they_were_written(tmp_path):
    shards = [
        {"x": np.ones((3, 2), np.float32), "y": np.arange(3)},
        {"x": np.zeros((2, 2), np.float32), "y": np.arange(2)},
    ]
    partition = write_shards(tmp_path / "rows", shards, 2, levels={"y": np.array(["a", "b", "c"])})
    assert partition.sizes == [3, 2]
    for number, shard in enumerate(shards):
        rows = rows_of(FilePartition(tmp_path / "rows").load(number))
        np.testing.assert_array_equal(rows["x"], shard["x"])
        np.testing.assert_array_equal(rows["y"], shard["y"])
    assert FilePartition(tmp_path / "rows").levels["y"].tolist() == ["a", "b", "c"]


def test_a_folder_is_written_again_after_a_crash(tmp_path):
    write_shards(tmp_path, [{"y": np.arange(3)}, {"y": np.arange(4)}], 2)
    (tmp_path / "rows.json").unlink()
    partition = write_shards(tmp_path, [{"y": np.arange(5)}], 1)
    assert rows_of(partition.load(0))["y"].tolist() == [0, 1, 2, 3, 4]
    assert not (tmp_path / "00001.0.bin").exists()


def test_groups_are_stored_with_their_labels(tmp_path):
    labels = np.array(["a", "b", "c"])
    shards = [{"g": np.array([2, 0, 2])}, {"g": np.array([1])}]
    groups = write_shards(tmp_path, shards, 2, "g", labels).read_groups()
    assert groups.groups.labels.tolist() == ["a", "b", "c"]
    assert groups.groups.counts.tolist() == [1, 1, 2]
    assert groups.shards.tolist() == [0, 1, 0]


def test_rows_of_a_partition_keep_their_types():
    partition = vcmc.split({"y": np.arange(4, dtype=np.int8), "w": np.ones(4)}, 2)
    assert plain_partition(weighted(partition, "w")) is partition
    assert plain_rows(partition, 0)["y"].dtype == np.int8
