import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcmc


def all_indices(partition):
    return np.sort(np.concatenate(partition.members))


@given(
    num_rows=st.integers(1, 60),
    share=st.floats(0, 1),
    seed=st.integers(0, 5),
    levels=st.integers(1, 4),
)
@settings(max_examples=100, deadline=None)
def test_every_row_is_in_exactly_one_shard(num_rows, share, seed, levels):
    num_shards = 1 + int(share * (num_rows - 1))
    stratify = np.arange(num_rows) % levels
    for partition in (
        vcmc.split({"y": np.arange(num_rows)}, num_shards, seed=seed),
        vcmc.split({"y": np.arange(num_rows)}, num_shards, seed=seed, stratify=stratify),
    ):
        np.testing.assert_array_equal(all_indices(partition), np.arange(num_rows))
        assert max(partition.sizes) - min(partition.sizes) <= 1


def test_stratify_spreads_a_rare_level_evenly():
    rare = np.arange(1000) % 40 == 0
    partition = vcmc.split({"y": np.zeros(1000), "rare": rare}, 7, stratify="rare")
    counts = [rare[members].sum() for members in partition.members]
    assert max(counts) - min(counts) <= 1
    assert max(partition.sizes) - min(partition.sizes) <= 1


@given(groups=st.lists(st.integers(0, 12), min_size=1, max_size=60), share=st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_groups_stay_whole(groups, share):
    num_groups = len(set(groups))
    num_shards = 1 + int(share * (num_groups - 1))
    partition = vcmc.split({"y": np.zeros(len(groups))}, num_shards, groups=groups)
    np.testing.assert_array_equal(all_indices(partition), np.arange(len(groups)))
    assert min(partition.sizes) > 0
    seen = [set(np.asarray(groups)[members].tolist()) for members in partition.members]
    assert sum(len(labels) for labels in seen) == num_groups


def test_padding_repeats_a_row_and_weighs_nothing():
    partition = vcmc.split({"y": np.arange(10.0)}, 3)
    shards = [partition.load(k) for k in range(3)]
    assert {shard.weights.shape for shard in shards} == {(4,)}
    assert [shard.num_rows for shard in shards] == [4, 3, 3]
    total = sum(jnp.sum(shard.weights * shard.rows["y"]) for shard in shards)
    assert total == np.arange(10.0).sum()


def test_few_shapes_for_very_unequal_groups():
    groups = np.repeat(np.arange(12), [400, 300, 200, 100, 90, 80, 50, 40, 30, 20, 10, 5])
    partition = vcmc.split({"y": np.zeros(len(groups))}, 12, groups=groups)
    lengths = [len(partition.load(k).weights) for k in range(12)]
    assert all(
        size <= length < 2 * size + 2 for size, length in zip(partition.sizes, lengths, strict=True)
    )
    assert len(set(lengths)) <= 8


def test_shuffled_by_seed():
    rows = {"y": np.arange(100.0)}
    first, again, other = (vcmc.split(rows, 4, seed=seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(first.members, again.members, strict=True))
    assert any((a != b).any() for a, b in zip(first.members, other.members, strict=True))
    assert max(first.members[0]) > 50  # not the first rows in order


@pytest.mark.parametrize(
    "rows",
    [
        {"a": np.arange(6.0), "b": jnp.arange(6)},
        pd.DataFrame({"a": np.arange(6.0), "b": range(6)}),
        pl.DataFrame({"a": np.arange(6.0), "b": range(6)}),
    ],
    ids=["mapping", "pandas", "polars"],
)
def test_rows_may_be_arrays_or_frames(rows):
    partition = vcmc.split(rows, 2)
    assert list(partition.rows) == ["a", "b"]
    np.testing.assert_array_equal(partition.rows["a"], np.arange(6.0))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"y": [0.0, np.nan, 1.0]},
            r"rows\['y'\] must be finite; got NaN or infinity in 1 of 3 rows \(first: row 1\)",
        ),
        ({"y": [0.0, np.inf]}, "first: row 1"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(4)}, "same number of rows .* got x: 3, y: 4"),
        ({"y": [[1.0], [1.0, 2.0]]}, r"rows\['y'\] is ragged"),
        ({"y": 3.0}, "leading axis with one entry per row; got a single value"),
        ({"y": [["a"], ["b"]]}, "must hold numbers, booleans or text; got dtype"),
        ({"y": np.zeros(0)}, "at least one row"),
        ({}, "at least one named array"),
        (pd.DataFrame({"y": ["a", 1]}), "must hold numbers, booleans or text"),
    ],
)
def test_bad_rows_are_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        vcmc.split(rows, 1)


def test_rows_of_an_unknown_kind_are_refused():
    with pytest.raises(TypeError, match=r"rows must be a mapping of named arrays.* got list"):
        vcmc.split([1, 2, 3], 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_shards": 201}, r"between 1 and the number of rows \(200\); got 201"),
        ({"num_shards": 0}, "got 0"),
        (
            {"num_shards": 2, "seed": -1},
            "seed must be an integer of at least 0, e.g. seed=0; got -1",
        ),
        (
            {"num_shards": 2, "stratify": "z"},
            r"stratify must name one of the arrays of rows, \['y'\]; got 'z'",
        ),
        (
            {"num_shards": 2, "stratify": np.zeros(3)},
            r"one label per row, shape \(200,\); got shape \(3,\)",
        ),
        ({"num_shards": 3, "groups": np.arange(200) % 2}, r"number of groups \(2\)"),
        ({"num_shards": 2, "groups": "y", "stratify": "y"}, "stratify or groups, not both"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        vcmc.split({"y": np.zeros(200)}, **arguments)


def test_shards_of_one_row_can_be_loaded():
    partition = vcmc.split({"y": np.arange(5.0)}, 5)
    assert sorted(float(partition.load(k).rows["y"][0]) for k in range(5)) == [0, 1, 2, 3, 4]
    uneven = vcmc.split({"y": np.arange(7.0)}, 2, groups=[0] * 6 + [1])
    assert sorted(uneven.load(k).num_rows for k in range(2)) == [1, 6]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"y": np.ma.masked_array([1.0, -999.0], [False, True])},
            "must not be masked; got 1 masked",
        ),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), r"different names; got \['a'\]"),
    ],
)
def test_what_would_be_lost_is_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        vcmc.split(rows, 1)


def test_labels_of_mixed_types_are_refused():
    with pytest.raises(TypeError, match="labels of one type"):
        vcmc.split({"y": np.zeros(4)}, 2, groups=np.array(["a", "b", None, "a"], object))


def test_a_number_of_shards_is_an_integer():
    with pytest.raises(TypeError, match=r"num_shards must be an integer, .* got 2\.0"):
        vcmc.split({"y": np.zeros(4)}, 2.0)
