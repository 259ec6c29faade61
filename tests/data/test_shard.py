import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.data.shard import (
    InMemoryShards,
    Shard,
    check_loader,
    check_num_shards,
    padded,
    padded_length,
)

ROWS = {"x": np.arange(6.0).reshape(3, 2), "n": np.arange(3)}


def test_padding_repeats_the_first_row_with_weight_zero():
    shard = padded(ROWS, 5)
    np.testing.assert_array_equal(shard.weights, [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(shard.rows["n"], [0, 1, 2, 0, 0])
    np.testing.assert_array_equal(shard.rows["x"][3:], [[0, 1], [0, 1]])
    assert shard.num_rows == 3
    assert shard.num_bytes == 5 * (16 + 8 + 8)


@pytest.mark.parametrize(
    ("size", "largest", "length"), [(100, 100, 100), (51, 100, 100), (50, 100, 50), (1, 7, 1)]
)
def test_lengths_are_halves_of_the_largest(size, largest, length):
    assert padded_length(size, largest) == length


def test_checksums_depend_on_names_types_values_and_weights():
    checksums = {
        padded(rows, length).checksum()
        for rows, length in [
            (ROWS, 3),
            (ROWS, 4),
            ({**ROWS, "n": np.arange(3.0)}, 3),
            ({**ROWS, "n": np.arange(3)[::-1]}, 3),
            ({"x": ROWS["x"], "m": ROWS["n"]}, 3),
        ]
    }
    assert len(checksums) == 5
    reordered = {name: ROWS[name] for name in ("n", "x")}
    assert padded(reordered, 3).checksum() == padded(ROWS, 3).checksum()


def test_shards_in_memory_are_small_if_they_share_a_shape_and_fit():
    one, same, longer = padded(ROWS, 3), padded(ROWS, 3), padded(ROWS, 4)
    assert InMemoryShards({0: one, 1: same}, 2).is_small(2 * one.num_bytes)
    assert not InMemoryShards({0: one, 1: same}, 2).is_small(2 * one.num_bytes - 1)
    assert not InMemoryShards({0: one, 1: longer}, 2).is_small(10**9)


def test_a_subset_can_be_extended():
    shards = {number: Shard({}, jnp.full(1, float(number))) for number in range(3)}
    whole = InMemoryShards(shards, 3)
    subset = whole.subset([1])
    assert (subset.num_shards, subset.has(1), subset.has(2)) == (3, True, False)
    subset.add(whole.subset([2]))
    assert subset.load(2) is shards[2]


@pytest.mark.parametrize("num_shards", [0, -1, 2.0, "3", None])
def test_a_number_of_shards_is_a_positive_integer(num_shards):
    with pytest.raises(ValueError, match=rf"integer of at least 1, .*got {num_shards!r}"):
        check_num_shards(num_shards)


def test_a_loader_is_a_function():
    with pytest.raises(TypeError, match=r"load must be a function .* to its draws; got list"):
        check_loader([1], 1, "draws")
    check_loader(lambda shard: {}, np.int64(3), "draws")
