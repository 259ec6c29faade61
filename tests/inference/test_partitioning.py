"""Rows into shards, in a number that is given or chosen."""

import dataclasses
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.data.grouped import GroupedPartition
from vcmc.data.size import FileRows
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


NUM_GROUPS = 60
LABELS = np.array([f"county {number:02d}" for number in range(NUM_GROUPS)])


@pytest.fixture(scope="module")
def houses():
    generator = np.random.default_rng(0)
    group = generator.permutation(np.repeat(np.arange(NUM_GROUPS), 8))
    y = 1 + 0.5 * generator.normal(size=NUM_GROUPS)[group] + generator.normal(size=len(group))
    return {"county": LABELS[group], "y": y, "height": 0.1 * group}


@pytest.fixture(scope="module")
def grouped_model():
    def log_normal(x, mean, sd):
        return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)

    return vcmc.Model(
        space={"mu": vcmc.Real(), "tau": vcmc.Positive()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: -0.5 * (0.01 * params["mu"] ** 2 + params["tau"] ** 2),
        log_local_prior=lambda params, local, group: log_normal(
            local["alpha"], params["mu"], params["tau"]
        ),
        log_likelihood=lambda params, local, rows: log_normal(rows["y"], local["alpha"], 1.0),
        groups="county",
    )


def write_parquet(rows, path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(rows), path)
    return path


def test_rows_in_files_have_the_draws_of_rows_in_memory(houses, grouped_model, tmp_path):
    """Groups are assigned to shards by their sizes, labels and the seed, wherever the rows are."""
    path = write_parquet(houses, tmp_path / "houses.parquet")
    expected = vcmc.infer(grouped_model, houses, num_shards=3, progress=False)
    arguments = {"num_shards": 3, "store": tmp_path / "run", "progress": False}
    tree = vcmc.infer(grouped_model, path, executor=vcmc.executors.Processes(2), **arguments)
    for name in ("mu", "alpha"):
        assert (tree["posterior"][name] == expected["posterior"][name]).all()
    assert tree["posterior"]["alpha"]["county"].to_numpy().tolist() == LABELS.tolist()
    again = vcmc.infer(grouped_model, path, **arguments)
    assert again.attrs["created_at"] == tree.attrs["created_at"]


def test_shards_of_files_stay_in_files(houses, grouped_model, tmp_path):
    """No process is sent rows or labels: a worker loads its shards itself."""
    path = write_parquet(houses, tmp_path / "houses.parquet")
    columns = {"county": "county", "y": "y"}
    partition = as_partition(
        FileRows(path, columns), 3, seed=0, folder=tmp_path / "rows", local=grouped_model.local
    )
    assert isinstance(partition, GroupedPartition)
    sent = pickle.dumps(partition.subset([1]))
    assert len(sent) < 5000
    assert pickle.loads(sent).load(1).checksum() == partition.load(1).checksum()
    assert set(partition.load(0).rows) == {"county", "y"}


def test_the_labels_of_a_split_are_read_without_its_shards(
    houses, grouped_model, tmp_path, monkeypatch
):
    path = write_parquet(houses, tmp_path / "houses.parquet")
    split = vcmc.split(path, 3, groups="county", folder=tmp_path / "rows")
    monkeypatch.setattr(type(split), "load", lambda *_: pytest.fail("a shard was loaded"))
    partition = as_partition(split, None, seed=0, local=grouped_model.local)
    assert partition.labels.tolist() == LABELS.tolist()


def test_a_number_of_shards_is_chosen_by_the_groups_of_a_file(houses, grouped_model, tmp_path):
    many = {name: np.tile(column, 12) for name, column in houses.items()}
    path = write_parquet(many, tmp_path / "houses.parquet")
    tree = vcmc.infer(grouped_model, path, store=tmp_path / "run", progress=False)
    assert "more than 1 would have fewer than 40 groups each" in tree.attrs["num_shards_reason"]


def test_bad_labels_in_files_are_refused(houses, grouped_model, tmp_path):
    missing = houses | {"county": [None, *houses["county"][1:]]}
    path = write_parquet(missing, tmp_path / "missing.parquet")
    for num_shards in (3, None):
        with pytest.raises(ValueError, match=r"1 labels are missing \(first: row 0\)"):
            vcmc.infer(grouped_model, path, num_shards=num_shards, progress=False)
    path = write_parquet({"y": houses["y"]}, tmp_path / "bare.parquet")
    with pytest.raises(ValueError, match=r"must name a column of the rows, one of \['y'\]"):
        vcmc.infer(grouped_model, path, num_shards=3, progress=False)


def test_a_table_of_groups_goes_with_rows_in_files(houses, grouped_model, tmp_path):
    path = write_parquet(houses, tmp_path / "houses.parquet")
    table = {"county": np.append(LABELS, "zzz"), "size": np.arange(NUM_GROUPS + 1.0)}
    local = dataclasses.replace(grouped_model.local, table=table)
    in_files = as_partition(path, 3, seed=0, folder=tmp_path / "rows", local=local)
    in_memory = as_partition(houses, 3, seed=0, local=local)
    assert in_files.absent.tolist() == [NUM_GROUPS]
    for shard in range(3):
        assert in_files.load(shard).checksum() == in_memory.load(shard).checksum()
    short = dataclasses.replace(local, table={name: array[1:] for name, array in table.items()})
    with pytest.raises(ValueError, match=r"1 are missing, e\.g\. 'county 00'"):
        as_partition(path, 3, seed=0, folder=tmp_path / "rows", local=short)
