"""Likelihoods with a step, and posteriors that are far from Gaussian.

The truth is a quadrature on a grid.
"""

import jax.numpy as jnp
import numpy as np
from case import Case
from jax.scipy.stats import norm
from rare_covariate import log_likelihood, rare_rows
from truths import grid_moments, mixture_moments

import vcmc

NUM_SHARDS = 4


def _step_log_likelihood(step):
    return lambda params, rows: norm.logpdf(
        rows["y"], jnp.where(rows["t"] > params["change"], step, 0.0)
    )


LARGE_STEP = vcmc.Model(
    {"change": vcmc.Interval(0.0, 1.0)},
    lambda params: 0.0 * params["change"],
    _step_log_likelihood(1.0),
)
SMALL_STEP = vcmc.Model(
    {"change": vcmc.Real()},
    lambda params: norm.logpdf(params["change"]),
    _step_log_likelihood(0.3),
)


def change_point(seed: int) -> Case:
    """Return a level that rises at an unknown time, by 1 or 0.3 sds of the noise."""
    generator = np.random.default_rng(seed)
    if seed % 3 == 0:
        t = (np.arange(200) + 0.5) / 200
        rows = {"t": t, "y": (t > generator.uniform(0.25, 0.75)) + generator.normal(size=200)}
        axes = {"change": np.linspace(0.00005, 0.99995, 10_000)}
        return Case(LARGE_STEP, rows, grid_moments(LARGE_STEP, rows, axes, ("change",)), NUM_SHARDS)
    t = generator.normal(size=100)
    rows = {"t": t, "y": 0.3 * (t > generator.uniform(-1, 1)) + generator.normal(size=100)}
    truth = grid_moments(SMALL_STEP, rows, {"change": np.linspace(-6, 6, 24_001)})
    return Case(SMALL_STEP, rows, truth, 2)


NUM_GROUPS, GROUP_ROWS, GROUP_NOISE = 8, 20, 2.0
MEAN_VARIANCE = GROUP_NOISE**2 / GROUP_ROWS  # of a group's mean of rows


def _funnel_log_prior(params):
    groups = norm.logpdf(params["theta"], params["mu"], params["tau"])
    return norm.logpdf(params["mu"], scale=5.0) - 0.5 * params["tau"] ** 2 + jnp.sum(groups)


FUNNEL = vcmc.Model(
    {"mu": vcmc.Real(), "tau": vcmc.Positive(), "theta": vcmc.Real(NUM_GROUPS)},
    _funnel_log_prior,
    lambda params, rows: norm.logpdf(rows["y"], params["theta"][rows["group"]], GROUP_NOISE),
)


def funnel(seed: int) -> Case:
    """Return a centred hierarchical model with few groups, which differ little.

    Given tau, everything is Gaussian; tau is summed over a grid.
    """
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(NUM_GROUPS), GROUP_ROWS)
    effects = 1.0 + generator.uniform(0.0, 0.5) * generator.normal(size=NUM_GROUPS)
    y = effects[group] + GROUP_NOISE * generator.normal(size=len(group))
    means = y.reshape(NUM_GROUPS, GROUP_ROWS).mean(axis=1)
    tau = np.linspace(0.0005, 6, 12_000)[:, None]
    variance = tau**2 + MEAN_VARIANCE
    precision = NUM_GROUPS / variance + 1 / 25
    mu = means.sum() / variance / precision
    log_weight = (
        -0.5 * tau**2
        - 0.5 * NUM_GROUPS * np.log(variance)
        - 0.5 * (means**2).sum() / variance
        + 0.5 * mu**2 * precision
        - 0.5 * np.log(precision)
    )
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    shrinkage = tau**2 / variance
    theta = shrinkage * means + (1 - shrinkage) * mu
    theta_variance = shrinkage * MEAN_VARIANCE + (1 - shrinkage) ** 2 / precision
    truth = {
        "mu": [moment[0] for moment in mixture_moments(weight, mu, precision**-0.5)],
        "tau": [moment[0] for moment in mixture_moments(weight, tau, 0 * tau)],
        "theta": mixture_moments(weight, theta, np.sqrt(theta_variance)),
    }
    return Case(FUNNEL, {"y": y, "group": group}, truth, NUM_SHARDS)


BANANA = vcmc.Model(
    {"a": vcmc.Real(), "b": vcmc.Real()},
    lambda params: norm.logpdf(params["a"]) + norm.logpdf(params["b"]),
    lambda params, rows: norm.logpdf(rows["y"], params["a"] + params["b"] ** 2),
)


def banana(seed: int) -> Case:
    """Return a sum of a parameter and another one's square."""
    generator = np.random.default_rng(seed)
    rows = {"y": generator.uniform(-0.5, 1.5) + generator.normal(size=100)}
    axes = {"a": np.linspace(-7, 5, 1201), "b": np.linspace(-4, 4, 801)}
    return Case(BANANA, rows, grid_moments(BANANA, rows, axes), NUM_SHARDS)


SEPARATED = vcmc.Model(
    {"alpha": vcmc.Real(), "beta": vcmc.Real()},
    lambda params: norm.logpdf(params["alpha"], scale=3.0) + norm.logpdf(params["beta"], scale=10),
    log_likelihood,
)
SEPARATED_GRID = {"alpha": np.linspace(-4, 1.5, 221), "beta": np.linspace(-15, 60, 1501)}


def separation(seed: int) -> Case:
    """Return rare rows that are all events: every shard separates completely."""
    generator = np.random.default_rng(seed)
    num_rare = int(generator.integers(12, 30))
    rows = rare_rows(generator, num_rare, 400, num_rare)
    return Case(SEPARATED, rows, grid_moments(SEPARATED, rows, SEPARATED_GRID), 2 * NUM_SHARDS)
