"""The objective of affine maps on a Gaussian target, whose values are known in closed form."""

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.aggregators import AffineFamily, Precision
from vcmc.aggregators.weights import weights_of
from vcmc.linalg.pairing import random_pairing
from vcmc.space import Product, Real
from vcmc.variational.affine_objective import AffineObjective
from vcmc.variational.entropies import GaussianSum
from vcmc.variational.objective import Objective

SPACE = Product({"theta": Real(3)})


@pytest.fixture(scope="module")
def gaussian(gaussian_shards):
    """Gaussian shards with diagonal covariances, on which both kinds of scale are exact."""
    shards = gaussian_shards(4, 3)
    return type(shards)(shards.means, shards.covariances * np.eye(3))


@pytest.fixture(params=[True, False], ids=["dense", "diagonal"])
def problem(request, gaussian):
    """The objective, and its evaluation of all draws at the initial weights."""
    draws = gaussian.draws(500)
    aggregator = AffineFamily(full=request.param).fit(SPACE, draws, Precision())
    objective = Objective(gaussian.target(), GaussianSum(), aggregator, draws)
    affine = AffineObjective(objective, max_noise=0.015)
    start = affine.start(weights_of(aggregator))
    return objective, affine, affine.evaluate(*start, affine.white)


def test_values_are_those_of_the_objective(problem):
    """On all draws; the other one takes shards to be independent, which 500 draws nearly are."""
    objective, affine, evaluation = problem
    value, error = affine.value(evaluation, affine.initial_curvature())
    indices = np.tile(np.arange(500)[:, None], (1, 4))
    expected = objective(weights_of(objective.aggregator), indices)
    assert value == pytest.approx(float(expected.value), abs=4 * float(expected.error) + 4 * error)


def test_evaluations_are_those_of_the_aggregated_draws(problem):
    objective, affine, evaluation = problem
    merged = objective.aggregate(affine.weights(evaluation.shift, evaluation.scale))
    np.testing.assert_allclose(evaluation.values, objective.target(merged)[0], rtol=1e-9)


def test_hessian_products_are_differences_of_scores(problem):
    _, affine, evaluation = problem
    direction = np.array([0.3, -1.0, 0.5])
    ends = [
        affine.evaluate(evaluation.shift + sign * 1e-4 * direction, evaluation.scale, affine.white)
        for sign in (1, -1)
    ]
    slope = (ends[1].scores - ends[0].scores).mean(axis=0) / 2e-4
    products = affine.hessian_products(evaluation.shift, direction[None])[0]
    np.testing.assert_allclose(products, slope, rtol=1e-5, atol=1e-7)


def test_a_step_leads_to_the_mode_and_its_gain_is_the_rise(problem, gaussian):
    objective, affine, evaluation = problem
    curvature = affine.curvature(evaluation.shift)
    step = affine.newton_step(evaluation, curvature)
    search = affine.line_search(evaluation, step)
    assert search.rise == pytest.approx(step.gain, abs=0.02)
    mode = affine.find_mode(evaluation.shift, evaluation.shift + evaluation.offsets)
    sds = 1 / np.sqrt(np.diag(affine.hessian_products(mode, np.eye(3))))
    # with a scale for each coordinate, the shift is that of 500 draws
    assert (np.abs(search.end.shift - mode) < 0.1 * sds).all()
    mean, _ = gaussian.product()
    found = objective.aggregator.whitening.unwhiten(jnp.asarray(mode))
    np.testing.assert_allclose(found, mean, atol=1e-3)


def test_a_scale_that_is_too_wide_is_below(problem):
    _, affine, evaluation = problem
    wide = affine.evaluate(
        evaluation.shift, type(evaluation.scale)(3 * evaluation.scale.values), affine.white
    )
    assert affine.is_below(wide, evaluation.shift, evaluation.scale)
    assert not affine.is_below(evaluation, wide.shift, wide.scale)
    assert affine.distance(evaluation, wide) == 0


def test_white_draws_of_a_random_pairing_have_mean_zero_and_covariance_one(gaussian):
    """Also those of a batch, so that the map's moments do not depend on the pairing."""
    draws = gaussian.draws(50)
    aggregator = AffineFamily().fit(SPACE, draws, Precision())
    pairs = np.stack([random_pairing(50, 400, shard) for shard in range(4)])
    objective = Objective(gaussian.target(), GaussianSum(), aggregator, draws, pairs)
    affine = AffineObjective(objective, max_noise=0.015)
    generator = np.random.default_rng(0)
    for white in (affine.white, affine.batch(40, generator)):
        np.testing.assert_allclose(white.mean(axis=0), np.zeros(3), atol=1e-12)
        np.testing.assert_allclose(white.T @ white / len(white), np.eye(3), atol=1e-10)
    assert len(affine.white) == 400


def test_draws_are_aggregated_as_paired(gaussian):
    draws = gaussian.draws(20)
    aggregator = AffineFamily().fit(SPACE, draws, Precision())
    pairs = np.stack([random_pairing(20, 70, shard) for shard in range(4)])
    objective = Objective(gaussian.target(), GaussianSum(), aggregator, draws, pairs)
    merged = objective.aggregate(weights_of(aggregator))
    for draw in (0, 33, 69):
        expected = aggregator(draws[np.arange(4), pairs[:, draw]])
        np.testing.assert_allclose(merged[draw], expected, rtol=1e-9)
