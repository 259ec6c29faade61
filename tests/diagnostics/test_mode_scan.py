"""Many points, one evaluation each: those on the slope of a narrow hill are found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.mode_scan import MIN_SHARD_POINTS, num_points, steep_points
from vcmc.diagnostics.mode_search import find_modes
from vcmc.linalg.whitening import Whitening
from vcmc.target import Target

DISTANCE, WIDTH = 4.5, 0.2  # of a narrow hill from a wide one, in sds of the latter


def narrow_beside_wide(dim, seed=0):
    """Weights, means and covariances; the narrow hill is in a random direction."""
    along = np.random.default_rng(seed).normal(size=dim)
    means = [np.zeros(dim), DISTANCE * along / np.linalg.norm(along)]
    return [0.5, 0.5], means, [np.eye(dim), WIDTH**2 * np.eye(dim)]


def search(mixture, target):
    """Search from the wide hill, with draws of shards around it alone."""
    dim = mixture.means.shape[1]
    covariance = target.num_shards * np.eye(dim)
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(dim), covariance, 400)
    root = Whitening.from_curvature(np.zeros(dim), np.eye(dim)).root
    return find_modes(target, Whitening(np.zeros(dim), root), draws, seed=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_shards", [1, 10])
def test_a_narrow_hill_in_five_coordinates_is_found(num_shards, seed, normal_mixture):
    mixture = normal_mixture(*narrow_beside_wide(5, seed))
    found = search(mixture, mixture.target(num_shards))
    np.testing.assert_allclose(found.shares, [0.5, 0.5], atol=0.01)


@pytest.mark.parametrize("dim", [2, 3])
def test_where_rows_are_many_a_shard_shows_a_narrow_hill(dim, normal_mixture):
    mixture = normal_mixture(*narrow_beside_wide(dim), num_rows=100_000)
    target = mixture.target(10)
    assert num_points(target)[0] == 0
    assert num_points(target)[1] >= MIN_SHARD_POINTS
    np.testing.assert_allclose(search(mixture, target).shares, [0.5, 0.5], atol=0.01)


def gaussian_target(num_shards, num_rows=200):
    """The posterior of five means; shards differ."""
    model = vcmc.Model(
        {"theta": vcmc.Real(5)},
        lambda params: -0.5 * jnp.sum(params["theta"] ** 2),
        lambda params, rows: -0.5 * jnp.sum((rows["y"] - params["theta"]) ** 2, axis=1),
    )
    rows = {"y": np.random.default_rng(0).normal(size=(num_rows, 5))}
    target = Target(model, vcmc.split(rows, num_shards), vcmc.executors.Local())
    precision = (num_rows + 1) * np.eye(5)
    centre = rows["y"].sum(axis=0) / (num_rows + 1)
    return target, Whitening(centre, Whitening.from_curvature(centre, precision).root)


@pytest.mark.parametrize(("num_rows", "of_shard"), [(200, False), (20_000, True)])
def test_one_hill_has_no_steep_points(num_rows, of_shard):
    target, whitening = gaussian_target(4, num_rows)
    assert (num_points(target)[0] == 0) == of_shard
    draws = np.asarray(whitening.unwhiten(2 * np.random.default_rng(1).normal(size=(500, 5))))
    assert not len(steep_points(whitening, target, draws, seed=0))


def test_large_shards_are_not_scanned():
    target, whitening = gaussian_target(2, 50_000)
    assert num_points(target) == (0, 0)
    assert not len(steep_points(whitening, target, np.zeros((10, 5)), seed=0))


def test_points_without_a_log_density_are_left_out():
    """A half-space, with a narrow hill in it."""
    centre = 4.0

    def log_likelihood(params, rows):
        theta = params["theta"]
        narrow = 5.0 - 0.5 * jnp.sum((theta - centre) ** 2) / WIDTH**2
        hills = jax.nn.logsumexp(jnp.stack([-0.5 * jnp.sum(theta**2), narrow]))
        return rows["share"] * jnp.where(theta[0] > -2.0, hills, jnp.nan)

    space = {"theta": vcmc.Real(2)}
    model = vcmc.Model(space, lambda params: 0.0 * params["theta"][0], log_likelihood)
    target = Target(model, vcmc.split({"share": np.full(4, 0.25)}, 2), vcmc.executors.Local())
    whitening = Whitening(np.zeros(2), Whitening.from_curvature(np.zeros(2), np.eye(2)).root)
    points = steep_points(whitening, target, np.zeros((0, 2)), seed=0)
    assert len(points)
    assert (points[:, 0] > -2.0).all()
    assert (np.linalg.norm(points - centre, axis=1) < 2.0).mean() > 0.5
