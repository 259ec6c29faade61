"""Laws of samplers: same key, same draws; neither the length of a run nor of its blocks changes a draw."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats

import vcmc
from vcmc import models, samplers
from vcmc.model import Model, Subposterior
from vcmc.samplers import base


class Case(NamedTuple):
    """A sampler, a model that it can sample, and the number of rows of a shard."""

    sampler: samplers.AbstractSampler
    model: Model
    num_rows: int = 60


CASES = {
    "NUTS": Case(samplers.NUTS(num_warmup=120), models.Logistic(3)),
    "NUTS, not whitened": Case(samplers.NUTS(num_warmup=120, whiten=False), models.Logistic(3)),
    "ProbitGibbs": Case(samplers.ProbitGibbs(num_warmup=20), models.Probit(3)),
    "ProbitGibbs, single": Case(samplers.ProbitGibbs(num_warmup=20, single=True), models.Probit(3)),
    "MixtureGibbs": Case(samplers.MixtureGibbs(num_warmup=20), models.GaussianMixture(3, 2)),
    "MixtureGibbs, ranges": Case(samplers.MixtureGibbs(num_warmup=20), models.GaussianMixture(3, 2), 70_000),
    "WishartExact": Case(samplers.WishartExact(), models.NormalWishart(3, mean=np.zeros(3))),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    return request.param


def density_of(case):
    rows = case.model.simulate(0, case.num_rows).rows
    return Subposterior(case.model, vcmc.split(rows, 1).load(0), jnp.asarray(1.0))


def run(case, num_draws, seed=0, on_block=lambda _: None, thin=1):
    start = 0.1 * jnp.arange(case.model.space.dim)
    return case.sampler.run(density_of(case), start, jax.random.key(seed), num_draws, on_block, thin)


def test_every_sampler_is_here(members):
    classes = members(samplers, samplers.AbstractSampler)
    assert classes == {type(case.sampler) for case in CASES.values()}


def test_same_key_same_draws(case):
    steps = []
    first, again, other = run(case, 130, on_block=steps.append), run(case, 130), run(case, 130, seed=1)
    assert sum(steps) == case.sampler.num_warmup + 130
    assert first.points.shape == (130, case.model.space.dim)
    np.testing.assert_array_equal(first.points, again.points)
    assert (first.points != other.points).all(axis=1).mean() > 0.9
    assert np.isfinite(first.points).all()


def test_a_longer_run_begins_like_a_shorter_one(case):
    short, long = run(case, 30), run(case, 130)
    np.testing.assert_array_equal(short.points, long.points[:30])


def test_thinning_keeps_every_third_draw(case):
    every, some = run(case, 90), run(case, 30, thin=3)
    np.testing.assert_array_equal(some.points, every.points[2::3])
    for name, values in every.stats.items():
        np.testing.assert_array_equal(some.stats[name], values[2::3])


def test_the_length_of_blocks_does_not_matter(case, monkeypatch):
    expected = run(case, 130)
    monkeypatch.setattr(base, "BLOCK", 25)  # the driver's; compiled buffers stay those of 100
    found = run(case, 130)
    np.testing.assert_array_equal(found.points, expected.points)
    for name, values in expected.stats.items():
        np.testing.assert_array_equal(found.stats[name], values)


SMALL = {name: case for name, case in CASES.items() if case.num_rows < 1000}


@pytest.mark.parametrize("case", SMALL.values(), ids=SMALL.keys())
def test_padding_does_not_change_the_posterior(case):
    """The same rows with a hundred rows of padding: the same distribution, by its first two moments."""
    plain = density_of(case)
    rows = {
        name: jnp.concatenate([array, jnp.repeat(array[:1], 100, axis=0)])
        for name, array in plain.shard.rows.items()
    }
    padded = Subposterior(
        case.model,
        vcmc.partition.Shard(rows, jnp.concatenate([plain.shard.weights, jnp.zeros(100)])),
        plain.prior_power,
    )
    start = 0.1 * jnp.arange(case.model.space.dim)
    without, with_padding = (
        case.sampler.run(density, start, jax.random.key(3), 3000).points for density in (plain, padded)
    )
    for function in (lambda points: points, lambda points: points**2):
        one, two = function(without), function(with_padding)
        effective = [array_stats.ess(draws[None], chain_axis=0, draw_axis=1) for draws in (one, two)]
        error = np.sqrt(one.var(axis=0) / effective[0] + two.var(axis=0) / effective[1])
        assert (np.abs(one.mean(axis=0) - two.mean(axis=0)) < 4.5 * error).all()


def test_exact_samplers_refuse_other_models():
    density = density_of(CASES["NUTS"])
    for sampler in (samplers.ProbitGibbs(), samplers.MixtureGibbs(), samplers.WishartExact()):
        with pytest.raises(TypeError, match=r"only; got Logistic"):
            sampler.run(density, jnp.zeros(3), jax.random.key(0), 10)
