import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc import density
from vcmc.density import Subposterior, evaluate, hessian_products, log_priors, prepare


@pytest.fixture(scope="module")
def subposterior(conjugate):
    return Subposterior(conjugate.model, vcmc.split(conjugate.rows, 5).load(1), jnp.asarray(0.2))


@pytest.mark.parametrize("count", [1, 8, 9, 32, 40])
def test_batches_agree_with_single_points(count, subposterior):
    """Few points are evaluated as they are, 32 are a batch, and others are padded."""
    points = jnp.asarray(np.random.default_rng(count).normal(size=(count, 3)))
    log_densities, scores = evaluate(subposterior, points)
    assert log_densities.shape == (count,)
    assert scores.shape == (count, 3)
    for index in (0, count - 1):
        value, score = jax.value_and_grad(subposterior)(points[index])
        np.testing.assert_allclose(log_densities[index], value, rtol=1e-11)
        np.testing.assert_allclose(scores[index], score, rtol=1e-9)


def test_hessian_products_of_a_gaussian_are_those_of_its_precision(conjugate, subposterior):
    members = vcmc.split(conjugate.rows, 5).members[1]
    _, covariance = conjugate.posterior(members, prior_power=0.2)
    directions = np.random.default_rng(0).normal(size=(130, 3))
    products = hessian_products(subposterior, jnp.zeros(3), jnp.asarray(directions))
    np.testing.assert_allclose(products, -directions @ np.linalg.inv(covariance), rtol=1e-8)


@pytest.mark.parametrize(
    ("count", "expected"), [(5, 32), (32, 32), (33, 33), (100, 100), (101, 51), (250, 84)]
)
def test_many_directions_are_cut_into_equal_parts(count, expected, subposterior):
    assert density._num_directions(subposterior.shard, count) == expected


def test_large_shards_take_fewer_directions_at_once(subposterior, monkeypatch):
    monkeypatch.setattr(density, "MAX_VALUES", 0)
    assert density._num_directions(subposterior.shard, 100) == 25


def test_prepared_programs_are_those_that_are_called(conjugate):
    """A model of its own, so that no other test has compiled its programs."""
    model = vcmc.Model(
        dict(conjugate.model.space), conjugate.model.log_prior, conjugate.model.log_likelihood
    )
    prepare(Subposterior(model, vcmc.split(conjugate.rows, 5).load(1), jnp.asarray(0.2)))


def test_a_batched_density_is_the_same(subposterior):
    point = jnp.ones(3)
    assert subposterior.batched().is_batched
    np.testing.assert_array_equal(subposterior.batched()(point), subposterior(point))


def test_log_priors_are_those_of_the_model(conjugate):
    points = np.random.default_rng(0).normal(size=(70, 3))  # more than a batch
    expected = [float(conjugate.model.log_prior_at(jnp.asarray(point))) for point in points]
    np.testing.assert_allclose(log_priors(conjugate.model, points), expected, rtol=1e-12)
