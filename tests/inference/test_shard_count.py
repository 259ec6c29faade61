"""The number of shards that vcmc chooses, by size and by information."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.data.size import RowsSize
from vcmc.executors import Local
from vcmc.inference.shard_count import (
    MIN_GROUPS_PER_COORDINATE,
    MIN_ROWS_PER_COORDINATE,
    Groups,
    TooManyShards,
    check_normality,
    check_silent,
    count_by_size,
)

# 64 draws a shard are enough for these tests, not for a good result
pytestmark = pytest.mark.filterwarnings("ignore::vcmc.errors.DoubtfulWarning")


@pytest.mark.parametrize(
    ("num_slots", "expected"), [(1, 8), (2, 8), (3, 9), (4, 8), (8, 8), (12, 12), (64, 64)]
)
def test_large_rows_make_whole_rounds_of_slots(num_slots, expected):
    size = RowsSize(1_000_000, 400)
    number, reason = count_by_size(size, dim=20, num_slots=num_slots)
    assert number == expected
    assert f"{expected} shards keep" in reason


def test_few_rows_are_not_split():
    number, reason = count_by_size(RowsSize(300, 56), dim=5, num_slots=16)
    assert number == 1
    assert reason == "300 rows are few enough for chains on all of them."


@pytest.mark.parametrize(
    ("num_rows", "expected"), [(100_000, 8), (30_000, 4), (12_000, 2), (9_000, 1)]
)
def test_shards_keep_enough_rows_for_the_coordinates(num_rows, expected):
    number, reason = count_by_size(RowsSize(num_rows, 2400), dim=300, num_slots=2)
    assert number == expected
    assert num_rows / number >= MIN_ROWS_PER_COORDINATE * 300
    assert ("300 coordinates" in reason) == (expected < 8)


@pytest.mark.parametrize(
    ("num_groups", "dim", "expected"), [(4000, 1, 8), (240, 1, 6), (240, 2, 2), (60, 2, 1)]
)
def test_shards_keep_enough_groups_for_their_spread(num_groups, dim, expected):
    groups = Groups(num_groups, dim)
    number, reason = count_by_size(RowsSize(100_000, 80), dim=6, num_slots=2, groups=groups)
    assert number == expected
    assert (f"fewer than {MIN_GROUPS_PER_COORDINATE * dim} groups each" in reason) == (expected < 8)


def test_files_make_shards_that_fit_into_memory():
    size = RowsSize(10**8, 400)
    number, reason = count_by_size(size, dim=20, num_slots=3, max_shard_bytes=2**28)
    assert number % 3 == 0
    assert size.num_bytes / number <= 2**28 < size.num_bytes / (number - 3)
    assert reason == "each shard has at most 256 MB of rows."


def test_shards_without_information_are_too_many():
    silent = np.zeros((8, 3), bool)
    silent[:, 0] = True  # of no shard: a feature of the model
    check_silent(silent, ["a", "b", "c"], Local(2))
    silent[2, 2] = True
    with pytest.raises(
        TooManyShards, match="of 8 shards 1 would hold no information on c"
    ) as error:
        check_silent(silent, ["a", "b", "c"], Local(2))
    # one silent shard of eight means 1.8 informative rows a shard, of which two shards have 7 each
    assert error.value.fewer.number == 2
    silent[:7, 2] = True
    with pytest.raises(TooManyShards) as error:
        check_silent(silent, ["a", "b", "c"], Local(2))
    assert error.value.fewer.number == 1


def test_shards_that_are_far_from_normal_are_too_many():
    check_normality(9.9, 8, Local(2))
    check_normality(1e6, 1, Local(2))
    with pytest.raises(TooManyShards, match="far from normal") as error:
        check_normality(19.0, 8, Local(2))
    assert error.value.fewer.number == 4
    with pytest.raises(TooManyShards) as error:
        check_normality(np.inf, 8, Local(2))
    assert error.value.fewer.number == 1


def normal_mean():
    return vcmc.Model(
        {"mean": vcmc.Real()},
        lambda params: -0.5 * params["mean"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["mean"]) ** 2,
    )


def infer(model, rows, **options):
    return vcmc.infer(
        model, rows, shard_draws=64, combiner=vcmc.combiners.Consensus(), progress=False, **options
    )


def test_infer_chooses_the_number_of_shards_and_says_why():
    rows = {"y": np.random.default_rng(0).normal(size=10_000)}
    tree = infer(normal_mean(), rows, executor=Local(3))
    assert tree.attrs["num_shards"] == 9
    assert (
        tree.attrs["num_shards_reason"] == "9 shards keep 3 slots busy, and each needs few draws."
    )
    with vcmc.executors.Processes(3) as processes:
        same = infer(normal_mean(), rows, executor=processes)
    np.testing.assert_array_equal(tree["posterior"]["mean"], same["posterior"]["mean"])
    asked = infer(normal_mean(), rows, num_shards=5)
    assert asked.attrs["num_shards_reason"] == "as the user asked."
    split = infer(normal_mean(), vcmc.split(rows, 4))
    assert (split.attrs["num_shards"], split.attrs["num_shards_reason"]) == (
        4,
        "as the rows were split.",
    )


def test_few_rows_become_one_shard():
    tree = infer(normal_mean(), {"y": np.random.default_rng(0).normal(size=100)})
    assert tree.attrs["num_shards"] == 1
    assert "100 rows are few enough" in tree.attrs["num_shards_reason"]


def test_a_rare_covariate_makes_fewer_shards():
    """Five of 10 000 rows inform a coefficient with a flat prior: some shards have none."""
    generator = np.random.default_rng(0)
    rare = np.zeros(10_000)
    rare[generator.choice(10_000, 5, replace=False)] = 1.0
    rows = {"x": rare, "y": generator.normal(size=10_000) + rare}
    model = vcmc.Model(
        {"beta": vcmc.Real(2)},
        lambda params: 0.0 * jnp.sum(params["beta"]),
        lambda params, rows: (
            -0.5 * (rows["y"] - params["beta"][0] - params["beta"][1] * rows["x"]) ** 2
        ),
    )
    with pytest.raises(vcmc.errors.ModelError, match="no information"):
        infer(model, rows, num_shards=8)
    tree = infer(model, rows, executor=Local(2))
    assert tree.attrs["num_shards"] < 3
    assert "would hold no information on beta[1]" in tree.attrs["num_shards_reason"]


def test_skewed_shards_make_fewer_shards():
    """Two events in 10 000 rows: a shard's log rate is far from normal, or has no event at all."""
    rows = {"y": np.zeros(10_000)}
    rows["y"][[1000, 7000]] = 1.0
    model = vcmc.Model(
        {"log_rate": vcmc.Real()},
        lambda params: -0.5 * (params["log_rate"] / 10) ** 2,
        lambda params, rows: rows["y"] * params["log_rate"] - jnp.exp(params["log_rate"]),
    )
    tree = infer(model, rows, executor=Local(2))
    assert tree.attrs["num_shards"] < 8
    assert "far from normal" in tree.attrs["num_shards_reason"]


def test_a_run_directory_keeps_its_number_of_shards(tmp_path):
    """On a machine with other slots, for more draws."""
    rows = {"y": np.random.default_rng(0).normal(size=10_000)}
    first = infer(normal_mean(), rows, executor=Local(3), store=tmp_path)
    assert first.attrs["num_shards"] == 9
    again = infer(normal_mean(), rows, executor=Local(2), store=tmp_path)
    np.testing.assert_array_equal(first["posterior"]["mean"], again["posterior"]["mean"])
    (tmp_path / "tree.npz").unlink()
    resumed = infer(normal_mean(), rows, executor=Local(2), store=tmp_path)
    assert resumed.attrs["num_shards"] == 9
    assert resumed.attrs["num_shards_reason"] == "as the run directory was begun."
    np.testing.assert_array_equal(first["posterior"]["mean"], resumed["posterior"]["mean"])


def test_functions_need_a_number_of_shards():
    with pytest.raises(ValueError, match="num_shards is required if rows is a function"):
        infer(normal_mean(), lambda shard: {"y": np.zeros(10)})


def test_wrong_rows_are_refused_as_before():
    with pytest.raises(ValueError, match="at least one named array"):
        infer(normal_mean(), {})
    with pytest.raises(ValueError, match="same number of rows"):
        infer(normal_mean(), {"y": np.zeros(10_000), "x": np.zeros(3)})
    with pytest.raises(FileNotFoundError, match="there is no"):
        infer(normal_mean(), "missing.parquet")
