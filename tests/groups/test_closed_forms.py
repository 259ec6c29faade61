"""Normal groups from rows to draws: against the closed form, and against quadrature.

Given the scales, everything is normal. So with known variances all posteriors are normal, and with
unknown ones they are mixtures of normals, whose weights are found on a grid of the two scales.
"""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

import vcmc

NUM_GROUPS = 50
PRIOR_SD = 2.0
TAU, SIGMA = 0.5, 0.8
ROUNDING = 1e-6  # of errors, and of quantiles on the grid


class Mixture:
    """A mixture of normals."""

    def __init__(self, weights, means, variances):
        self.weights, self.means, self.sds = weights, means, np.sqrt(variances)
        self.mean = np.sum(weights * means)
        self.sd = np.sqrt(np.sum(weights * (variances + (means - self.mean) ** 2)))

    def quantile(self, level):
        ends = self.mean - 8 * self.sd, self.mean + 8 * self.sd
        return brentq(lambda value: self.share_below(value)[0] - level, *ends)

    def share_below(self, value):
        return np.sum(self.weights * norm.cdf(value, self.means, self.sds)), 0.0


def simulated():
    generator = np.random.default_rng(1)
    sizes = generator.integers(1, 12, NUM_GROUPS)
    group = generator.permutation(np.repeat(np.arange(NUM_GROUPS), sizes))
    alpha = 1 + TAU * generator.normal(size=NUM_GROUPS)
    return {"group": group, "y": alpha[group] + SIGMA * generator.normal(size=len(group))}


ROWS = simulated()


def truths(tau, sigma):
    """Return the posterior of mu, of both scales and of every alpha, given a grid of scales.

    With one point of the grid, the scales are known.
    """
    counts = np.bincount(ROWS["group"])
    means = np.bincount(ROWS["group"], ROWS["y"]) / counts
    squares = np.bincount(ROWS["group"], (ROWS["y"] - means[ROWS["group"]]) ** 2)
    tau, sigma = np.meshgrid(tau, sigma, indexing="ij")
    log_weights = -0.5 * (tau**2 + sigma**2)  # half-normal priors
    precision, weighted = np.full(tau.shape, PRIOR_SD**-2), np.zeros(tau.shape)
    for count, mean, square in zip(counts, means, squares, strict=True):
        variance = tau**2 + sigma**2 / count  # of the mean of the group's rows
        log_weights -= (count - 1) * np.log(sigma) + 0.5 * square / sigma**2
        log_weights -= 0.5 * np.log(variance) + 0.5 * mean**2 / variance
        precision += 1 / variance
        weighted += mean / variance
    log_weights += 0.5 * weighted**2 / precision - 0.5 * np.log(precision)
    weights = np.exp(log_weights - logsumexp(log_weights))
    found = {"mu": Mixture(weights, weighted / precision, 1 / precision)}
    for name, value, axis in (("tau", tau, 0), ("sigma", sigma, 1)):
        if tau.size > 1:  # spread over the cells of the grid
            cell = np.diff(value, axis=axis).max()
            found[name] = Mixture(weights, value, np.full(value.shape, cell**2 / 12))
    for number, (count, mean) in enumerate(zip(counts, means, strict=True)):
        local = 1 / tau**2 + count / sigma**2
        share = 1 / tau**2 / local  # of mu in the mean of alpha
        centre = share * weighted / precision + (1 - share) * mean
        found[f"alpha[{number}]"] = Mixture(weights, centre, 1 / local + share**2 / precision)
    return found


def log_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)


def model_of(*scales):
    """Return the model with unknown scales of these names."""
    known = {"tau": TAU, "sigma": SIGMA}
    return vcmc.Model(
        space={"mu": vcmc.Real()} | {name: vcmc.Positive() for name in scales},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: (
            -0.5 * (params["mu"] / PRIOR_SD) ** 2 - 0.5 * sum(params[name] ** 2 for name in scales)
        ),
        log_local_prior=lambda params, local, group: log_normal(
            local["alpha"], params["mu"], (known | dict(params))["tau"]
        ),
        log_likelihood=lambda params, local, rows: log_normal(
            rows["y"], local["alpha"], (known | dict(params))["sigma"]
        ),
        groups="group",
    )


CASES = {
    "known": (model_of(), truths(np.array([TAU]), np.array([SIGMA]))),
    "unknown": (
        model_of("tau", "sigma"),
        truths(np.linspace(0.05, 1.3, 500), np.linspace(0.6, 1.1, 500)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_shard_has_the_exact_posterior_of_globals_and_locals(name, monte_carlo, assert_same):
    model, truth = CASES[name]
    posterior = vcmc.infer(model, ROWS, num_shards=1, progress=False)["posterior"]
    for label, mixture in truth.items():
        parameter, _, index = label.rstrip("]").partition("[")
        draws = posterior[parameter].to_numpy()
        draws = draws[..., int(index)] if index else draws
        assert_same(monte_carlo(draws), mixture, label)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_errors_that_shards_report_are_those_that_they_have(name):
    """With 17 groups each, the posterior of a scale is skewed in every shard."""
    model, truth = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        tree = vcmc.infer(model, ROWS, num_shards=3, progress=False)
    largest = 0.0
    for parameter in model.space:
        draws, exact = tree["posterior"][parameter].to_numpy(), truth[parameter]
        errors = {
            "mean": (draws.mean() - exact.mean) / exact.sd,
            "sd": draws.std() / exact.sd - 1,
            "q05": (np.quantile(draws, 0.05) - exact.quantile(0.05)) / exact.sd,
            "q95": (np.quantile(draws, 0.95) - exact.quantile(0.95)) / exact.sd,
        }
        for statistic, error in errors.items():
            reported = float(tree[f"{statistic}_error"][parameter])
            se = float(tree[f"{statistic}_error_se"][parameter])
            assert abs(error - reported) < 4 * se + ROUNDING, (parameter, statistic)
        largest = max(largest, abs(errors["mean"]), abs(errors["sd"]))
    # what a global parameter is off by moves a local one by less, in its own sds
    local = np.concatenate(tree["posterior"]["alpha"].to_numpy())
    for number in range(NUM_GROUPS):
        exact = truth[f"alpha[{number}]"]
        assert abs(local[:, number].mean() - exact.mean) < (largest + 4.5 / 5000**0.5) * exact.sd
        assert abs(local[:, number].std() / exact.sd - 1) < largest + 4.5 / 10_000**0.5
