"""A model with an old posterior as its prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.data.shard import Shard
from vcmc.density import Subposterior
from vcmc.models.surrogate import Surrogate
from vcmc.models.surrogate_prior import SurrogateModel


def some_surrogate(dim):
    draws = np.random.default_rng(0).normal(size=(500, dim))
    return Surrogate.fitted(draws, 500.0)


def test_shards_add_up_to_the_old_posterior_and_the_new_rows():
    model = SurrogateModel(vcmc.models.Logistic(2), some_surrogate(2))
    generator = np.random.default_rng(1)
    rows = {"x": generator.normal(size=(30, 2)), "y": generator.integers(0, 2, 30).astype(float)}
    point = jnp.array([0.3, -0.2])
    parts = [
        Shard({name: values[part] for name, values in rows.items()}, np.ones(15))
        for part in (slice(0, 15), slice(15, 30))
    ]
    total = sum(Subposterior(model, shard, jnp.asarray(0.5))(point) for shard in parts)
    likelihood = model.base.log_likelihood(model.space.constrain(point), rows).sum()
    old = model.surrogate.evaluate(np.asarray(point)[None])[1][0]
    np.testing.assert_allclose(total, old + likelihood, rtol=1e-12)
    np.testing.assert_allclose(model.log_prior_parts_at(point), [old, 0.0], rtol=1e-12)


def test_gradients_are_finite_far_from_the_old_draws():
    draws = np.log(np.random.default_rng(2).gamma(1.0, size=(2000, 2)))
    surrogate = Surrogate.fitted(draws, 2000.0)
    model = SurrogateModel(vcmc.models.Logistic(2), surrogate)
    for distance in (1e-3, 10.0, 1e3):
        score = jax.grad(model.log_prior_at)(jnp.full(2, distance))
        assert np.isfinite(np.asarray(score)).all()


def test_the_sampler_of_the_model_is_not_used():
    model = SurrogateModel(vcmc.models.Probit(2), some_surrogate(2))
    assert model.exact_sampler is None
    assert model.suited_sampler([]) is None
    assert repr(model) == repr(vcmc.models.Probit(2))


def test_exchangeable_components_are_refused():
    model = vcmc.models.GaussianMixture(2, 1)
    with pytest.raises(vcmc.ModelError, match="rows="):
        SurrogateModel(model, some_surrogate(model.space.dim))


def test_a_model_with_point_estimates_is_refused():
    model = SurrogateModel(vcmc.models.NormalWishart(2), some_surrogate(3))
    shard = Shard({"x": np.random.default_rng(3).normal(size=(20, 2))}, np.ones(20))
    with pytest.raises(vcmc.ModelError, match="estimates some parameters"):
        model.fitted([shard])
