"""Whether powers of a prior and of the Jacobian fall off, against what is known of densities."""

import numpy as np
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.diagnostics.prior_tails import falls_off

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
