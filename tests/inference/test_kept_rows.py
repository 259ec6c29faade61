"""A run directory keeps its rows, wherever they came from."""

import numpy as np
import pytest

import vcmc
from vcmc.data.shard_files import rows_of
from vcmc.inference.kept_rows import keep_rows, kept_partition, write_batch
from vcmc.results.store import Store
from vcmc.testing.gaussians import varying_means

ROWS = {"y": np.arange(10.0)}


def test_rows_in_memory_are_written(tmp_path):
    partition = vcmc.split(ROWS, 3)
    keep_rows(Store(tmp_path), partition)
    kept = kept_partition(Store(tmp_path))
    for shard in range(3):
        assert kept.load(shard).checksum() == partition.load(shard).checksum()
    written = (tmp_path / "rows" / "rows.json").stat().st_mtime_ns
    keep_rows(Store(tmp_path), partition)
    assert (tmp_path / "rows" / "rows.json").stat().st_mtime_ns == written


def test_of_rows_in_a_folder_of_the_user_the_name_is_kept(tmp_path):
    partition = vcmc.split(ROWS, 3, folder=tmp_path / "mine")
    (tmp_path / "run").mkdir()
    keep_rows(Store(tmp_path / "run"), partition)
    assert not (tmp_path / "run" / "rows").exists()
    assert kept_partition(Store(tmp_path / "run")).folder == tmp_path / "mine"


def test_rows_that_a_function_loads_are_not_kept(tmp_path):
    keep_rows(Store(tmp_path), vcmc.LazyRows(lambda shard: ROWS, 2))
    with pytest.raises(vcmc.StoreError, match="rows=rows"):
        kept_partition(Store(tmp_path))


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_groups_keep_their_labels(tmp_path):
    model, rows = varying_means()
    vcmc.infer(model, rows, num_shards=3, store=tmp_path, progress=False)
    groups = kept_partition(Store(tmp_path)).read_groups()
    assert groups.groups.labels.tolist() == np.unique(rows["group"]).tolist()
    assert groups.groups.counts.sum() == len(rows["group"])


def test_a_batch_of_groups_is_written_with_numbers(tmp_path):
    (shard,) = write_batch(tmp_path / "rows", [{"g": np.array(["z", "b"])}], "g")
    assert shard.labels.tolist() == ["b", "z"]
    assert rows_of(shard.partition.load(0))["g"].tolist() == [1, 0]
