"""Weights and draws of several modes, against mixtures of normals."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.combiners import Modes, Subposteriors, Variational
from vcmc.combiners.base import AbstractCombiner, Combined
from vcmc.combiners.modes import combine_apart, search_modes, weight_errors
from vcmc.diagnostics.modes import ModeSearch
from vcmc.testing.gaussians import GaussianShards


def combined(mixture, num_shards, mode, num_draws=4000):
    """Combine draws of shards that are all around one mode."""
    target = mixture.target(num_shards)
    shape = num_shards, 2000 if num_shards == 1 else 200, mixture.means.shape[1]
    noise = np.random.default_rng(0).normal(size=shape)
    root = np.sqrt(num_shards) * np.linalg.cholesky(mixture.covariances[mode])
    draws = jnp.asarray(mixture.means[mode] + noise @ root.T)
    shards = Subposteriors(draws, target.model.space, target, num_posterior_draws=num_draws)
    return Modes()(shards)


def assert_right(found, mixture):
    """Weights are within four standard errors, and the moments of every mode are right."""
    modes = found.modes
    assert len(modes.weights) == len(mixture.weights)
    assert modes.standard_errors.max() < 0.01
    draws = np.asarray(found.draws)
    for number, centre in enumerate(modes.regions.centres):
        true = int(np.argmin(np.linalg.norm(mixture.means - centre, axis=1)))
        error = modes.standard_errors[number]
        assert abs(modes.weights[number] - mixture.weights[true]) < 4 * error
        part = draws[modes.labels == number]
        assert len(part) == pytest.approx(modes.weights[number] * len(draws), abs=1)
        sds = np.sqrt(np.diag(mixture.covariances[true]))
        assert (np.abs(part.mean(axis=0) - mixture.means[true]) < 0.1 * sds).all()
        np.testing.assert_allclose(part.std(axis=0), sds, rtol=0.05)


@pytest.mark.parametrize("mode", [0, 1])
def test_shards_in_one_mode_make_draws_of_both(two_normals, mode):
    assert_right(combined(two_normals, 6, mode), two_normals)


def test_modes_that_shards_cannot_separate(normal_mixture):
    """Six sds apart: each of ten shards has one hill over both."""
    covariances = [np.eye(2), np.diag([1.0, 3.0])]
    mixture = normal_mixture([0.4, 0.6], [[0.0, 0.0], [6.0, 0.0]], covariances)
    assert_right(combined(mixture, 10, 0), mixture)


def test_one_mode_is_combined_as_by_variational():
    shards = GaussianShards.random(4, 2).subposteriors(400)
    found = Modes()(shards)
    assert found.modes is None
    np.testing.assert_array_equal(found.draws, Variational()(shards).draws)


def test_one_shard_with_two_modes_is_weighed(two_normals):
    assert_right(combined(two_normals, 1, 0), two_normals)


def test_the_same_seed_gives_the_same_draws(two_normals):
    first, second = (combined(two_normals, 3, 0, 500) for _ in range(2))
    np.testing.assert_array_equal(first.draws, second.draws)


def test_combine_weighs_modes(two_normals):
    noise = np.random.default_rng(0).normal(size=(4, 300, 2))
    draws = {"theta": 2 * noise + two_normals.means[0]}
    options = {"model": two_normals.model, "rows": two_normals.rows, "progress": False}
    tree = vcmc.combine(draws, combiner=Modes(), **options)
    assert tree.attrs["verdict"] == "good"
    weights = tree["mode_weights"]
    errors = weights["weight"].to_numpy() - [0.7, 0.3]
    assert (np.abs(errors) < 4 * weights["standard_error"].to_numpy()).all()


def test_errors_of_weights_are_those_of_the_masses():
    errors = weight_errors(np.array([0.3, 0.7]), np.array([0.1, 0.2]))
    np.testing.assert_allclose(errors, 0.21 * np.hypot(0.1, 0.2))


@pytest.mark.parametrize("count", [0, -5, 499, 1000.0, "many", True])
def test_bad_numbers_of_proposals_are_refused(count):
    with pytest.raises(ValueError, match="max_proposals must be an integer of at least 500; got"):
        Modes(max_proposals=count)


def test_without_a_model_the_error_names_the_combiner():
    draws = {"theta": np.random.default_rng(0).normal(size=(3, 100, 2))}
    with pytest.raises(ValueError, match="Modes needs the full-data log density"):
        vcmc.combine(draws, combiner=Modes())


def test_combine_uses_modes_by_itself(two_normals):
    """As infer does; a combiner that is asked for is used, and the verdict says what it misses."""
    noise = np.random.default_rng(0).normal(size=(4, 300, 2))
    draws = {"theta": 2 * noise + two_normals.means[0]}
    options = {"model": two_normals.model, "rows": two_normals.rows, "progress": False}
    tree = vcmc.combine(draws, **options)
    assert (tree.attrs["verdict"], tree.attrs["combiner"]) == ("good", repr(Modes()))
    with pytest.warns(vcmc.DoubtfulWarning, match="another mode"):
        asked = vcmc.combine(draws, combiner=Variational(), **options)
    assert asked.attrs["verdict"] == "poor"


def test_combine_without_a_combiner_is_variational_where_there_is_one_mode(conjugate):
    mean, covariance = conjugate.posterior()
    name = next(iter(conjugate.model.space))
    root = np.linalg.cholesky(covariance) * 2
    noise = np.random.default_rng(0).normal(size=(4, 300, len(mean)))
    draws = {name: mean + noise @ root.T}
    tree = vcmc.combine(draws, model=conjugate.model, rows=conjugate.rows, progress=False)
    assert tree.attrs["combiner"] == repr(Variational())
    assert "mode_weights" not in tree.children


class Near(AbstractCombiner):
    """Return draws near a point, whatever the shards' draws."""

    point: tuple[float, ...]

    def combine(self, shards):
        noise = np.random.default_rng(0).normal(size=(1000, len(self.point)))
        return Combined(jnp.asarray(np.array(self.point) + noise))


def test_draws_that_end_near_a_mode_of_little_mass_are_combined_mode_by_mode(normal_mixture):
    """An affine map of shards that see both modes may end at either of them."""
    mixture = normal_mixture([0.997, 0.003], [[0.0, 0.0], [8.0, 0.0]], [np.eye(2)] * 2)
    target = mixture.target(10)
    draws = jnp.asarray(3 * np.random.default_rng(0).normal(size=(10, 200, 2)))
    shards = Subposteriors(draws, target.model.space, target, num_posterior_draws=4000)
    search = search_modes(shards, target)
    assert not search.is_several
    shards = Subposteriors(
        draws, target.model.space, target, num_posterior_draws=4000, modes=search
    )
    right, wrong = Near((0.0, 0.0)), Near((8.0, 0.0))
    assert combine_apart(right, shards)[0] is right
    combiner, _, combined = combine_apart(wrong, shards)
    assert isinstance(combiner, Modes)
    mean = np.asarray(combined.draws).mean(axis=0)
    np.testing.assert_allclose(mean, mixture.moments[0], atol=0.1)
    assert combined.modes.weights.min() == pytest.approx(0.003, abs=0.001)
    # the search has missed the mode, too: it is made again from the draws
    missed = ModeSearch(centre=np.zeros(2))
    shards = Subposteriors(
        draws, target.model.space, target, num_posterior_draws=4000, modes=missed
    )
    assert combine_apart(right, shards)[0] is right
    assert isinstance(combine_apart(wrong, shards)[0], Modes)
