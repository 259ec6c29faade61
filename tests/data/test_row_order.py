"""The numbers of a shard's rows lead back to the rows."""

import numpy as np
import pytest

import vcmc
from vcmc.data import batches
from vcmc.data.row_order import row_numbers

ROWS = {"y": np.random.default_rng(0).normal(size=103)}


def assert_leads_back(partition, rows):
    shards = [partition.load(shard) for shard in range(partition.num_shards)]
    values = [np.asarray(shard.rows["y"])[np.asarray(shard.weights) > 0] for shard in shards]
    numbers = row_numbers(partition, [len(part) for part in values])
    for number, part in zip(numbers, values, strict=True):
        np.testing.assert_array_equal(rows["y"][number], part)
    assert sorted(np.concatenate(numbers)) == list(range(len(rows["y"])))


@pytest.mark.parametrize(
    "how", [{}, {"seed": 3}, {"stratify": ROWS["y"] > 0}, {"groups": np.arange(103) // 7}]
)
def test_rows_in_memory(how):
    assert_leads_back(vcmc.split(ROWS, 4, **how), ROWS)


@pytest.mark.parametrize("seed", [0, 3])
def test_rows_in_files(seed, tmp_path, monkeypatch):
    """Batches of any size: the assignment goes on where it stopped."""
    monkeypatch.setattr(batches, "BATCH_BYTES", 200)
    partition = vcmc.split(ROWS, 4, seed=seed, folder=tmp_path, progress=False)
    assert_leads_back(partition, ROWS)


def test_loaded_rows_are_numbered_shard_after_shard():
    partition = vcmc.LazyRows(lambda shard: {"y": ROWS["y"][50 * shard :][: 50 + 3 * shard]}, 2)
    assert_leads_back(partition, ROWS)


def test_rows_in_files_that_were_split_by_groups_are_numbered_shard_after_shard(tmp_path):
    rows = ROWS | {"group": np.arange(103) % 9}
    partition = vcmc.split(rows, 2, groups="group", folder=tmp_path, progress=False)
    numbers = np.concatenate(row_numbers(partition, partition.sizes))
    assert numbers.tolist() == list(range(103))
