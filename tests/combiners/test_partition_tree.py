"""Random partition trees on shards whose product is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.combiners import Consensus, Subposteriors
from vcmc.combiners.partition_tree import PartitionTree
from vcmc.space import Product


def subposteriors(draws, seed=0):
    equal = len({len(each) for each in draws}) == 1
    space = Product({"theta": vcmc.Real(draws[0].shape[1])})
    return Subposteriors(jnp.asarray(np.stack(draws)) if equal else draws, space, None, seed)


def errors(merged, mean, covariance):
    """The errors of the mean, in standard deviations, and of the standard deviations, relative to them."""
    merged, sds = np.asarray(merged), np.sqrt(np.diag(covariance))
    return np.abs((merged.mean(axis=0) - mean) / sds).max(), np.abs(merged.std(axis=0) / sds - 1).max()


def log_gammas(shape, size, generator):
    """Logarithms of gamma draws, which do not underflow if the shape is small."""
    return np.log(generator.gamma(shape + 1, size=size)) + np.log(generator.uniform(size=size)) / shape


def rare_successes(seed, num_draws, num_shards=15, num_trials=10_000):
    """Logits of exact draws of shards that have two successes on average, and the posterior's mean and covariance."""
    generator = np.random.default_rng(seed)
    successes = generator.uniform(size=num_trials) < 2 * num_shards / num_trials
    draws = []
    for part in np.array_split(successes, num_shards):
        # prior times Jacobian is p (1 - p), to the power 1/K
        shapes = part.sum() + 1 / num_shards, (~part).sum() + 1 / num_shards
        logits = log_gammas(shapes[0], num_draws, generator) - log_gammas(shapes[1], num_draws, generator)
        draws.append(logits[:, None])
    shapes = successes.sum() + 1, (~successes).sum() + 1
    mean = digamma(shapes[0]) - digamma(shapes[1])
    return draws, np.array([mean]), np.array([[polygamma(1, shapes[0]) + polygamma(1, shapes[1])]])


def agreeing(num_shards, dim, num_draws, seed=0):
    """Gaussian shards of one covariance, with means as far apart as such shards of one data set have them."""
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(num_shards, 1, dim))
    return list(means + generator.normal(size=(num_shards, num_draws, dim))), means.mean(axis=(0, 1))


def test_gaussian_shards_reach_their_product(gaussian_shards):
    shards = gaussian_shards(4, 2)
    combined = PartitionTree()(shards.subposteriors(20_000))
    # these shards lie so far apart that about one draw in twenty lies where another shard has any
    effective = 20_000 / 20
    of_mean, of_sds = errors(combined.draws, *shards.product())
    assert of_mean < 4 / np.sqrt(effective)
    assert of_sds < 4 / np.sqrt(2 * effective)
    assert combined.notes == []


@pytest.mark.parametrize(("seed", "effective"), [(0, 200), (1, 1000)])
def test_rare_successes(seed, effective):
    """With the first seed, two shards have no success: of their 10 000 draws, about a hundred each lie near the posterior."""
    draws, mean, covariance = rare_successes(seed, 10_000)
    weighted, merged = (
        errors(combiner(subposteriors(draws)).draws, mean, covariance)
        for combiner in (Consensus(), PartitionTree())
    )
    assert weighted[0] > 0.25
    assert merged[0] < 4 / np.sqrt(effective)
    assert merged[1] < 4 / np.sqrt(2 * effective)


def test_both_modes_keep_their_mass():
    generator = np.random.default_rng(0)
    draws, num_draws, left, scale = [], 10_000, np.array([0.3, 0.5, 0.6]), 0.7
    for share in left:
        modes = np.where(generator.uniform(size=num_draws) < share, -2.0, 2.0)
        draws.append((modes + scale * generator.normal(size=num_draws))[:, None])
    merged = np.asarray(PartitionTree()(subposteriors(draws)).draws)[:, 0]
    odds = np.prod(left / (1 - left))
    # the shards' own shares are known to 0.5 / √n each, and the product's to √3 times that, twice for resampling
    assert np.mean(merged < 0) == pytest.approx(
        odds / (1 + odds), abs=4 * np.sqrt(5) * 0.5 / np.sqrt(num_draws)
    )
    assert merged[merged > 0].std() == pytest.approx(scale / np.sqrt(3), rel=0.05)


def test_unequal_counts():
    draws, mean = agreeing(5, 2, 8000)
    draws = [each[: 8000 - 1500 * shard] for shard, each in enumerate(draws)]
    combined = PartitionTree()(subposteriors(draws))
    assert combined.draws.shape == (8000, 2)
    of_mean, of_sds = errors(combined.draws, mean, np.eye(2) / 5)
    assert of_mean < 0.2
    assert of_sds < 0.1


def test_one_seed_one_result():
    draws, _ = agreeing(3, 2, 300)
    first, again, other = (
        np.asarray(PartitionTree()(subposteriors(draws, seed=seed)).draws) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_all_at_once():
    draws, mean = agreeing(4, 1, 10_000)
    merged = PartitionTree(pairwise=False)(subposteriors(draws)).draws
    of_mean, of_sds = errors(merged, mean, np.eye(1) / 4)
    assert of_mean < 0.1
    assert of_sds < 0.05


def test_flat_blocks_are_wider():
    """Without slopes, what falls off across a block is smeared over it."""
    draws, _ = agreeing(4, 2, 2000)
    smooth, flat = (
        np.asarray(PartitionTree(smooth=smooth)(subposteriors(draws)).draws) for smooth in (True, False)
    )
    assert (flat.std(axis=0) > 1.1 * smooth.std(axis=0)).all()


def test_a_note_where_shards_do_not_overlap():
    draws, _ = agreeing(4, 1, 1000)
    draws[2] += 30
    (note,) = PartitionTree()(subposteriors(draws)).notes
    assert "no block with draws of all shards" in note


def test_a_note_where_dimensions_are_many():
    draws, _ = agreeing(3, 20, 1000)
    (note,) = PartitionTree()(subposteriors(draws)).notes
    assert "too few to cut each of 20 dimensions" in note


@pytest.mark.parametrize("settings", [{"num_trees": 0}, {"min_draws": 1}], ids=str)
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))} must"):
        PartitionTree(**settings)
