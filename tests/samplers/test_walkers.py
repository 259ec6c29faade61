"""Walkers: chains cut at any step are the same chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import HMC, Independence


@pytest.mark.parametrize("sampler", [HMC(num_walkers=7), Independence(num_walkers=7)])
def test_a_chain_in_parts_is_the_chain_as_a_whole(sampler, conjugate):
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 1).load(0), jnp.asarray(1.0))
    key = jax.random.key(0)
    state = sampler.init(density, jnp.zeros(3), key)
    _, whole, _ = sampler.advance(density, state, key, 40)
    parts = []
    for count in (3, 20, 17):
        state, points, stats = sampler.advance(density, state, key, count)
        assert len(stats["walker"]) == count
        parts.append(points)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
