"""The Weierstrass sampler on shards whose product is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.combiners import Average, Consensus, Subposteriors
from vcmc.combiners.weierstrass import Weierstrass
from vcmc.space import Product
from vcmc.target import Target


def subposteriors(draws, target=None, seed=0):
    equal = len({len(each) for each in draws}) == 1
    space = Product({"theta": vcmc.Real(draws[0].shape[1])})
    return Subposteriors(jnp.asarray(np.stack(draws)) if equal else draws, space, target, seed)


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
    combined = Weierstrass()(shards.subposteriors(20_000))
    # these shards lie so far apart that about one draw in twenty lies where another shard has any
    effective = 20_000 / 20
    of_mean, of_sds = errors(combined.draws, *shards.product())
    assert of_mean < 4 / np.sqrt(effective)
    assert of_sds < 4 / np.sqrt(2 * effective)
    assert combined.notes == []


@pytest.mark.parametrize(("seed", "zeros"), [(0, True), (1, False)])
def test_rare_successes(seed, zeros):
    """Skewed shards; where one has no success at all, its draws spread over a hundred posterior standard deviations."""
    draws, mean, covariance = rare_successes(seed, 10_000)
    averaged, weighted, merged = (
        errors(combiner(subposteriors(draws)).draws, mean, covariance)
        for combiner in (Average(), Consensus(), Weierstrass())
    )
    assert averaged[0] > (5 if zeros else 1.5)
    assert weighted[0] > 0.25
    assert merged[0] < 0.2
    assert merged[1] < 0.1


def test_both_modes_keep_their_mass():
    generator = np.random.default_rng(0)
    draws, num_draws, left, scale = [], 10_000, np.array([0.3, 0.5, 0.6]), 0.7
    for share in left:
        modes = np.where(generator.uniform(size=num_draws) < share, -2.0, 2.0)
        draws.append((modes + scale * generator.normal(size=num_draws))[:, None])
    merged = np.asarray(Weierstrass()(subposteriors(draws)).draws)[:, 0]
    odds = np.prod(left / (1 - left))
    # the shards' own shares are known to 0.5 / √n each, and the product's to √3 times that, twice for resampling
    assert np.mean(merged < 0) == pytest.approx(
        odds / (1 + odds), abs=4 * np.sqrt(5) * 0.5 / np.sqrt(num_draws)
    )
    # kernels are in proportion to the shard, of which a mode is a third: they widen it
    assert merged[merged > 0].std() == pytest.approx(scale / np.sqrt(3), rel=0.3)


def test_unequal_counts():
    draws, mean = agreeing(5, 2, 8000)
    draws = [each[: 8000 - 1500 * shard] for shard, each in enumerate(draws)]
    combined = Weierstrass()(subposteriors(draws))
    assert combined.draws.shape == (8000, 2)
    of_mean, of_sds = errors(combined.draws, mean, np.eye(2) / 5)
    assert of_mean < 0.2
    assert of_sds < 0.1


def test_one_seed_one_result():
    draws, _ = agreeing(3, 2, 300)
    first, again, other = (
        np.asarray(Weierstrass()(subposteriors(draws, seed=seed)).draws) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_note_where_shards_lie_apart():
    draws, _ = agreeing(4, 1, 1000)
    draws[2] += 30
    (note,) = Weierstrass()(subposteriors(draws)).notes
    assert "standard deviations apart" in note


def test_a_note_where_dimensions_are_many():
    draws, _ = agreeing(3, 20, 1000)
    (note,) = Weierstrass()(subposteriors(draws)).notes
    assert "product of Gaussians" in note


NUM_SHARDS, DIM, NUM_ROWS = 6, 8, 3


@pytest.fixture(scope="module")
def skewed():
    """Rates of exponential rows, three for each shard: draws, target, and the posterior of the log rates."""
    generator = np.random.default_rng(0)
    rows = {"y": generator.exponential(size=(NUM_SHARDS * NUM_ROWS, DIM))}
    model = vcmc.Model(
        space={"theta": vcmc.Real(DIM)},
        log_prior=lambda params: jnp.sum(params["theta"] - jnp.exp(params["theta"])),
        log_likelihood=lambda params, rows: jnp.sum(
            params["theta"] - jnp.exp(params["theta"]) * rows["y"], axis=1
        ),
    )
    partition = vcmc.split(rows, NUM_SHARDS)
    shards = [partition.load(shard) for shard in range(NUM_SHARDS)]
    draws = []
    for shard in shards:
        rates = np.asarray(shard.weights) @ np.asarray(shard.rows["y"]) + 1 / NUM_SHARDS
        shape = float(np.sum(shard.weights)) + 1 / NUM_SHARDS
        draws.append(log_gammas(shape, (1000, DIM), generator) - np.log(rates))
    shape = NUM_SHARDS * NUM_ROWS + 1
    mean = digamma(shape) - np.log(rows["y"].sum(axis=0) + 1)
    return draws, Target(model, shards, vcmc.executors.Local()), mean, polygamma(1, shape) * np.eye(DIM)


def test_refinement_takes_most_of_the_error_away(skewed):
    draws, target, mean, covariance = skewed
    rough, refined = (
        errors(Weierstrass(refinement=rounds)(subposteriors(draws, target)).draws, mean, covariance)
        for rounds in (0, 30)
    )
    assert rough[0] > 0.5
    assert refined[0] < 4 / np.sqrt(1000) + 0.1  # what is left of the kernel's bias
    assert refined[1] < 4 / np.sqrt(2 * 500)  # draws that began at the same pair are still alike


def test_only_refinement_needs_the_model(skewed):
    draws, target, _, _ = skewed
    assert not Weierstrass().needs.target
    assert Weierstrass(refinement=1).needs.target
    with pytest.raises(ValueError, match="needs the full-data log density"):
        Weierstrass(refinement=1)(subposteriors(draws))
    with pytest.raises(ValueError, match="draws of 5 shards and rows of 6"):
        Weierstrass(refinement=1)(subposteriors(draws[:-1], target))


@pytest.mark.parametrize(
    "settings", [{"num_tries": 0}, {"refinement": -1}, {"refinement_bandwidth": 0.0}], ids=str
)
def test_settings_are_checked(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))} must"):
        Weierstrass(**settings)
