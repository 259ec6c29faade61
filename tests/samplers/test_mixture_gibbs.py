import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import MixtureGibbs


def enumerated_moments(x, num_components, variance, precision):
    """First and second moments of the centres, by summing over all assignments."""
    weights, firsts, seconds = [], [], []
    for assignment in itertools.product(range(num_components), repeat=len(x)):
        log_weight, first, second = 0.0, [], []
        for component in range(num_components):
            members = x[np.array(assignment) == component]
            posterior = precision + len(members) / variance
            total = members.sum(axis=0) / variance
            log_weight += 0.5 * (total**2).sum() / posterior + 0.5 * x.shape[1] * np.log(
                precision / posterior
            )
            first.append(total / posterior)
            second.append((total / posterior) ** 2 + 1 / posterior)
        weights.append(log_weight), firsts.append(first), seconds.append(second)
    mass = np.exp(np.array(weights) - max(weights))
    mass /= mass.sum()
    return np.einsum("a,acd->cd", mass, firsts).ravel(), np.einsum(
        "a,acd->cd", mass, seconds
    ).ravel()


@pytest.mark.slow
def test_moments_are_those_of_enumeration():
    x = 1.3 * np.random.default_rng(0).normal(size=(6, 2))
    model = vcmc.models.GaussianMixture(3, 2, prior_scale=1.5, noise_scale=0.8)
    power = 0.7
    density = Subposterior(model, vcmc.split({"x": x}, 1).load(0), jnp.asarray(power))
    points, _ = MixtureGibbs().run(density, jnp.arange(6.0) - 3, jax.random.key(0), 40_000)
    expected = enumerated_moments(x, 3, 0.64, power / 1.5**2)
    for draws, moments in zip((points, points**2), expected, strict=True):
        effective = array_stats.ess(draws[None], chain_axis=0, draw_axis=1, method="mean")
        assert (effective > 300).all()
        assert (
            np.abs(draws.mean(axis=0) - moments) < 4 * draws.std(axis=0) / np.sqrt(effective)
        ).all()


def test_a_far_outlier_is_no_trouble():
    x = np.concatenate([np.random.default_rng(0).normal(size=(50, 2)), [[1e4, -1e4]]])
    density = Subposterior(
        vcmc.models.GaussianMixture(3, 2), vcmc.split({"x": x}, 1).load(0), jnp.asarray(1.0)
    )
    points, _ = MixtureGibbs().run(density, jnp.arange(6.0), jax.random.key(0), 50)
    assert np.isfinite(points).all()


def test_draws_do_not_depend_on_the_number_of_cores(monkeypatch):
    model = vcmc.models.GaussianMixture(4, 2)
    density = Subposterior(
        model, vcmc.split(model.simulate(0, 80_000).rows, 1).load(0), jnp.asarray(1.0)
    )
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        found.append(
            MixtureGibbs(num_warmup=0).run(density, jnp.arange(8.0), jax.random.key(0), 20).points
        )
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
