"""Regions divide the target, and their derivatives are those of their logarithm."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from vcmc.diagnostics.mode_regions import ModeRegions, RegionTarget


@pytest.fixture
def regions(two_normals):
    return ModeRegions(
        two_normals.means,
        np.linalg.inv(two_normals.covariances),
        np.log(two_normals.weights),
    )


POINTS = np.random.default_rng(0).uniform(-5, 5, size=(6, 2))


def test_parts_add_up_to_the_target(regions, two_normals):
    target = two_normals.target(3)
    values, _ = target(jnp.asarray(POINTS))
    parts = [RegionTarget(target, regions, mode)(jnp.asarray(POINTS))[0] for mode in (0, 1)]
    np.testing.assert_allclose(logsumexp(parts, axis=0), values, rtol=1e-10)


def test_parts_of_a_mixture_of_normals_are_the_normals(regions, two_normals):
    part = RegionTarget(two_normals.target(3), regions, 1)
    _, scores = part(jnp.asarray(POINTS))
    precision = np.linalg.inv(two_normals.covariances[1])
    np.testing.assert_allclose(scores, -(POINTS - two_normals.means[1]) @ precision, atol=1e-8)
    curvature = part.curvature(two_normals.means[1] + 1.0)
    np.testing.assert_allclose(curvature, precision, atol=1e-4)


@pytest.mark.parametrize("mode", [0, 1])
def test_derivatives_are_differences(regions, mode):
    point, step = np.array([0.3, 0.8]), 1e-5
    steps = point + step * np.concatenate([np.eye(2), -np.eye(2)])
    values, scores = regions.value_and_score(mode, steps)
    _, score = regions.value_and_score(mode, point[None])
    np.testing.assert_allclose((values[:2] - values[2:]) / (2 * step), score[0], rtol=1e-5)
    hessian = (scores[:2] - scores[2:]) / (2 * step)
    np.testing.assert_allclose(hessian, regions.hessian(mode, point), rtol=1e-5, atol=1e-7)


def test_a_part_keeps_the_shards_in_the_cache(regions, two_normals):
    target = two_normals.target(3)
    assert RegionTarget(target, regions, 0).shard_cache is target.shard_cache
