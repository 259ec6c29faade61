"""The Weierstrass sampler on shards whose product is known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.combiners import Average, Consensus
from vcmc.combiners.weierstrass import Weierstrass
from vcmc.target import Target


def test_gaussian_shards_reach_their_product(gaussian_shards, errors, subposteriors):
    shards = gaussian_shards(4, 2)
    combined = Weierstrass()(shards.subposteriors(20_000))
    # these shards lie so far apart that about one draw in twenty lies where another shard has any
    effective = 20_000 / 20
    of_mean, of_sds = errors(combined.draws, *shards.product())
    assert of_mean < 4 / np.sqrt(effective)
    assert of_sds < 4 / np.sqrt(2 * effective)
    assert combined.notes == []


@pytest.mark.parametrize(("seed", "zeros"), [(0, True), (1, False)])
def test_rare_successes(seed, zeros, errors, rare_successes, subposteriors):
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


def test_both_modes_keep_their_mass(two_modes):
    merged, scale = two_modes(Weierstrass())
    # kernels are in proportion to the shard, of which a mode is a third: they widen it
    assert merged[merged > 0].std() == pytest.approx(scale / np.sqrt(3), rel=0.3)


def test_unequal_counts(agreeing, errors, subposteriors):
    draws, mean = agreeing(5, 2, 8000)
    draws = [each[: 8000 - 1500 * shard] for shard, each in enumerate(draws)]
    combined = Weierstrass()(subposteriors(draws))
    assert combined.draws.shape == (8000, 2)
    of_mean, of_sds = errors(combined.draws, mean, np.eye(2) / 5)
    assert of_mean < 0.2
    assert of_sds < 0.1


def test_a_note_where_shards_lie_apart(agreeing, subposteriors):
    draws, _ = agreeing(4, 1, 1000)
    draws[2] += 30
    (note,) = Weierstrass()(subposteriors(draws)).notes
    assert "standard deviations apart" in note


def test_a_note_where_dimensions_are_many(agreeing, subposteriors):
    draws, _ = agreeing(3, 20, 1000)
    (note,) = Weierstrass()(subposteriors(draws)).notes
    assert "product of Gaussians" in note


NUM_SHARDS, DIM, NUM_ROWS = 6, 8, 3


@pytest.fixture(scope="module")
def skewed(log_gammas):
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
    return (
        draws,
        Target(model, shards, vcmc.executors.Local()),
        mean,
        polygamma(1, shape) * np.eye(DIM),
    )


def test_refinement_takes_most_of_the_error_away(skewed, errors, subposteriors):
    draws, target, mean, covariance = skewed
    rough, refined = (
        errors(Weierstrass(refinement=rounds)(subposteriors(draws, target)).draws, mean, covariance)
        for rounds in (0, 30)
    )
    assert rough[0] > 0.5
    assert refined[0] < 4 / np.sqrt(1000) + 0.1  # what is left of the kernel's bias
    assert refined[1] < 4 / np.sqrt(2 * 500)  # draws that began at the same pair are still alike


def test_only_refinement_needs_the_model(skewed, subposteriors):
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
