"""Shards of several batches as one partition."""

import numpy as np
import pytest

import vcmc
from vcmc.data.cache import ShardCache
from vcmc.data.shard_files import rows_of, write_shards
from vcmc.data.shard_list import (
    BatchShard,
    ShardList,
    batches_partition,
    padded_to,
    union_of_labels,
)
from vcmc.executors import Processes
from vcmc.model import MAX_CACHED_BYTES


def test_shards_of_two_batches_are_one_partition():
    first = vcmc.split({"y": np.arange(10.0), "w": np.full(10, 2.0)}, 2)
    second = vcmc.split({"y": np.arange(10.0, 15.0), "w": np.ones(5)}, 1)
    shards = [BatchShard(second, 0), BatchShard(first, 1), BatchShard(first, 0)]
    partition = batches_partition(shards, weight_column="w")
    assert partition.num_shards == 3
    assert partition.is_weighted
    assert rows_of(partition.load(0))["y"].tolist() == [10, 11, 12, 13, 14]
    values = np.concatenate([rows_of(partition.load(shard))["y"] for shard in range(3)])
    assert sorted(values.tolist()) == list(range(15))
    part = partition.subset([1])
    assert part.has(1)
    assert not part.has(0)


@pytest.mark.parametrize("weight_column", [None, "w"])
def test_batches_in_files_are_read_once(tmp_path, conjugate, weight_column, monkeypatch):
    rows = [{name: array[:50] for name, array in conjugate.rows.items()} | {"w": np.ones(50)}]
    files = [write_shards(tmp_path / name, rows, 1) for name in "ab"]
    partition = batches_partition([BatchShard(part, 0) for part in files], weight_column)
    assert not partition.in_memory
    loaded, load = [], ShardList.load
    monkeypatch.setattr(
        ShardList, "load", lambda self, shard: loaded.append(shard) or load(self, shard)
    )
    monkeypatch.setattr("vcmc.data.cache.MAX_KEPT_BYTES", 1)
    shards = ShardCache(conjugate.model, partition).shards
    for number in (0, 1, 0, 1):
        shards[number]
    assert loaded == [0, 1]


def test_groups_of_batches_get_common_numbers(tmp_path):
    first = write_shards(tmp_path / "a", [{"g": np.array([0, 1])}], 1, "g", np.array(["b", "d"]))
    second = write_shards(tmp_path / "b", [{"g": np.array([1, 0])}], 1, "g", np.array(["a", "c"]))
    shards = [
        BatchShard(first, 0, np.array(["b", "d"])),
        BatchShard(second, 0, np.array(["a", "c"])),
    ]
    labels = union_of_labels(shards, None, "g")
    assert labels.tolist() == ["a", "b", "c", "d"]
    partition = batches_partition(shards, None, "g", labels)
    assert [members.tolist() for members in partition.members] == [[1, 3], [0, 2]]
    assert partition.labels.tolist() == labels.tolist()
    table = {"g": np.array(["a", "b", "c", "d", "e"])}
    assert union_of_labels(shards, table, "g").tolist() == ["a", "b", "c", "d", "e"]


def test_few_lengths_pad_little():
    lengths = [padded_to(count) for count in range(1, 5000)]
    assert all(length >= count for count, length in enumerate(lengths, start=1))
    assert max(length / count for count, length in enumerate(lengths, start=1)) <= 1.25
    assert len(set(lengths)) < 60


def test_processes_load_shards_of_files(tmp_path, conjugate):
    batches = [
        {n: a[part] for n, a in conjugate.rows.items()} for part in (slice(600), slice(600, None))
    ]
    vcmc.infer(conjugate.model, batches[0], num_shards=2, store=tmp_path / "run", progress=False)
    vcmc.infer(conjugate.model, batches[0], num_shards=2, store=tmp_path / "other", progress=False)
    local = vcmc.update(tmp_path / "run", conjugate.model, batches[1], num_shards=2, progress=False)
    with Processes(1) as executor:
        elsewhere = vcmc.update(
            tmp_path / "other",
            conjugate.model,
            batches[1],
            num_shards=2,
            executor=executor,
            progress=False,
        )
    for group in ("posterior", "subposterior"):
        np.testing.assert_array_equal(
            local[group]["beta"].to_numpy(), elsewhere[group]["beta"].to_numpy()
        )


def test_a_shard_that_the_cache_holds_is_not_padded_beyond_it():
    assert padded_to(14_378) == 16_384
    assert padded_to(14_378, 136) == MAX_CACHED_BYTES // 136
    assert padded_to(15_500, 136) == 16_384  # the cache does not hold it
    assert padded_to(6_900, 136) == padded_to(6_900)
