"""Whether powers of a prior and of the Jacobian fall off, against what is known of densities."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.diagnostics.prior_tails import falls_off, linear_directions

PRIORS = {
    "half-Cauchy": dist.HalfCauchy(1.0),
    "half-normal": dist.HalfNormal(1.0),
    "gamma": dist.Gamma(0.5, 1.0),
    "log-normal": dist.LogNormal(0.0, 1.0),
    "inverse gamma": dist.InverseGamma(1.0, 1.0),
}


def model_of(prior):
    return vcmc.Model(
        {"scale": vcmc.Positive(), "mean": vcmc.Real()},
        lambda params: prior.log_prob(params["scale"]) - 0.5 * params["mean"] ** 2,
        lambda params, rows: rows["y"] * params["mean"],
    )


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("power", [1.0, 0.25])
def test_powers_of_a_proper_density_fall_off(name, power):
    assert falls_off(model_of(PRIORS[name]), (power, power), np.zeros(2), np.eye(2)).all()


@pytest.mark.parametrize(("name", "is_proper"), [("half-Cauchy", False), ("half-normal", True)])
def test_roots_of_heavy_tailed_priors_rise(name, is_proper):
    """The fourth root of a half-Cauchy has no integral; that of a half-normal has."""
    found = falls_off(model_of(PRIORS[name]), (0.25, 1.0), np.zeros(2), np.eye(2))
    np.testing.assert_array_equal(found, [is_proper, True])


def test_a_flat_prior_does_not_fall_off():
    model = vcmc.Model({"mean": vcmc.Real()}, lambda params: 0.0 * params["mean"], lambda p, r: r)
    assert not falls_off(model, (1.0, 1.0), np.zeros(1), np.eye(1)).any()


def model_with_prior(log_prior, *shape):
    return vcmc.Model({"beta": vcmc.Real(*shape)}, log_prior, lambda p, r: r["y"])


def difference(prior):
    return lambda params: prior.log_prob(params["beta"][0] - params["beta"][1])


IMPROPER = {
    "normal difference": (difference(dist.Normal(0, 1e-3)), [1.0, 1.0]),
    "Laplace difference": (difference(dist.Laplace(3, 1)), [1.0, 1.0]),
    "Cauchy difference": (difference(dist.Cauchy(0, 1)), [1.0, 1.0]),
    "autoregression": (
        lambda params: dist.Normal(0, 1).log_prob(params["beta"][1:] - 0.5 * params["beta"][:-1]),
        [1.0, 0.5],
    ),
    "rising sum": (
        lambda params: difference(dist.Normal(0, 1))(params) + params["beta"].sum(),
        [1.0, 1.0],
    ),
}


@pytest.mark.parametrize("name", IMPROPER)
def test_a_prior_that_is_flat_or_linear_along_a_direction_is_found(name):
    log_prior, direction = IMPROPER[name]
    model = model_with_prior(lambda params: jnp.sum(log_prior(params)), 2)
    centre = np.array([0.4, -1.0])
    found = linear_directions(model, centre)
    np.testing.assert_allclose(found * np.sign(found[:, :1]), [direction], atol=1e-8)
    assert not falls_off(model, (1.0, 1.0), centre, found).any()


PROPER = {
    "wide sum": lambda beta: (
        dist.Normal(0, 1e-3).log_prob(beta[0] - beta[1])
        + dist.Normal(0, 1e4).log_prob(beta[0] + beta[1])
    ),
    "units": lambda beta: dist.Normal(0, jnp.array([1e-4, 1e6])).log_prob(beta).sum(),
    "Laplace": lambda beta: dist.Laplace(50, 1).log_prob(beta).sum(),
    "funnel": lambda beta: (
        dist.Normal(0, 3).log_prob(beta[0]) + dist.Normal(0, jnp.exp(beta[0])).log_prob(beta[1])
    ),
    "Cauchy": lambda beta: dist.Cauchy(0, 1).log_prob(beta).sum(),
}


@pytest.mark.parametrize("name", PROPER)
def test_a_proper_prior_falls_off_along_all_directions(name):
    model = model_with_prior(lambda params: PROPER[name](params["beta"]), 2)
    directions = linear_directions(model, np.full(2, 0.3))
    if len(directions):
        assert falls_off(model, (1.0, 1.0), np.full(2, 0.3), directions).all()


def test_units_of_coordinates_do_not_hide_a_flat_direction():
    scales = jnp.array([1e-3, 1e3])

    def log_prior(params):
        beta = params["beta"]
        known = dist.Normal(0, scales).log_prob(beta[:2]).sum()
        return known + dist.Normal(0, 1).log_prob(beta[2] + beta[3])

    found = linear_directions(model_with_prior(log_prior, 4), np.zeros(4))
    np.testing.assert_allclose(found * np.sign(found[:, 2:3]), [[0, 0, 1, -1]], atol=1e-8)
