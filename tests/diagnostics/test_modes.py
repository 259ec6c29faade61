"""Another mode, on mixtures of two Gaussians whose masses are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.modes import other_mode
from vcmc.target import Target

CENTRE = 4.0  # of a mode, in its sds


def target(share):
    """Return a target with modes at ±4, of which the right one holds a share of the mass."""
    log_odds = jnp.log(share) - jnp.log1p(-share)

    def log_likelihood(params, rows):
        theta = params["theta"]
        modes = jnp.stack(
            [log_odds - 0.5 * (theta - CENTRE) ** 2, -0.5 * (theta + CENTRE) ** 2], axis=0
        )
        return rows["y"] * jax.nn.logsumexp(modes)

    model = vcmc.Model({"theta": vcmc.Real()}, lambda params: 0.0 * params["theta"], log_likelihood)
    shards = [vcmc.split({"y": np.ones(1)}, 1).load(0)]
    return Target(model, shards, vcmc.executors.Local())


def draws(centre):
    return centre + np.random.default_rng(0).normal(size=(500, 1))


@pytest.mark.parametrize(("share", "percent"), [(0.5, "50 %"), (0.8, "80 %")])
def test_a_mode_that_the_draws_miss_is_named_with_its_mass(share, percent):
    full = target(share)
    found = other_mode(draws(-CENTRE), full, seed=0)
    message = found.sentence(full.model.space)
    assert f"about {percent} of the mass" in message
    assert "theta = 4.0" in message


def test_a_mode_with_little_mass_is_not_reported():
    assert other_mode(draws(-CENTRE), target(0.001), seed=0) is None


def test_a_single_mode_has_no_other():
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: -0.5 * params["theta"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["theta"]) ** 2,
    )
    shards = [vcmc.split({"y": np.zeros(3)}, 1).load(0)]
    single = Target(model, shards, vcmc.executors.Local())
    assert other_mode(0.5 * draws(0.0), single, seed=0) is None
