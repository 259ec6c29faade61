import numpy as np
import pytest
from scipy.stats import gamma

from vcmc.combiners.barycenter import Barycenter, barycenter

NUM_DRAWS = 20_000


def closed_form(shards):
    """Mean and covariance of the barycentre, in coordinates in which the shards' covariances are
    the identity on average."""
    outside = np.linalg.cholesky(shards.covariances.mean(axis=0))
    inside = np.linalg.inv(outside)
    return shards.means.mean(axis=0), outside @ barycenter(
        inside @ shards.covariances @ inside.T
    ) @ outside.T


@pytest.mark.parametrize("marginals", [False, True])
def test_gaussian_shards_give_their_barycentre(marginals, powered):
    truth = powered(4, 2)
    mean, covariance = closed_form(truth.shards)
    merged = Barycenter(marginals)(truth.subposteriors(NUM_DRAWS)).draws
    assert merged.shape == (NUM_DRAWS, 2)
    off = truth._replace(mean=mean, covariance=covariance).off(merged)
    assert off[0] < 4 / np.sqrt(NUM_DRAWS)
    assert off[1] < 4 * np.sqrt(2 / NUM_DRAWS)


def test_it_is_close_to_the_posterior(powered):
    truth = powered(4, 2, num_rows=500)
    mean, covariance = closed_form(truth.shards)
    assert np.abs((mean - truth.mean) / truth.sds).max() < 0.2
    np.testing.assert_allclose(
        covariance / np.outer(truth.sds, truth.sds),
        truth.covariance / np.outer(truth.sds, truth.sds),
        atol=0.05,
    )


def test_it_solves_its_equation(gaussian_shards):
    covariances = gaussian_shards(6, 5).covariances
    centre = barycenter(covariances)
    values, vectors = np.linalg.eigh(centre)
    half = (vectors * np.sqrt(values)) @ vectors.T
    values, vectors = np.linalg.eigh(half @ covariances @ half)
    mean = np.mean((vectors * np.sqrt(values)[:, None]) @ vectors.transpose(0, 2, 1), axis=0)
    np.testing.assert_allclose(mean, centre, rtol=1e-8, atol=1e-8)


def test_pot_agrees(gaussian_shards):
    pot = pytest.importorskip("ot", reason="POT is not installed")
    shards = gaussian_shards(6, 5)
    mean, covariance = pot.gaussian.bures_wasserstein_barycenter(
        shards.means, shards.covariances, eps=1e-10
    )
    np.testing.assert_allclose(barycenter(shards.covariances), covariance, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(shards.means.mean(axis=0), mean)


def test_commuting_covariances_have_a_closed_form():
    variances = np.random.default_rng(0).gamma(1.0, size=(5, 3))
    centre = barycenter(np.array([np.diag(each) for each in variances]))
    np.testing.assert_allclose(centre, np.diag(np.sqrt(variances).mean(axis=0) ** 2), atol=1e-12)


@pytest.mark.parametrize("marginals", [False, True])
def test_units_do_not_matter(marginals, powered):
    truth, units = powered(4, 2), np.array([1e-5, 1e4])
    draws = truth.shards.draws(500)
    plain, scaled = (
        Barycenter(marginals)(truth.subposteriors(each)).draws for each in (draws, draws * units)
    )
    np.testing.assert_allclose(scaled / units, plain, rtol=1e-8)


def test_quantiles_are_averaged(powered):
    scales, num_draws = np.array([1.0, 2.0, 3.0, 6.0]), 5000
    levels = (np.arange(num_draws) + 0.5) / num_draws
    generator = np.random.default_rng(0)
    draws = [
        np.stack(
            [generator.permutation(scale * gamma.ppf(levels, shape)) for shape in (1, 4)], axis=1
        )
        for scale in scales
    ]
    merged = np.sort(Barycenter(marginals=True)(powered(4, 2).subposteriors(draws)).draws, axis=0)
    for coordinate, shape in enumerate((1, 4)):
        np.testing.assert_allclose(
            merged[:, coordinate], gamma.ppf(levels, shape, scale=scales.mean()), rtol=1e-10
        )


@pytest.mark.parametrize("marginals", [False, True])
def test_unequal_counts(marginals, powered):
    truth = powered(4, 2)
    counts = (4000, 500, 2000, 3999)
    draws = [np.asarray(truth.shards.draws(count)[shard]) for shard, count in enumerate(counts)]
    merged = Barycenter(marginals)(truth.subposteriors(draws)).draws
    mean, covariance = closed_form(truth.shards)
    off = truth._replace(mean=mean, covariance=covariance).off(merged)
    assert merged.shape == (4000, 2)
    assert off[0] < 4 * np.sqrt(1 / 1500)  # the shard of 500 draws counts for a quarter
    assert off[1] < 4 * np.sqrt(2 / 1500)
