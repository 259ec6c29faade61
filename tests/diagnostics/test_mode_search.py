"""Searches on mixtures of Gaussians whose masses are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.mode_search import find_modes, other_mode
from vcmc.diagnostics.row_sample import RowSample
from vcmc.linalg.whitening import Whitening
from vcmc.target import Target

CENTRE = 4.0  # of a mode, in its sds


def target(share):
    """Return a target with modes at ±4, of which the right one holds a share of the mass."""
    log_odds = jnp.log(share) - jnp.log1p(-share)

    def log_likelihood(params, rows):
        theta = params["theta"]
        modes = jnp.stack(
            [log_odds - 0.5 * (theta - CENTRE) ** 2, -0.5 * (theta + CENTRE) ** 2], axis=0
        )
        return rows["y"] * jax.nn.logsumexp(modes)

    model = vcmc.Model({"theta": vcmc.Real()}, lambda params: 0.0 * params["theta"], log_likelihood)
    shards = [vcmc.split({"y": np.ones(1)}, 1).load(0)]
    return Target(model, shards, vcmc.executors.Local())


def draws(centre):
    return centre + np.random.default_rng(0).normal(size=(500, 1))


@pytest.mark.parametrize(("share", "percent"), [(0.5, "50 %"), (0.8, "80 %")])
def test_a_mode_that_the_draws_miss_is_named_with_its_mass(share, percent):
    full = target(share)
    found = other_mode(draws(-CENTRE), full, seed=0)
    message = found.sentence(full.model.space)
    assert f"about {percent} of the mass" in message
    assert "theta = 4.0" in message


def test_a_mode_with_little_mass_is_not_reported():
    assert other_mode(draws(-CENTRE), target(0.001), seed=0) is None


def test_a_single_mode_has_no_other():
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: -0.5 * params["theta"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["theta"]) ** 2,
    )
    shards = [vcmc.split({"y": np.zeros(3)}, 1).load(0)]
    single = Target(model, shards, vcmc.executors.Local())
    assert other_mode(0.5 * draws(0.0), single, seed=0) is None


def search(mixture, num_shards, mode=0):
    """Search from one mode, without a draw from the others."""
    generator = np.random.default_rng(0)
    drawn = generator.multivariate_normal(mixture.means[mode], mixture.covariances[mode], 400)
    return find_modes(mixture.target(num_shards), Whitening.from_draws(drawn), drawn, seed=0)


def test_modes_have_their_shares_largest_first(two_normals):
    found = search(two_normals, 4)
    np.testing.assert_allclose(found.shares, [0.7, 0.3], atol=1e-3)
    np.testing.assert_allclose(found.modes[0].point, two_normals.means[1], atol=1e-3)
    assert (found.own, found.is_complete, found.is_several) == (1, True, True)


def test_modes_that_shards_cannot_separate_are_found(normal_mixture):
    """Five sds apart: each of ten shards has one hill over both."""
    mixture = normal_mixture([0.4, 0.6], [[0.0, 0.0], [3.0, 4.0]], [np.eye(2)] * 2)
    found = search(mixture, 10)
    # each Gaussian is fitted to a hill on whose slope the other stands
    np.testing.assert_allclose(found.shares, [0.6, 0.4], atol=0.1)
    np.testing.assert_allclose([mode.point for mode in found.modes], mixture.means[::-1], atol=0.01)


@pytest.mark.parametrize("apart", [[8.0, 0.0, 0.0], [0.0, 0.0, 8.0], [4.0, -4.0, 5.0]])
@pytest.mark.parametrize("num_shards", [1, 10])
def test_modes_of_coordinates_on_very_different_scales_are_found(num_shards, apart, normal_mixture):
    units = np.array([1e-4, 1.0, 1e3])
    correlated = (np.full((3, 3), 0.6) + 0.4 * np.eye(3)) * np.outer(units, units)
    narrower = np.diag((units * [0.5, 1.0, 0.7]) ** 2)
    mixture = normal_mixture([0.4, 0.6], [-units, units * apart], [correlated, narrower])
    for mode in (0, 1):
        found = search(mixture, num_shards, mode)
        np.testing.assert_allclose(found.shares, [0.6, 0.4], atol=0.01)
        points = [mode.point / units for mode in found.modes]
        np.testing.assert_allclose(points, mixture.means[::-1] / units, atol=0.01)


def test_hills_without_a_valley_are_one(normal_mixture):
    mixture = normal_mixture(
        [0.4, 0.3, 0.3], [[0.0, 0.0], [2.6, 0.0], [0.0, 20.0]], [np.eye(2)] * 3
    )
    merged, other = search(mixture, 2).modes
    assert -0.5 < merged.point[0] < 3.1
    np.testing.assert_allclose(other.point, mixture.means[2], atol=0.01)


def test_a_search_from_the_pass_between_two_modes_finds_both(normal_mixture):
    mixture = normal_mixture([0.5, 0.5], [[-3.0, 0.0], [3.0, 0.0]], [np.eye(2)] * 2)
    drawn = np.random.default_rng(0).normal(size=(400, 2))
    whitening = Whitening(np.zeros(2), Whitening.from_draws(drawn).root)
    found = find_modes(mixture.target(2), whitening, drawn, seed=0)
    np.testing.assert_allclose(found.shares, [0.5, 0.5], atol=0.01)


def test_four_modes_are_found_from_one(normal_mixture):
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) * 6.0
    mixture = normal_mixture([0.1, 0.2, 0.3, 0.4], corners, [np.eye(2)] * 4)
    np.testing.assert_allclose(search(mixture, 5).shares, [0.4, 0.3, 0.2, 0.1], atol=1e-3)


@pytest.mark.parametrize("shift", [0.0, 0.002])
def test_a_mode_of_many_rows_is_found_though_some_are_searched_first(shift):
    """y is about θ², so that θ and −θ fit alike; the prior shifts them a little."""
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: -0.5 * (params["theta"] - shift) ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["theta"] ** 2) ** 2,
    )
    y = 4 + np.random.default_rng(0).normal(size=2**20)
    full = Target(model, vcmc.split({"y": y}, 16), vcmc.executors.Local())
    top = np.sqrt(y.mean())
    tasks = RowSample.of(full, np.array([top])).tasks
    assert [shard for task in tasks for shard in task.shards] == [0, 8]
    drawn = top + np.random.default_rng(1).normal(size=(400, 1)) / (4 * len(y)) ** 0.5
    found = find_modes(full, Whitening.from_draws(drawn), drawn, seed=0)
    assert len(found.modes) == 2
    expected = 1 / (1 + np.exp(-2 * shift * top))
    np.testing.assert_allclose(found.shares[found.own], expected, rtol=1e-3)


def test_of_many_rows_with_one_hill_only_some_are_evaluated(monkeypatch):
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: -0.5 * params["theta"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["theta"]) ** 2,
    )
    y = np.random.default_rng(0).normal(size=2**20)
    full = Target(model, vcmc.split({"y": y}, 16), vcmc.executors.Local())
    counts = []
    evaluate = Target.__call__

    def counting(self, points, only=None):
        if only is None and not isinstance(self, RowSample):
            counts.append(len(points))
        return evaluate(self, points, only)

    monkeypatch.setattr(Target, "__call__", counting)
    drawn = y.mean() + np.random.default_rng(1).normal(size=(400, 1)) / len(y) ** 0.5
    assert not find_modes(full, Whitening.from_draws(drawn), drawn, seed=0).is_several
    assert sum(counts) == 1  # the anchor
