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
    """Points of a small shard are evaluated in chunks of eight."""
    points = jnp.asarray(np.random.default_rng(count).normal(size=(count, 3)))
    log_densities, scores = evaluate(subposterior, points)
    assert log_densities.shape == (count,)
    assert scores.shape == (count, 3)
    for index in (0, count - 1):
        value, score = jax.value_and_grad(subposterior)(points[index])
        np.testing.assert_allclose(log_densities[index], value, rtol=1e-11)
        np.testing.assert_allclose(scores[index], score, rtol=1e-9)


def test_points_of_a_large_shard_are_evaluated_in_batches(subposterior, monkeypatch):
    points = np.random.default_rng(0).normal(size=(40, 3))
    expected = evaluate(subposterior, points)
    monkeypatch.setattr(density, "MAX_CACHED_BYTES", 0)
    for count in (1, 8, 9, 32, 40):
        for part, whole in zip(evaluate(subposterior, points[:count]), expected, strict=True):
            np.testing.assert_allclose(part, whole[:count], rtol=1e-9)


def test_one_program_serves_any_number_of_points(conjugate):
    model = vcmc.Model(
        dict(conjugate.model.space), conjugate.model.log_prior, conjugate.model.log_likelihood
    )
    subposterior = Subposterior(model, vcmc.split(conjugate.rows, 5).load(1), jnp.asarray(0.2))
    before = density._evaluate_chunks._cache_size()
    for count in (1, 2, 8, 9, 70):
        evaluate(subposterior, np.ones((count, 3)))
    hessian_products(subposterior, np.zeros(3), np.eye(3))
    assert density._evaluate_chunks._cache_size() == before + 1


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("num_rows", [20, 5000])
def test_differences_of_scores_are_hessian_products_in_any_units(num_rows, scale):
    """A logistic regression whose coordinates are measured in other units."""
    generator = np.random.default_rng(0)
    model = vcmc.Model(
        {"beta": vcmc.Real(3)},
        log_prior=lambda params: -0.5 * jnp.sum((params["beta"] / scale) ** 2),
        log_likelihood=lambda params, rows: jax.nn.log_sigmoid(rows["x"] @ params["beta"] / scale),
    )
    rows = {"x": generator.normal(size=(num_rows, 3)) + 0.5}
    subposterior = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(1.0))
    point = scale * np.array([0.3, -0.2, 1.0])
    directions = np.concatenate([np.eye(3), scale * generator.normal(size=(4, 3))])
    products = hessian_products(subposterior, point, directions)
    exact = hessian_products(subposterior, point, directions, is_exact=True)
    size = np.abs(exact).max(axis=1, keepdims=True)
    np.testing.assert_allclose(products / size, exact / size, atol=2e-6)
    assert not np.array_equal(products, exact)


def test_flat_directions_have_exact_hessian_products(conjugate):
    """No step is suitable where a log density does not change."""
    model = vcmc.Model(
        {"beta": vcmc.Real(3)},
        log_prior=lambda params: 0.0 * params["beta"][0],
        log_likelihood=lambda params, rows: -0.5 * (rows["y"] - params["beta"][0]) ** 2,
    )
    rows = {"y": np.arange(10.0)}
    subposterior = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(1.0))
    products = hessian_products(subposterior, np.ones(3), np.eye(3))
    np.testing.assert_allclose(products, np.diag([-10.0, 0.0, 0.0]), atol=1e-12)


def test_hessian_products_of_a_gaussian_are_those_of_its_precision(conjugate, subposterior):
    members = vcmc.split(conjugate.rows, 5).members[1]
    _, covariance = conjugate.posterior(members, prior_power=0.2)
    directions = np.random.default_rng(0).normal(size=(130, 3))
    products = hessian_products(subposterior, jnp.zeros(3), jnp.asarray(directions))
    np.testing.assert_allclose(products, -directions @ np.linalg.inv(covariance), rtol=1e-8)


@pytest.mark.parametrize(
    ("count", "expected"), [(5, 5), (9, 32), (32, 32), (33, 33), (100, 100), (101, 51), (250, 84)]
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
