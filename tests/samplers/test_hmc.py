"""Adaptation of many walkers, and when infer chooses HMC; test_laws.py has the laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import HMC, NUTS
from vcmc.samplers.hmc import suits_hmc


@pytest.fixture
def large(monkeypatch):
    """Every shard counts as large."""
    monkeypatch.setattr("vcmc.samplers.hmc.MAX_CACHED_BYTES", 0)


def test_a_normal_density_takes_two_gradients_a_draw_at_most(conjugate):
    mean, covariance = conjugate.posterior(
        vcmc.split(conjugate.rows, 5).members[1], prior_power=0.2
    )
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 5).load(1), jnp.asarray(0.2))
    chain = HMC().run(density, jnp.asarray(mean), jax.random.key(1), 4000)
    assert chain.stats["acceptance_rate"].mean() > 0.8
    assert chain.stats["n_steps"].mean() < 2
    assert not chain.stats["diverging"].any()
    # consecutive draws are of different walkers; those of one walker are nearly independent, but
    # for rejected steps
    gaps = (chain.points.mean(axis=0) - mean) / np.sqrt(np.diag(covariance))
    assert (np.abs(gaps) < 4 / np.sqrt(2000)).all()


def test_walkers_adapt_centre_and_scales(conjugate):
    """From a start three sds away, which the curvature does not reveal."""
    members = vcmc.split(conjugate.rows, 5).members[1]
    mean, covariance = conjugate.posterior(members, prior_power=0.2)
    sds = np.sqrt(np.diag(covariance))
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 5).load(1), jnp.asarray(0.2))
    sampler, key = HMC(num_warmup=600), jax.random.key(0)
    state = sampler.init(density, jnp.asarray(mean + 3 * sds), key)
    for _ in range(6):
        state, _, _ = sampler.advance(density, state, key, 100)
    assert (np.abs(state.centre - mean) < 0.4 * sds).all()
    learned = np.sqrt(np.diag(state.root @ state.root.T)) / sds
    # by 200 draws of ten iterations, whose squares are less than independent
    np.testing.assert_allclose(learned, 1, atol=4 / np.sqrt(100))


@pytest.mark.parametrize("num_warmup", [0, 20, 45])
def test_little_warm_up_or_none(num_warmup, conjugate):
    density = Subposterior(
        conjugate.model, vcmc.split(conjugate.rows, 4).load(0), jnp.asarray(0.25)
    )
    chain = HMC(num_warmup=num_warmup).run(density, jnp.zeros(3), jax.random.key(0), 5)
    assert chain.points.shape == (5, 3)
    assert np.isfinite(chain.points).all()


def test_walkers_that_would_start_outside_of_the_support_start_at_the_start():
    """The density is zero above one, where the curvature at the start suggests half of the mass."""

    def log_likelihood(params, rows):
        return jnp.where(params["mean"] < 1, -0.5 * (rows["y"] - params["mean"]) ** 2, -jnp.inf)

    model = vcmc.Model({"mean": vcmc.Real()}, lambda params: 0.0 * params["mean"], log_likelihood)
    density = Subposterior(model, vcmc.split({"y": np.zeros(1)}, 1).load(0), jnp.asarray(1.0))
    state = HMC().init(density, jnp.asarray([0.9]), jax.random.key(0))
    assert np.isfinite(state.walkers.logdensity).all()
    assert (state.walkers.position == 0).sum() >= 5
    chain = HMC().run(density, jnp.asarray([0.9]), jax.random.key(0), 2000)
    assert chain.points.max() < 1
    # the mean of a standard normal below one is -φ(1) / Φ(1)
    assert abs(chain.points.mean() + 0.24197 / 0.84134) < 4 * 0.8 / np.sqrt(200)


@pytest.mark.slow
def test_infer_chooses_hmc_for_large_and_nearly_gaussian_shards(conjugate, large):
    tree = vcmc.infer(
        conjugate.model, conjugate.rows, num_shards=4, shard_draws=990, progress=False
    )
    assert tree.attrs["sampler"] == "HMC()"
    # draws are grouped by walker
    walkers = tree["sample_stats"]["walker"].values
    assert walkers.shape == (4, 1, 990)
    assert (np.diff(walkers) >= 0).all()
    assert len(np.unique(walkers)) == HMC().num_walkers
    mean, covariance = conjugate.posterior()
    gaps = (tree["posterior"]["beta"].mean(("chain", "draw")) - mean) / np.sqrt(np.diag(covariance))
    assert (np.abs(gaps) < 0.05).all()
    assert tree.attrs["verdict"] == "good"


def test_infer_chooses_nuts_for_other_shards(conjugate, large, monkeypatch):
    partition = vcmc.split(conjugate.rows, 4)
    density = Subposterior(conjugate.model, partition.load(0), jnp.asarray(0.25))
    mode = jnp.asarray(conjugate.posterior(partition.members[0], prior_power=0.25)[0])
    assert suits_hmc(density, mode)
    monkeypatch.setattr("vcmc.samplers.hmc.MAX_CACHED_BYTES", 2**30)
    assert not suits_hmc(density, mode)
    monkeypatch.setattr("vcmc.samplers.hmc.MAX_CACHED_BYTES", 0)
    skewed = vcmc.Model(
        {"log_rate": vcmc.Real()},
        lambda params: 0.0 * params["log_rate"],
        lambda params, rows: rows["y"] * params["log_rate"] - jnp.exp(params["log_rate"]),
    )
    shard = vcmc.split({"y": np.full(4, 0.25)}, 1).load(0)
    assert not suits_hmc(
        Subposterior(skewed, shard, jnp.asarray(1.0)), jnp.log(jnp.asarray([0.25]))
    )


@pytest.mark.slow
def test_resumed_runs_have_the_same_draws(conjugate, tmp_path):
    """In parts that end within an iteration of the walkers, and from blocks of a store."""
    arguments = {
        "num_shards": 3,
        "num_draws": 330,
        "sampler": HMC(num_warmup=150, num_walkers=30),
        "progress": False,
    }
    plain = vcmc.infer(conjugate.model, conjugate.rows, **arguments)
    overlapped = vcmc.infer(
        conjugate.model, conjugate.rows, overlap=True, store=tmp_path, **arguments
    )
    for name in ("tree.npz", "draws/00002-0/00004.npz"):
        (tmp_path / name).unlink()
    unfinished = vcmc.load(tmp_path)
    resumed = vcmc.infer(conjugate.model, conjugate.rows, store=tmp_path, **arguments)
    for tree in (overlapped, resumed):
        np.testing.assert_array_equal(tree["subposterior"]["beta"], plain["subposterior"]["beta"])
    np.testing.assert_array_equal(
        unfinished["subposterior"]["beta"], plain["subposterior"]["beta"][:2]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_warmup": -1}, "num_warmup must be an integer of at least 0; got -1"),
        ({"num_walkers": 0}, "num_walkers must be an integer of at least 1; got 0"),
        ({"num_walkers": 2.5}, "num_walkers must be an integer of at least 1; got 2.5"),
        ({"target_accept": 0.0}, "between 0 and 1; got 0.0"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        HMC(**arguments)


@pytest.mark.slow
def test_hmc_replaces_the_default_of_a_model_for_large_shards(large):
    model = vcmc.models.Logistic(2)
    tree = vcmc.infer(
        model, model.simulate(0, 4000).rows, num_shards=2, shard_draws=400, progress=False
    )
    assert tree.attrs["sampler"] == "HMC()"
    asked = vcmc.infer(
        model,
        model.simulate(0, 4000).rows,
        num_shards=2,
        shard_draws=400,
        sampler=NUTS(),
        progress=False,
    )
    assert asked.attrs["sampler"] == "NUTS()"
    gaps = asked["posterior"].mean(("chain", "draw")) - tree["posterior"].mean(("chain", "draw"))
    sds = asked["posterior"].std(("chain", "draw"))
    assert (np.abs(gaps["beta"] / sds["beta"]) < 0.1).all()
