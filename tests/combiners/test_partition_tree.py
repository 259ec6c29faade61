"""Random partition trees on shards whose product is known."""

import numpy as np
import pytest

from vcmc.combiners import Consensus
from vcmc.combiners.partition_tree import PartitionTree


def test_gaussian_shards_reach_their_product(gaussian_shards, errors, subposteriors):
    shards = gaussian_shards(4, 2)
    combined = PartitionTree()(shards.subposteriors(20_000))
    # these shards lie so far apart that about one draw in twenty lies where another shard has any
    effective = 20_000 / 20
    of_mean, of_sds = errors(combined.draws, *shards.product())
    assert of_mean < 4 / np.sqrt(effective)
    assert of_sds < 4 / np.sqrt(2 * effective)
    assert combined.notes == []


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "effective"), [(0, 200), (1, 1000)])
def test_rare_successes(seed, effective, errors, rare_successes, subposteriors):
    """With the first seed, two shards have no success: of their 10 000 draws, about a hundred each
    lie near the posterior."""
    draws, mean, covariance = rare_successes(seed, 10_000)
    weighted, merged = (
        errors(combiner(subposteriors(draws)).draws, mean, covariance)
        for combiner in (Consensus(), PartitionTree())
    )
    assert weighted[0] > 0.25
    assert merged[0] < 4 / np.sqrt(effective)
    assert merged[1] < 4 / np.sqrt(2 * effective)


def test_both_modes_keep_their_mass(two_modes):
    merged, scale = two_modes(PartitionTree())
    assert merged[merged > 0].std() == pytest.approx(scale / np.sqrt(3), rel=0.05)


def test_unequal_counts(agreeing, errors, subposteriors):
    draws, mean = agreeing(5, 2, 8000)
    draws = [each[: 8000 - 1500 * shard] for shard, each in enumerate(draws)]
    combined = PartitionTree()(subposteriors(draws))
    assert combined.draws.shape == (8000, 2)
    of_mean, of_sds = errors(combined.draws, mean, np.eye(2) / 5)
    assert of_mean < 0.2
    assert of_sds < 0.1


def test_all_at_once(agreeing, errors, subposteriors):
    draws, mean = agreeing(4, 1, 10_000)
    merged = PartitionTree(pairwise=False)(subposteriors(draws)).draws
    of_mean, of_sds = errors(merged, mean, np.eye(1) / 4)
    assert of_mean < 0.1
    assert of_sds < 0.05


def test_flat_blocks_are_wider(agreeing, subposteriors):
    """Without slopes, what falls off across a block is smeared over it."""
    draws, _ = agreeing(4, 2, 2000)
    smooth, flat = (
        np.asarray(PartitionTree(smooth=smooth)(subposteriors(draws)).draws)
        for smooth in (True, False)
    )
    assert (flat.std(axis=0) > 1.1 * smooth.std(axis=0)).all()


def test_a_note_where_shards_do_not_overlap(agreeing, subposteriors):
    draws, _ = agreeing(4, 1, 1000)
    draws[2] += 30
    (note,) = PartitionTree()(subposteriors(draws)).notes
    assert "no block with draws of all shards" in note


def test_a_note_where_dimensions_are_many(agreeing, subposteriors):
    draws, _ = agreeing(3, 20, 1000)
    (note,) = PartitionTree()(subposteriors(draws)).notes
    assert "too few to cut each of 20 dimensions" in note


@pytest.mark.parametrize("settings", [{"num_trees": 0}, {"min_draws": 1}], ids=str)
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))} must"):
        PartitionTree(**settings)
