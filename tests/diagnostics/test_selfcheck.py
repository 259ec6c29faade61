"""Self-estimated errors against planted ones, on targets whose moments are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.diagnostics.selfcheck import self_check
from vcmc.target import Target


def make_target(log_likelihood, dim):
    model = vcmc.Model(
        {"theta": vcmc.Real(dim)}, lambda params: 0.0 * jnp.sum(params["theta"]), log_likelihood
    )
    partition = vcmc.split({"one": np.ones(4)}, 2)
    return Target(model, [partition.load(shard) for shard in range(2)], vcmc.executors.Local())


@pytest.fixture(scope="module")
def gaussian():
    """A Gaussian of three correlated coordinates: its covariance and its target."""
    covariance = np.array([[2.0, 0.9, 0.0], [0.9, 1.0, -0.2], [0.0, -0.2, 0.5]])
    precision = jnp.asarray(np.linalg.inv(covariance))
    return covariance, make_target(
        lambda params, rows: (
            -0.5 * rows["one"] / 4 * (params["theta"] @ precision @ params["theta"])
        ),
        3,
    )


def identity(points):
    return np.asarray(points)


@pytest.mark.parametrize("mean", [0.02, 0.5, 8.0])
@pytest.mark.parametrize("scale", [0.4, 1.0, 1.3])
def test_errors_of_a_gaussian_are_those_of_its_draws(mean, scale, gaussian):
    """The Monte Carlo error of the draws is part of the estimate."""
    covariance, target = gaussian
    noise = np.random.default_rng(0).normal(size=(600, 3)) @ np.linalg.cholesky(covariance).T
    draws = scale * noise + mean * np.sqrt(np.diag(covariance))
    check = self_check(draws, target, identity, seed=0)
    sds = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(check.errors.mean, draws.mean(axis=0) / sds, atol=1e-6)
    np.testing.assert_allclose(check.errors.sd, draws.std(axis=0) / sds - 1, atol=1e-6)
    assert check.not_linear < 1e-6
    assert (check.errors.mean_se < 1e-4).all()
    if mean >= 0.5 or scale < 1:
        assert check.ksd_p_value < 0.01


def test_right_draws_of_a_gaussian_are_called_right(gaussian):
    covariance, target = gaussian
    draws = np.random.default_rng(3).multivariate_normal(np.zeros(3), covariance, size=1000)
    check = self_check(draws, target, identity, seed=0)
    assert np.abs(check.errors.mean).max() < 4 / np.sqrt(1000)
    assert np.abs(check.errors.sd).max() < 4 / np.sqrt(2000)
    assert check.ksd_p_value > 0.01
    assert check.pareto_k < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("shape", [5.0, 200.0])
@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_errors_of_skewed_posteriors_are_covered(shape, shift):
    """Logarithms of gamma variables, whose moments are known: a smaller shape is more skewed."""
    target = make_target(
        lambda params, rows: (
            rows["one"] / 4 * jnp.sum(shape * params["theta"] - jnp.exp(params["theta"]))
        ),
        2,
    )
    mean, sd = digamma(shape), np.sqrt(polygamma(1, shape))
    covered = []
    for seed in range(24):
        # Gaussian draws, which have no skewness at all: what an affine correction cannot repair
        draws = mean + sd * (shift + np.random.default_rng(seed).normal(size=(500, 2)))
        errors = self_check(draws, target, identity, seed).errors
        covered += list(np.abs(errors.mean - (draws.mean(axis=0) - mean) / sd) < 2 * errors.mean_se)
        covered += list(np.abs(errors.sd - (draws.std(axis=0) / sd - 1)) < 2 * errors.sd_se)
    assert np.mean(covered) >= 0.9


def test_quantities_need_not_be_coordinates(gaussian):
    """The exponential of a coordinate that is off by a fifth of its sd is a log-normal."""
    covariance, target = gaussian
    variance = covariance[2, 2]
    noise = np.random.default_rng(0).normal(size=(20_000, 3)) @ np.linalg.cholesky(covariance).T
    draws = noise + 0.2 * np.sqrt(np.diag(covariance))
    check = self_check(draws, target, lambda points: np.exp(np.asarray(points)[:, 2:]), seed=0)
    mean, factor = np.exp(variance / 2), np.exp(0.2 * np.sqrt(variance))
    sd = np.sqrt(np.exp(variance) - 1) * mean
    # the two means are estimates from 20 000 draws
    assert check.errors.mean[0] == pytest.approx((factor - 1) * mean / sd, abs=0.04)
    assert check.errors.sd[0] == pytest.approx(factor - 1, abs=0.06)


def test_many_coordinates_are_scaled_one_by_one():
    """More coordinates than draws: shift and scale by products with the Hessian."""
    target = make_target(
        lambda params, rows: -0.5 * rows["one"] / 4 * jnp.sum(params["theta"] ** 2), 300
    )
    draws = 1.2 * np.random.default_rng(0).normal(size=(200, 300)) + 0.5
    errors = self_check(draws, target, identity, seed=0).errors
    off = errors.mean - draws.mean(axis=0)
    assert np.abs(off).max() < 0.05
    # a coordinate's variance is known from 200 draws
    assert np.median(errors.sd) == pytest.approx(0.2, abs=0.02)


def test_errors_of_means_are_those_of_all_draws_where_some_are_assessed(monkeypatch):
    dim = 3
    target = make_target(
        lambda params, rows: -0.5 * rows["one"] / 4 * jnp.sum(params["theta"] ** 2), dim
    )
    draws = np.random.default_rng(0).normal(size=(20_000, dim))
    draws = draws - draws.mean(axis=0) + 0.2
    monkeypatch.setattr("vcmc.diagnostics.selfcheck.MAX_MOVED_VALUES", 1000 * dim)
    errors = self_check(draws, target, identity, seed=0).errors
    np.testing.assert_allclose(errors.mean, 0.2, atol=1e-3)  # a thousand draws are off by 0.03


def test_what_is_not_finite_is_counted():
    target = make_target(
        lambda params, rows: (
            jnp.where(params["theta"][0] > 0, 0.0, -jnp.inf) * rows["one"]
            - 0.125 * jnp.sum(params["theta"] ** 2) * rows["one"]
        ),
        2,
    )
    draws = np.random.default_rng(0).normal(size=(400, 2))
    check = self_check(draws, target, identity, seed=0)
    assert check.num_points == 400
    assert check.num_not_finite == np.sum(draws[:, 0] <= 0)


def test_without_a_maximum_nearby_there_are_no_errors():
    """Draws in the valley between two modes."""
    target = make_target(
        lambda params, rows: (
            rows["one"]
            / 4
            * jnp.sum(jnp.logaddexp(*(-8 * (params["theta"] - c) ** 2 for c in (-1, 1))))
        ),
        2,
    )
    check = self_check(
        0.1 * np.random.default_rng(0).normal(size=(400, 2)), target, identity, seed=0
    )
    assert check.errors is None
    assert not check.falls_off


def test_correlated_coordinates_that_are_too_many_for_matrices_look_linear():
    """Exact draws of a correlated Gaussian: off-diagonal curvature is not nonlinearity."""
    dim, shared = 60, 0.5
    target = make_target(
        lambda params, rows: (
            -0.5
            * rows["one"]
            / 4
            * (
                jnp.sum(params["theta"] ** 2)
                - shared / (1 + (dim - 1) * shared) * jnp.sum(params["theta"]) ** 2
            )
            / (1 - shared)
        ),
        dim,
    )
    generator = np.random.default_rng(0)
    draws = np.sqrt(shared) * generator.normal(size=(80, 1)) + np.sqrt(
        1 - shared
    ) * generator.normal(size=(80, dim))
    check = self_check(draws + 0.5, target, identity, seed=0)
    assert check.not_linear < 1e-6
    np.testing.assert_allclose(check.errors.mean, draws.mean(axis=0) + 0.5, atol=0.05)


def test_a_step_too_far_is_not_taken():
    """The mean that the scores predict lies where the log density is not finite."""
    target = make_target(
        lambda params, rows: (
            rows["one"]
            / 4
            * jnp.sum(jnp.where(params["theta"] > 0, -0.5 * (params["theta"] + 100) ** 2, -jnp.inf))
        ),
        1,
    )
    draws = 50 + np.random.default_rng(0).normal(size=(400, 1))
    check = self_check(draws, target, identity, seed=0)
    assert check.errors.mean[0] > 100


def test_constants_have_no_errors(gaussian):
    covariance, target = gaussian
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(3), covariance, size=300)

    def quantities(points):
        values = np.asarray(points)
        angle = np.sin(values[:, 0]) ** 2 + np.cos(values[:, 0]) ** 2  # one, up to rounding
        return np.column_stack([values[:, 1], angle, np.where(values[:, 2] > 0, np.nan, 1.0)])

    with np.errstate(invalid="ignore"):
        check = self_check(draws, target, quantities, seed=0)
    assert np.isfinite(check.errors.mean).tolist() == [True, False, False]
    assert np.isfinite(check.not_linear)


@pytest.mark.parametrize("seed", range(3))
def test_exact_draws_of_a_thin_ring_may_be_where_it_falls_off(seed):
    """The curvature at their mean says nothing of it, and scores of 400 draws are noisy."""
    target = make_target(
        lambda params, rows: rows["one"] / 4 * -50 * (jnp.linalg.norm(params["theta"]) - 2) ** 2, 2
    )
    generator = np.random.default_rng(seed)
    radius, angle = 2 + 0.1 * generator.normal(size=2000), generator.uniform(0, 2 * np.pi, 2000)
    draws = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert self_check(draws, target, identity, seed=seed).falls_off


@pytest.mark.parametrize("width", [0.3, 0.5])
def test_averages_of_two_modes_are_where_the_target_does_not_fall_off(width):
    target = make_target(
        lambda params, rows: (
            rows["one"] / 4 * jnp.logaddexp(*(-8 * (params["theta"][0] - c) ** 2 for c in (-1, 1)))
            - params["theta"][1] ** 2 / 8
        ),
        2,
    )
    draws = np.random.default_rng(0).normal(size=(1000, 2)) * [width, 1.0]
    assert not self_check(draws, target, identity, seed=0).falls_off


@pytest.mark.parametrize("seed", range(4))
def test_exact_draws_with_heavy_tails_are_not_called_too_wide(seed):
    """Student t, 4.5 degrees of freedom: the centre is curved three times as much as on average."""
    freedom, dim = 4.5, 3
    target = make_target(
        lambda params, rows: (
            -(rows["one"] / 4)
            * (freedom + dim)
            / 2
            * jnp.log1p(jnp.sum(params["theta"] ** 2) / freedom)
        ),
        dim,
    )
    generator = np.random.default_rng(seed)
    scale = np.sqrt(generator.chisquare(freedom, size=(5000, 1)) / freedom)
    check = self_check(generator.normal(size=(5000, dim)) / scale, target, identity, seed=seed)
    if check.errors is not None:
        assert (np.abs(check.errors.sd) < 2 * check.errors.sd_se + 0.1).all()
