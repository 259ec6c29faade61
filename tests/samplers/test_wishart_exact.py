"""Draws agree with the closed form in tests/models/test_normal_wishart.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import WishartExact
from vcmc.samplers.wishart_exact import Bartlett, Wishart


def test_draws_of_bartlett_have_the_mean_of_the_wishart():
    scale = np.array([[2.0, 0.5], [0.5, 1.0]])
    wishart = Wishart(jnp.asarray(7.0), jnp.asarray(np.linalg.inv(scale)))
    np.testing.assert_allclose(wishart.scale, scale, rtol=1e-12)
    bartlett = Bartlett(jnp.linalg.cholesky(wishart.scale), wishart.dof - jnp.arange(2.0))
    factors = jax.vmap(bartlett.draw)(jax.random.split(jax.random.key(0), 4000))
    assert (factors[:, 0, 1] == 0).all()
    matrices = np.asarray(factors @ factors.swapaxes(1, 2))
    variances = 7 * (scale**2 + np.outer(np.diag(scale), np.diag(scale)))
    error = np.abs(matrices.mean(axis=0) - 7 * scale) / np.sqrt(variances / 4000)
    assert (error < 4).all()


def density_of(model, rows, power=1.0):
    return Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(power))


def test_draws_do_not_depend_on_the_length_of_calls():
    model = vcmc.models.NormalWishart(2, mean=np.zeros(2))
    sampler, key = WishartExact(), jax.random.key(0)
    setup = sampler.setup(density_of(model, model.simulate(0, 30).rows))
    state = sampler.init(setup, jnp.zeros(3), key)
    _, whole, _ = sampler.advance(setup, state, key, 100)
    state, first, _ = sampler.advance(setup, state, key, 37)
    _, second, _ = sampler.advance(setup, state, key, 63)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


def test_other_models_are_refused(conjugate):
    with pytest.raises(TypeError, match=r"needs a vcmc\.models\.NormalWishart; got Model\(beta"):
        WishartExact().setup(density_of(conjugate.model, conjugate.rows))
