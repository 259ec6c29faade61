import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.special import log_ndtr

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import ProbitGibbs, probit_gibbs


@pytest.fixture(params=["cached", "streamed"])
def kernel(request, monkeypatch):
    """Both ways to do a sweep, on the same small shards."""
    if request.param == "streamed":
        monkeypatch.setattr(probit_gibbs, "CACHE_BYTES", 0)
    return request.param


def density_of(rows, prior_power=1.0, prior_scale=1.0):
    model = vcmc.models.Probit(rows["x"].shape[1], prior_scale)
    return Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(prior_power))


def quadrature(rows, precision):
    """First two moments of the posterior of two coefficients, on a fine grid."""
    grid = np.linspace(-12, 12, 801)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    log_density = -0.5 * precision * (first**2 + second**2)
    for x, y in zip(rows["x"], rows["y"], strict=True):
        log_density += log_ndtr((2 * y - 1) * (x[0] * first + x[1] * second))
    mass = np.exp(log_density - log_density.max())
    mass /= mass.sum()
    return np.array([(mass * first).sum(), (mass * second).sum()]), np.array(
        [(mass * first**2).sum(), (mass * second**2).sum()]
    )


@pytest.mark.slow
@pytest.mark.parametrize("prior_power", [1.0, 0.2])
def test_moments_are_those_of_quadrature(kernel, prior_power):
    rows = vcmc.models.Probit(2).simulate(1, 25, {"beta": [1.5, -1.0]}).rows
    sampler = ProbitGibbs(num_warmup=200)
    points, _ = sampler.run(density_of(rows, prior_power), jnp.zeros(2), jax.random.key(0), 12_000)
    for function, expected in zip(
        (np.positive, np.square), quadrature(rows, prior_power), strict=True
    ):
        draws = function(points)
        effective = array_stats.ess(draws[None], chain_axis=0, draw_axis=1)
        assert (
            np.abs(draws.mean(axis=0) - expected) < 4 * draws.std(axis=0) / np.sqrt(effective)
        ).all()


@pytest.mark.slow
def test_single_precision_gives_the_same_posterior(kernel):
    rows = vcmc.models.Probit(8).simulate(2, 2000, {"beta": np.linspace(-0.5, 0.5, 8)}).rows
    draws = [
        ProbitGibbs(single=single)
        .run(density_of(rows), jnp.zeros(8), jax.random.key(seed), 4000)
        .points
        for seed, single in ((0, False), (1, True))
    ]
    effective = [array_stats.ess(points[None], chain_axis=0, draw_axis=1) for points in draws]
    sds = draws[0].std(axis=0)
    error = sds * np.sqrt(1 / effective[0] + 1 / effective[1])
    assert (np.abs(draws[0].mean(axis=0) - draws[1].mean(axis=0)) < 4 * error).all()
    assert (np.abs(draws[1].std(axis=0) - sds) < 4 * error).all()


def test_predictors_of_thirty_on_the_wrong_side_are_no_trouble(kernel):
    """A label contradicts a predictor of 30: its latent value is drawn 30 sds into the tail."""
    x = np.concatenate([np.linspace(0.1, 3, 40), [10.0]])[:, None]
    rows = {"x": x, "y": np.concatenate([np.ones(40), [0.0]])}
    density = density_of(rows, prior_scale=100.0)
    points, _ = ProbitGibbs(num_warmup=0).run(density, jnp.array([3.0]), jax.random.key(0), 300)
    assert np.isfinite(points).all()
    assert np.abs(points[-50:]).max() < 3  # it finds its way back from there


def test_draws_do_not_depend_on_the_number_of_cores(monkeypatch):
    monkeypatch.setattr(probit_gibbs, "CACHE_BYTES", 0)
    rows = vcmc.models.Probit(4).simulate(0, 30_000).rows
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        found.append(
            ProbitGibbs(num_warmup=0)
            .run(density_of(rows), jnp.zeros(4), jax.random.key(0), 20)
            .points
        )
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
