import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from arviz_stats.base import array_stats

import vcmc
from vcmc.samplers import NUTS


@pytest.fixture(scope="module")
def mixture():
    model = vcmc.models.GaussianMixture(3, 2)
    centres = np.array([[-3.0, 0.0], [0.0, 2.0], [3.0, -1.0]])
    return model, model.simulate(0, 600, {"centres": centres}).rows, centres


def test_the_log_density_is_numpyros(mixture):
    model, rows, centres = mixture
    params = {"centres": jnp.asarray(centres + 0.3)}
    component = dist.Normal(params["centres"], 1.0).to_event(1)
    expected = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), component).log_prob(
        rows["x"]
    )
    np.testing.assert_allclose(model.log_likelihood(params, rows), expected, rtol=1e-10)
    prior = dist.Normal(0, 2).log_prob(params["centres"]).sum()
    np.testing.assert_allclose(model.log_prior(params), prior, rtol=1e-12)


@pytest.mark.slow
def test_gibbs_and_nuts_give_the_same_posterior(mixture):
    model, rows, _ = mixture
    points = rows["x"][:20]
    found = []
    for sampler in (None, NUTS()):
        tree = vcmc.infer(model, rows, num_shards=1, shard_draws=2000, sampler=sampler)
        centres = jnp.asarray(np.concatenate(tree["posterior"]["centres"].to_numpy()))
        together = np.asarray(
            jax.vmap(lambda c: model.test_functions({"centres": c}, points)["comembership"])(
                centres
            )
        )
        found.append(np.concatenate([np.sort(centres[:, :, 0], axis=1), together], axis=1))
    effective = [array_stats.ess(draws[None], chain_axis=0, draw_axis=1) for draws in found]
    sds = found[0].std(axis=0)
    keep = sds > 1e-6  # many pairs are apart or together beyond doubt
    error = sds * np.sqrt(1 / effective[0] + 1 / effective[1])
    gap = np.abs(found[0].mean(axis=0) - found[1].mean(axis=0))
    assert (gap < 4.5 * error)[keep].all()


@pytest.mark.slow
def test_the_start_finds_every_component():
    model = vcmc.models.GaussianMixture(8, 8)
    params, rows = model.simulate(0, 4000)
    tree = vcmc.infer(model, rows, num_shards=4, shard_draws=500)
    centres = tree["subposterior"]["centres"].mean(("chain", "draw")).to_numpy()
    for shard in centres:
        distances = np.linalg.norm(shard[:, None] - params["centres"], axis=2)
        assert (distances.min(axis=0) < 0.5).all()
    np.testing.assert_allclose(
        centres, np.broadcast_to(centres[0], centres.shape), atol=0.6
    )  # same labels


def test_comembership_is_a_probability_and_does_not_see_labels(mixture):
    model, rows, centres = mixture
    together = model.comembership({"centres": jnp.asarray(centres)}, rows["x"][:50])
    relabelled = model.comembership({"centres": jnp.asarray(centres[[2, 0, 1]])}, rows["x"][:50])
    np.testing.assert_allclose(together, relabelled, rtol=1e-10)
    assert ((together > 0) & (together <= 1 + 1e-12)).all()
    np.testing.assert_allclose(together, together.T)


def test_scales_must_be_positive():
    with pytest.raises(ValueError, match=r"must be positive; got 2.0 and -1"):
        vcmc.models.GaussianMixture(3, 2, noise_scale=-1)
