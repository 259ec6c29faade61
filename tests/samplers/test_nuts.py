import jax
import jax.numpy as jnp
import numpy as np

import vcmc
from vcmc.model import Subposterior
from vcmc.samplers import NUTS


def test_step_size_and_metric_are_frozen_after_warm_up(conjugate):
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 4).load(0), jnp.asarray(0.25))
    chain = NUTS(num_warmup=200).run(density, jnp.zeros(3), jax.random.key(0), 100)
    assert len(np.unique(chain.stats["step_size"])) == 1
    assert 0.6 < chain.stats["acceptance_rate"].mean() < 0.99


def test_no_warm_up_at_all(conjugate):
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 4).load(0), jnp.asarray(0.25))
    chain = NUTS(num_warmup=0).run(density, jnp.zeros(3), jax.random.key(0), 5)
    assert chain.points.shape == (5, 3)


def test_one_program_serves_all_shards_and_blocks(conjugate):
    from vcmc.samplers.nuts import _advance

    sampler = NUTS(num_warmup=110)
    partition = vcmc.split(conjugate.rows, 10)  # 1 003 rows: uneven shards, padded to one shape
    densities = [Subposterior(conjugate.model, partition.load(k), jnp.asarray(0.1)) for k in range(10)]
    sampler.prepare(densities[0], jnp.zeros(3))
    compiled = _advance._cached._cache_size()
    for density in densities:
        sampler.run(density, jnp.zeros(3), jax.random.key(0), 45)
    assert _advance._cached._cache_size() == compiled
