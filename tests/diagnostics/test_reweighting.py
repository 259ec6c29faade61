"""Errors by importance sampling, against a skewed density whose moments are known."""

import jax.numpy as jnp
import numpy as np

import vcmc
from vcmc.diagnostics.reweighting import reweighted_errors
from vcmc.target import Target

SHAPE = 6.0  # of a gamma variable, whose logarithm is the parameter


def gamma_target():
    model = vcmc.Model(
        {"rate": vcmc.Positive()},
        lambda params: (SHAPE - 1) * jnp.log(params["rate"]) - params["rate"],
        lambda params, rows: 0.0 * rows["y"],
    )
    return Target(model, [vcmc.split({"y": np.ones(2)}, 1).load(0)], vcmc.executors.Local())


def rates(points):
    return np.exp(np.asarray(points))


def exact(num_draws=20_000):
    return np.log(np.random.default_rng(0).gamma(SHAPE, size=(num_draws, 1)))


def test_exact_draws_have_no_error_beyond_chance():
    errors = reweighted_errors(exact(), gamma_target(), rates, seed=0)
    assert abs(errors.mean[0]) < 4 * errors.mean_se[0]
    assert abs(errors.sd[0]) < 4 * errors.sd_se[0]
    assert errors.mean_se[0] < 0.1


def test_the_error_of_shifted_draws_is_that_of_their_mean():
    shifted = exact() + 0.2
    errors = reweighted_errors(shifted, gamma_target(), rates, seed=0)
    truth = (rates(shifted).mean() - SHAPE) / np.sqrt(SHAPE)
    assert abs(errors.mean[0] - truth) < 4 * errors.mean_se[0]


def test_weights_that_are_too_uneven_give_no_errors():
    assert reweighted_errors(exact() + 5, gamma_target(), rates, seed=0) is None


def test_constants_have_no_errors():
    """Such as the first element of a Cholesky factor of correlations, up to rounding."""

    def with_constant(points):
        return np.column_stack([rates(points), 1 + 1e-16 * rates(points), 0 * rates(points)])

    errors = reweighted_errors(exact(), gamma_target(), with_constant, seed=0)
    assert np.isfinite(np.stack(errors)[:, 0]).all()
    assert np.isnan(np.stack(errors)[:, 1:]).all()
