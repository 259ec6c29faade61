"""Blocks of new rows: how many are held, and what becomes of errors."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.errors import TaskError
from vcmc.executors import Local
from vcmc.inference import prediction, prediction_blocks
from vcmc.inference.prediction_blocks import Block, BlockCache, BlockPartition, summarized
from vcmc.results.tree import make_tree

NUM_DRAWS = 16


def model_that(simulate):
    return vcmc.Model(
        space={"mean": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mean"] ** 2,
        log_likelihood=lambda params, rows: -0.5 * jnp.square(rows["y"] - params["mean"]),
        simulate=simulate,
    )


@pytest.fixture(scope="module")
def model():
    return model_that(
        lambda key, params, rows: {
            "y": rows["x"] + params["mean"] + jax.random.normal(key, rows["x"].shape)
        }
    )


@pytest.fixture(scope="module")
def tree():
    draws = np.random.default_rng(0).normal(size=(1, NUM_DRAWS))
    return make_tree({"posterior": {"mean": draws}}, {"num_shards": 1})


@pytest.mark.parametrize("num_threads", [1, 2])
def test_no_more_blocks_are_held_than_run_at_a_time(
    model, tree, num_threads, tmp_path, monkeypatch
):
    """Of 100 blocks of ten rows, in a file, at most the threads' and the next ones are alive."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 8 * NUM_DRAWS * 10)
    monkeypatch.setattr(prediction, "PART_ROWS", 50)
    alive: list[weakref.ref] = []
    most_alive, sizes = [], []
    summarize = prediction_blocks.summarized

    def counted(values):
        gc.collect()
        alive.append(weakref.ref(values))
        most_alive.append(sum(reference() is not None for reference in alive))
        sizes.append(values.size)
        return summarize(values)

    monkeypatch.setattr(prediction, "summarized", counted)
    pq.write_table(pa.table({"x": np.arange(1000.0)}), tmp_path / "rows.parquet")
    out = vcmc.predict(
        tree,
        model,
        tmp_path / "rows.parquet",
        out=tmp_path / "out.parquet",
        executor=Local(num_threads),
        progress=False,
    )
    assert len(sizes) == 100
    assert max(sizes) == 10 * NUM_DRAWS
    assert max(most_alive) <= num_threads
    assert pq.read_metadata(out).num_row_groups == 20


def test_blocks_are_read_as_they_are_needed(model, tree, monkeypatch):
    """When a block is simulated, no more than one block per thread was read ahead of it."""
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 8 * NUM_DRAWS * 10)
    num_read, gaps = [0], []

    def load(shard):
        num_read[0] += 10
        return {"x": np.full(10, float(shard))}

    def counted(values):
        gaps.append(num_read[0] - 10 * len(gaps))
        return summarized(values)

    monkeypatch.setattr(prediction, "summarized", counted)
    rows = vcmc.LazyRows(load, 30)
    result = vcmc.predict(tree, model, rows, executor=Local(1), progress=False)
    assert result.sizes["row"] == 300
    # the trial reads the first shard once more
    assert max(gaps) <= 10 + 10 + 10


def test_a_process_keeps_only_the_last_block_sent_to_it(model):
    blocks = {number: Block(number, 1, {"x": np.ones(1)}, None) for number in range(3)}
    driver = BlockCache(model, BlockPartition(blocks))
    worker = driver.subset([0])
    worker.merge(driver.subset([2]))
    assert [worker.partition.has(number) for number in range(3)] == [False, False, True]


def test_errors_in_a_block_are_reported(tree):
    def fail(values):
        if (values > 5).any():
            raise ArithmeticError("too large")
        return values

    def simulate(key, params, rows):
        shape = jax.ShapeDtypeStruct(rows["x"].shape, float)
        return {"y": jax.pure_callback(fail, shape, rows["x"], vmap_method="sequential")}

    with pytest.raises(TaskError, match="new rows could not be simulated"):
        vcmc.predict(tree, model_that(simulate), {"x": np.arange(9.0)}, progress=False)


def test_another_number_of_values_than_rows_is_refused(tree):
    model = model_that(lambda key, params, rows: {"y": jnp.zeros(3)})  # as many as are tried
    with pytest.raises(TaskError, match=r"one entry per row, shape \(8, …\); got \(3,\)"):
        vcmc.predict(tree, model, {"x": np.zeros(7)}, progress=False)


def test_summaries_are_those_of_numpy():
    values = np.random.default_rng(0).normal(size=(4, 101, 2))
    result = summarized(values)
    np.testing.assert_allclose(result["mean"], values.mean(axis=1))
    np.testing.assert_allclose(result["q95"], np.quantile(values, 0.95, axis=1))
    assert np.isnan(summarized(values[:, :1])["sd"]).all()
