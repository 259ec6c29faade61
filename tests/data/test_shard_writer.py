"""Rows in the files of their shards: appended through a buffer, with checksums."""

import numpy as np
import pytest

from vcmc.data import shard_writer
from vcmc.data.shard_writer import ShardAssignment, ShardWriter, rows_checksum, shard_file


def test_every_k_rows_have_each_shard_once():
    assignment = ShardAssignment(4, seed=0)
    shards = np.concatenate([assignment.next(count) for count in (3, 6, 11)])
    assert [sorted(round_.tolist()) for round_ in shards.reshape(5, 4)] == [[0, 1, 2, 3]] * 5


@pytest.mark.parametrize("buffer_bytes", [1, 10**6])
def test_rows_keep_their_order_and_have_checksums(buffer_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_writer, "BUFFER_BYTES", buffer_bytes)
    writer = ShardWriter(tmp_path, 2)
    rows, shards = np.arange(20.0), np.arange(20) % 3 % 2
    for part in (slice(0, 7), slice(7, 20)):
        writer.write({"y": rows[part]}, shards[part])
    writer.flush()
    assert writer.sizes.tolist() == np.bincount(shards).tolist()
    for shard in range(2):
        written = np.fromfile(shard_file(tmp_path, shard, 0))
        assert written.tolist() == rows[shards == shard].tolist()
        assert writer.checksums[shard] == [rows_checksum(written)]


def test_other_columns_are_refused(tmp_path):
    writer = ShardWriter(tmp_path, 1)
    writer.write({"y": np.ones(2)}, np.zeros(2, int))
    with pytest.raises(ValueError, match=r"must have the same columns.* from row 2 on"):
        writer.write({"y": np.ones(2, int)}, np.zeros(2, int))
