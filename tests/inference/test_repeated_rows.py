"""New rows that hold an earlier batch, too, are noticed; equal rows of few values are not."""

from itertools import pairwise

import numpy as np
import pytest

import vcmc
from vcmc.data.partition import split
from vcmc.inference.batch_plan import EarlierShard
from vcmc.inference.kept_rows import batch_shards
from vcmc.inference.repeated_rows import repeated_batches


def joined(*batches):
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def parts_of(rows, *ends):
    bounds = [0, *ends, len(rows["y"])]
    return [{n: a[i:j] for n, a in rows.items()} for i, j in pairwise(bounds)]


def earlier_shards(*batches, num_shards=2):
    return [
        EarlierShard(shard, size, size, number)
        for number, batch in enumerate(batches)
        for partition in [split(batch, num_shards)]
        for shard, size in zip(batch_shards(partition), partition.sizes, strict=True)
    ]


def continuous(seed, count):
    generator = np.random.default_rng(seed)
    return {"x": generator.normal(size=(count, 2)), "y": generator.integers(0, 2, count)}


def test_batches_of_which_all_rows_recur_are_found():
    first, second, third = (continuous(seed, 100) for seed in range(3))
    earlier = earlier_shards(first, second)
    assert repeated_batches(joined(first, third), earlier, None) == {0: 100}
    assert repeated_batches(joined(third, second, first), earlier, None) == {0: 100, 1: 100}
    assert repeated_batches(third, earlier, None) == {}
    most = {name: array[1:] for name, array in first.items()}
    assert repeated_batches(joined(most, third), earlier, None) == {}


def test_rows_of_few_values_recur_by_chance():
    generator = np.random.default_rng(0)
    first, new = ({"y": generator.integers(0, 5, count)} for count in (50, 500))
    assert repeated_batches(joined(first, new), earlier_shards(first), None) == {}
    few = continuous(0, 5)
    assert repeated_batches(joined(few, continuous(1, 9)), earlier_shards(few), None) == {}


def test_all_rows_so_far_in_place_of_new_ones_are_a_warning(tmp_path, conjugate):
    first, second, third = parts_of(conjugate.rows, 300, 600)
    model, run = conjugate.model, tmp_path / "run"
    vcmc.infer(model, first, num_shards=2, store=run, progress=False)
    vcmc.update(run, model, second, num_shards=1, name="february", progress=False)
    with pytest.warns(vcmc.StoreWarning, match=r"batch 0 .*, batch 1 'february' .* count twice"):
        vcmc.update(run, model, joined(first, second, third), num_shards=1, progress=False)
    tree = vcmc.infer(model, first, num_shards=2, progress=False)
    with pytest.warns(UserWarning, match="count twice"):
        vcmc.update(tree, model, joined(first, second), rows=first, num_shards=1, progress=False)
