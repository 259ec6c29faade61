"""Profiles of the log density, on densities whose tails and steps are known."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.profiles import MAX_LINES, MAX_SD_RATIO, profile, profile_doubts
from vcmc.diagnostics.row_sample import RowSample
from vcmc.target import Target

NAMES = ["theta[0]", "theta[1]", "theta[2]"]
ROOT = np.linalg.cholesky([[1.0, 0.8, 0.0], [0.8, 1.0, 0.3], [0.0, 0.3, 1.0]])


def target(log_density, dim=3):
    """Return a target with this log density of theta: all of it is the prior."""
    model = vcmc.Model(
        {"theta": vcmc.Real(dim)},
        lambda params: log_density(params["theta"]),
        lambda params, rows: 0.0 * rows["y"],
    )
    return Target(model, [vcmc.split({"y": np.ones(2)}, 1).load(0)], vcmc.executors.Local())


def gaussian(theta):
    return -0.5 * jnp.sum(jnp.linalg.solve(jnp.asarray(ROOT), theta) ** 2)


def draws(dim=3):
    generator = np.random.default_rng(0)
    white = generator.normal(size=(2000, dim))
    white = (white - white.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(white.T))).T
    return white @ (ROOT if dim == 3 else np.eye(dim)).T


def test_a_gaussian_has_the_sds_of_its_draws_along_every_line():
    found = profile(draws(), target(gaussian), seed=0)
    np.testing.assert_allclose(found.sds, 1, atol=2e-3)  # covariances are divided by n, or n - 1
    assert (found.steps < 0.01).all()
    assert profile_doubts(found, NAMES) == []


def test_a_slab_that_the_draws_miss_is_named():
    def with_slab(theta):
        slab = -0.5 * jnp.sum((theta / jnp.array([1.0, 10.0, 1.0])) ** 2) - jnp.log(10.0)
        return jnp.logaddexp(-0.5 * jnp.sum(theta**2), slab)

    white = draws() @ np.linalg.inv(ROOT).T
    found = profile(white, target(with_slab), seed=0)
    (doubt,) = profile_doubts(found, NAMES)
    assert "along theta[1] the full-data density is wider" in doubt
    # half of the mass has an sd of 10: the variance is (1 + 100) / 2
    np.testing.assert_allclose(found.sds[1], np.sqrt(50.5), rtol=0.05)


@pytest.mark.parametrize("freedom", [2.0, 4.0])
def test_heavy_tails_are_seen_where_scores_at_draws_are_those_of_a_gaussian(freedom):
    def student(theta):
        return -(freedom + 1) / 2 * jnp.sum(jnp.log1p(theta**2 / freedom))

    narrow = draws() @ np.linalg.inv(ROOT).T * np.sqrt(freedom / (freedom + 1))
    assert (profile(narrow, target(student), seed=0).sds > MAX_SD_RATIO).all()


def test_draws_that_are_too_wide_are_left_to_scores():
    """A funnel is narrower along a line than around it."""
    found = profile(3 * draws(), target(gaussian), seed=0)
    np.testing.assert_allclose(found.sds, 1 / 3, atol=0.01)
    assert profile_doubts(found, NAMES) == []


def test_steps_are_seen():
    def with_steps(theta):
        return gaussian(theta) + jnp.floor(2 * theta[2])

    found = profile(draws(), target(with_steps), seed=0)
    assert any(
        "has steps" in doubt and "theta[2]" in doubt for doubt in profile_doubts(found, NAMES)
    )


def test_of_many_coordinates_those_with_an_odd_prior_are_looked_at():
    odd = 57

    def log_density(theta):
        return -0.5 * jnp.sum(theta**2) + jnp.log1p(theta[odd] ** 2)

    dim = MAX_LINES + 40
    generator = np.random.default_rng(0)
    found = profile(generator.normal(size=(1000, dim)), target(log_density, dim), seed=0)
    assert len(found.coordinates) == MAX_LINES
    assert odd in found.coordinates


def test_a_density_that_is_nowhere_finite_is_doubted():
    def broken(theta):
        return jnp.where(jnp.abs(theta[0]) < 1e9, jnp.nan, 0.0) * theta[0]

    assert profile_doubts(profile(draws(), target(broken), seed=0), NAMES)


NUM_ROWS = 400_000  # of which a part is looked at first


def standard_draws():
    found = np.random.default_rng(0).normal(size=(2000, 1))
    return (found - found.mean()) / found.std()


def of_rows(log_likelihood, log_prior, y):
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: log_prior(params["theta"]),
        lambda params, rows: log_likelihood(params["theta"], rows["y"]),
    )
    return Target(model, vcmc.split({"y": y}, 20), vcmc.executors.Local())


def test_of_many_rows_only_those_of_a_part_are_evaluated_where_no_mass_is(monkeypatch):
    y = np.random.default_rng(0).normal(size=NUM_ROWS)
    full = of_rows(lambda theta, y: -0.5 * (y - theta) ** 2, lambda theta: -0.5 * theta**2, y)
    near = y.mean() + standard_draws() / NUM_ROWS**0.5
    counts = []
    evaluate = Target.__call__

    def counting(self, points, only=None):
        if not isinstance(self, RowSample):
            counts.append(len(points))
        return evaluate(self, points, only)

    monkeypatch.setattr(Target, "__call__", counting)
    found = profile(near, full, seed=0)
    np.testing.assert_allclose(found.sds, 1, atol=2e-3)
    assert found.steps[0] < 0.01
    assert 11 <= sum(counts) < 21


@pytest.mark.parametrize("seed", range(4))
def test_of_many_rows_a_slab_is_seen_though_the_part_has_its_own_slope(seed):
    """Rows say nothing beyond 8 sds of the posterior, where a fifth of the mass of a slab is."""
    y = np.random.default_rng(seed).normal(size=NUM_ROWS)
    sd = NUM_ROWS**-0.5

    def log_likelihood(theta, y):
        far = 1 - jnp.exp(-0.5 * (theta / (8 * sd)) ** 2)
        return (1 - far) * (theta * y - 0.5 * theta**2) - far * 3 / NUM_ROWS

    full = of_rows(log_likelihood, lambda theta: -0.5 * (theta / (60 * sd)) ** 2, y)
    near = y.mean() + standard_draws() * sd
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowSample, "of", lambda *_: None)
        expected = profile(near, full, seed=0)
    found = profile(near, full, seed=0)
    assert found.sds[0] > MAX_SD_RATIO
    np.testing.assert_allclose(found.sds, expected.sds, rtol=0.02)
