"""The laws of samplers are those of vcmc.testing; every sampler keeps them."""

from typing import NamedTuple

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc import models, samplers
from vcmc.density import Subposterior
from vcmc.model import Model
from vcmc.testing import check_sampler


class Case(NamedTuple):
    """A sampler, a model that it can sample, and the number of rows of a shard."""

    sampler: samplers.AbstractSampler
    model: Model
    num_rows: int = 60


CASES = {
    "NUTS": Case(samplers.NUTS(num_warmup=120), models.Logistic(3)),
    "NUTS, not whitened": Case(samplers.NUTS(num_warmup=120, whiten=False), models.Logistic(3)),
    "HMC": Case(samplers.HMC(num_warmup=300), models.Logistic(3)),
    "HMC, seven walkers": Case(samplers.HMC(num_warmup=120, num_walkers=7), models.Logistic(3)),
    "Independence": Case(samplers.Independence(), models.Logistic(3)),
    "ProbitGibbs": Case(samplers.ProbitGibbs(num_warmup=20), models.Probit(3)),
    "ProbitGibbs, single": Case(samplers.ProbitGibbs(num_warmup=20, single=True), models.Probit(3)),
    "MixtureGibbs": Case(samplers.MixtureGibbs(num_warmup=20), models.GaussianMixture(3, 2)),
    "MixtureGibbs, ranges": Case(
        samplers.MixtureGibbs(num_warmup=20), models.GaussianMixture(3, 2), 70_000
    ),
    "WishartExact": Case(samplers.WishartExact(), models.NormalWishart(3, mean=np.zeros(3))),
}


def test_every_sampler_is_here(members):
    classes = members(samplers, samplers.AbstractSampler)
    assert classes == {type(case.sampler) for case in CASES.values()}


SLOW_CASES = ("NUTS, not whitened", "HMC, seven walkers", "ProbitGibbs, single")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=pytest.mark.slow if name in SLOW_CASES else ())
        for name, case in CASES.items()
    ],
)
def test_it_keeps_the_laws(case):
    """Moments of many rows take too long, and are those of the same sampler."""
    rows = case.model.simulate(0, case.num_rows).rows
    check_sampler(case.sampler, case.model, rows, num_draws=3000 if case.num_rows < 1000 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [samplers.NUTS(num_warmup=120), samplers.HMC(num_warmup=300)])
def test_moments_on_paper(sampler):
    check_sampler(sampler)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [samplers.NUTS(num_warmup=110), samplers.HMC(num_warmup=110, num_walkers=30)],
    ids=["NUTS", "HMC"],
)
def test_one_program_serves_all_shards(sampler, conjugate):
    partition = vcmc.split(conjugate.rows, 10)  # 1 003 rows: uneven shards, padded to one shape
    densities = [
        Subposterior(conjugate.model, partition.load(k), jnp.asarray(0.1)) for k in range(10)
    ]
    compilations: list[str] = []

    def count(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(event)

    jax.monitoring.register_event_duration_secs_listener(count)
    jax.jit(lambda x: 2 * x)(1.0)
    assert compilations  # they are counted
    sampler.run(densities[0], jnp.zeros(3), jax.random.key(0), 45)
    compilations.clear()
    for density in densities[1:]:
        sampler.run(density, jnp.zeros(3), jax.random.key(0), 45)
    assert not compilations


def test_exact_samplers_refuse_other_models():
    model = models.Logistic(3)
    density = Subposterior(
        model, vcmc.split(model.simulate(0, 60).rows, 1).load(0), jnp.asarray(1.0)
    )
    for sampler in (samplers.ProbitGibbs(), samplers.MixtureGibbs(), samplers.WishartExact()):
        with pytest.raises(TypeError, match=r"needs a vcmc.models.* got Logistic"):
            sampler.run(density, jnp.zeros(3), jax.random.key(0), 10)
