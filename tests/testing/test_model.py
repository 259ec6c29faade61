"""check_model finds planted faults and names the broken law; vcmc's own models pass elsewhere."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.testing import LawError, check_model

ROWS = {
    "x": np.random.default_rng(0).normal(size=40),
    "y": np.random.default_rng(1).normal(size=40),
}


def log_prior(params):
    return -0.5 * params["slope"] ** 2


def log_likelihood(params, rows):
    return -0.5 * (rows["y"] - params["slope"] * rows["x"]) ** 2


def log_density(params, rows):
    slope, rows = float(params["slope"]), {name: np.asarray(array) for name, array in rows.items()}
    return -0.5 * slope**2 - 0.5 * np.sum((rows["y"] - slope * rows["x"]) ** 2)


def model(log_likelihood=log_likelihood, log_prior=log_prior):
    return vcmc.Model({"slope": vcmc.Real()}, log_prior, log_likelihood)


def summed(params, rows):
    return jnp.sum(log_likelihood(params, rows))


def branching(params, rows):
    return log_likelihood(params, rows) if params["slope"] > -9 else jnp.zeros(len(rows["y"]))


def shortcut(params, rows):
    """Something is added where all rows are at hand."""
    return log_likelihood(params, rows) + (len(rows["y"]) == 39)


def flat(params, rows):
    return log_likelihood(jax.lax.stop_gradient(params), rows)


def misnamed(params, rows):
    return log_likelihood(params, {"x": rows["covariate"], "y": rows["y"]})


def underflowing(params, rows):
    return jnp.log(jax.scipy.stats.norm.cdf(50 * log_likelihood(params, rows)))


counter = itertools.count()


def counting(params, rows):
    return log_likelihood(params, rows) + next(counter)


FAULTS = {
    "summed over rows": (
        summed,
        r"log_likelihood returns one value per row. Expected shape \(39,\); got shape \(\)",
    ),
    "an if on values": (branching, r"jax.jit and jax.vmap.*got TracerBoolConversionError"),
    "otherwise for all rows": (
        shortcut,
        r"the log densities of 4 shards.* 1/4, sum to that of all rows",
    ),
    "no gradient": (flat, "scores are gradients, by finite differences"),
    "a name that rows do not have": (misnamed, "can be called.*KeyError: 'covariate'"),
    "underflow": (underflowing, "log density and score are finite"),
    "a state": (counting, "two calls give the same values"),
}


@pytest.mark.parametrize(("fault", "law"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_of_a_likelihood_are_found(fault, law, broken):
    with broken(law):
        check_model(model(fault), ROWS)


def test_a_right_model_passes():
    check_model(model(), ROWS, log_density=log_density)


def test_a_prior_in_every_row_is_found():
    """Each row has its share of the prior, which is one of the ways to temper it by hand."""

    def shares(params, rows):
        return log_likelihood(params, rows) + log_prior(params) / len(rows["y"])

    with pytest.raises(
        LawError,
        match=r"breaks a law: it can be sharded. the shards' log likelihoods must add up "
        r"to the full one, but they do not",
    ):
        check_model(model(shares), ROWS)


def test_a_prior_tempered_by_hand_is_found(broken):
    """Only what the model is meant to be can tell."""
    tempered = model(log_prior=lambda params: log_prior(params) / 4)
    check_model(tempered, ROWS)
    with broken("prior times likelihood equals the density that log_density computes"):
        check_model(tempered, ROWS, log_density=log_density)


def test_a_prior_of_many_numbers_is_found(broken):
    with broken(r"log_prior returns a single number. Expected shape \(\); got shape \(1,\)"):
        check_model(model(log_prior=lambda params: log_prior(params)[None]), ROWS)


def test_points_must_be_points():
    with pytest.raises(
        ValueError, match=r"points must be two or more, of 1 coordinates; got shape \(3, 2\)"
    ):
        check_model(model(), ROWS, points=jnp.zeros((3, 2)))
