"""Rows into shards, in a number that is given or chosen."""

import pytest

import vcmc
from vcmc.inference.partitioning import as_partition


def test_a_partition_is_taken_as_it_is(conjugate):
    partition = vcmc.split(conjugate.rows, 3)
    assert as_partition(partition, None, seed=0) is partition
    assert as_partition(partition, 3, seed=0) is partition
    with pytest.raises(ValueError, match=r"the partition's number of shards \(3\); got 2"):
        as_partition(partition, 2, seed=0)


def test_a_function_of_the_shard_needs_a_number_of_shards(conjugate):
    partition = vcmc.split(conjugate.rows, 3)

    def load(shard):
        return {name: values[partition.members[shard]] for name, values in conjugate.rows.items()}

    assert as_partition(load, 3, seed=0).num_shards == 3
    with pytest.raises(ValueError, match="num_shards is required if rows is a function"):
        as_partition(load, None, seed=0)


def test_a_chosen_number_of_shards_is_kept_by_a_run_directory(conjugate, tmp_path):
    """Few rows are not split; a run that was begun with three shards keeps them."""
    model, rows = conjugate.model, conjugate.rows
    chosen = vcmc.infer(model, rows, num_draws=900, progress=False)
    assert chosen.attrs["num_shards"] == 1
    assert "few enough" in chosen.attrs["num_shards_reason"]
    arguments = {"store": tmp_path, "progress": False}
    given = vcmc.infer(model, rows, num_shards=3, **arguments)
    again = vcmc.infer(model, rows, **arguments)
    assert again.attrs["num_shards"] == given.attrs["num_shards"] == 3
    assert again.attrs["created_at"] == given.attrs["created_at"]
