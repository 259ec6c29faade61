"""Adaptation of many walkers, and when infer chooses HMC; test_laws.py has the laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import HMC, NUTS
from vcmc.samplers.hmc import MAX_NON_NORMALITY
from vcmc.samplers.whitening import non_normality


def test_a_normal_density_takes_two_gradients_a_draw_at_most(conjugate):
    mean, covariance = conjugate.posterior(
        vcmc.split(conjugate.rows, 5).members[1], prior_power=0.2
    )
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 5).load(1), jnp.asarray(0.2))
    chain = HMC().run(density, jnp.asarray(mean), jax.random.key(1), 4000)
    assert chain.stats["acceptance_rate"].mean() > 0.8
    assert chain.stats["n_steps"].mean() <= 2
    assert not chain.stats["diverging"].any()
    # consecutive draws are of different walkers; those of one walker are nearly independent, but
    # for rejected steps
    gaps = (chain.points.mean(axis=0) - mean) / np.sqrt(np.diag(covariance))
    assert (np.abs(gaps) < 4 / np.sqrt(2000)).all()


def test_walkers_start_at_the_normal_approximation_of_their_shard(conjugate):
    """From a start three sds away; for a normal density the approximation is exact."""
    members = vcmc.split(conjugate.rows, 5).members[1]
    mean, covariance = conjugate.posterior(members, prior_power=0.2)
    sds = np.sqrt(np.diag(covariance))
    density = Subposterior(conjugate.model, vcmc.split(conjugate.rows, 5).load(1), jnp.asarray(0.2))
    state = HMC().init(density, jnp.asarray(mean + 3 * sds), jax.random.key(0))
    np.testing.assert_allclose(state.centre, mean, atol=1e-6 * sds.min())
    np.testing.assert_allclose(state.root @ state.root.T, covariance, rtol=1e-6)
    white = np.asarray(state.walkers.position)
    np.testing.assert_allclose(
        state.walkers.logdensity - state.walkers.logdensity.max(),
        -0.5 * (np.sum(white**2, axis=1) - np.min(np.sum(white**2, axis=1))),
        atol=1e-6,
    )


def log_gamma(shape):
    """Return the density of log rates whose gamma posterior has some shape, and its mode."""
    model = vcmc.Model(
        {"log_rate": vcmc.Real(4)},
        lambda params: 0.0 * jnp.sum(params["log_rate"]),
        lambda params, rows: jnp.sum(
            rows["y"] * params["log_rate"] - jnp.exp(params["log_rate"]), axis=-1
        ),
    )
    shard = vcmc.split({"y": np.full((1, 4), shape)}, 1).load(0)
    return Subposterior(model, shard, jnp.asarray(1.0)), jnp.full(4, np.log(shape))


def test_a_long_warm_up_adapts_centre_and_scales_to_a_skewed_density():
    """The curvature at the mode suggests other ones."""
    density, mode = log_gamma(3.0)
    sampler, key = HMC(num_warmup=960), jax.random.key(0)
    state = sampler.init(density, mode, key)
    for _ in range(10):
        state, _, _ = sampler.advance(density, state, key, 96)
    mean, sd = digamma(3.0), np.sqrt(polygamma(1, 3.0))
    # by 320 draws of four coordinates, less than independent; the mode is 0.28 sd away
    np.testing.assert_allclose(state.centre, mean, atol=0.2 * sd)
    assert abs(np.mean(state.centre) - mean) < 0.1 * sd < mode[0] - mean
    np.testing.assert_allclose(np.linalg.norm(state.root, axis=1) / sd, 1, atol=4 / np.sqrt(320))


@pytest.mark.parametrize("num_draws", [64, 100])
def test_short_chains_after_the_default_warm_up_have_right_moments(num_draws):
    """Pooled over forty chains of skewed shards, from the mode of other rows."""
    density, mode = log_gamma(20.0)
    points = np.stack(
        [
            HMC().run(density, mode + 0.2, jax.random.key(seed), num_draws).points
            for seed in range(40)
        ]
    )
    mean, sd = digamma(20.0), np.sqrt(polygamma(1, 20.0))
    errors = (points.mean(axis=(0, 1)) - mean) / sd
    # at least half as precise as independent draws, by measurement
    count = 40 * num_draws / 2
    assert (np.abs(errors) < 4 / np.sqrt(count)).all()
    assert abs(errors.mean()) < 4 / np.sqrt(4 * count)
    scales = points.std(axis=(0, 1)) / sd
    assert (np.abs(scales - 1) < 4 / np.sqrt(2 * count / 2)).all()


@pytest.mark.parametrize("num_warmup", [0, 20, 45])
def test_little_warm_up_or_none(num_warmup, conjugate):
    density = Subposterior(
        conjugate.model, vcmc.split(conjugate.rows, 4).load(0), jnp.asarray(0.25)
    )
    chain = HMC(num_warmup=num_warmup).run(density, jnp.zeros(3), jax.random.key(0), 5)
    assert chain.points.shape == (5, 3)
    assert np.isfinite(chain.points).all()


def test_walkers_that_would_start_outside_of_the_support_start_at_the_centre():
    """The density is zero above one, where the curvature suggests a sixth of the mass."""

    def log_likelihood(params, rows):
        return jnp.where(params["mean"] < 1, -0.5 * (rows["y"] - params["mean"]) ** 2, -jnp.inf)

    model = vcmc.Model({"mean": vcmc.Real()}, lambda params: 0.0 * params["mean"], log_likelihood)
    density = Subposterior(model, vcmc.split({"y": np.zeros(1)}, 1).load(0), jnp.asarray(1.0))
    state = HMC().init(density, jnp.asarray([0.9]), jax.random.key(0))
    assert np.isfinite(state.walkers.logdensity).all()
    assert (state.walkers.position == 0).sum() >= 1
    chain = HMC().run(density, jnp.asarray([0.9]), jax.random.key(0), 2000)
    assert chain.points.max() < 1
    # the mean of a standard normal below one is -φ(1) / Φ(1)
    assert abs(chain.points.mean() + 0.24197 / 0.84134) < 4 * 0.8 / np.sqrt(200)


@pytest.mark.slow
def test_infer_chooses_hmc_for_nearly_gaussian_shards(conjugate):
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


def test_skewed_shards_are_not_for_hmc(conjugate):
    partition = vcmc.split(conjugate.rows, 4)
    density = Subposterior(conjugate.model, partition.load(0), jnp.asarray(0.25))
    mode = jnp.asarray(conjugate.posterior(partition.members[0], prior_power=0.25)[0])
    assert non_normality(density, mode) < 1e-6
    assert non_normality(*log_gamma(40.0)) < MAX_NON_NORMALITY
    assert non_normality(*log_gamma(3.0)) > MAX_NON_NORMALITY


@pytest.mark.slow
def test_resumed_runs_have_the_same_draws(conjugate, tmp_path):
    """In parts that end within an iteration of the walkers, and from blocks of a store."""
    arguments = {
        "num_shards": 3,
        "shard_draws": 330,
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
def test_hmc_replaces_the_default_of_a_model_for_nearly_gaussian_shards():
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
