"""Priors with a spike and a slab, or with heavy tails, of which draws may show one part only.

The truth is a closed form, or a quadrature on a grid.
"""

import jax.numpy as jnp
import numpy as np
from case import Case
from jax.scipy.stats import norm
from rare_covariate import log_likelihood, rare_rows
from truths import grid_moments, mixture_moments

import vcmc

NUM_SHARDS = 4

SPIKE, SLAB = 0.1, 3.0
SPIKE_WEIGHTS = np.array([0.3, 0.4, 0.5])


def _log_spike_slab(value, weight):
    return jnp.logaddexp(
        jnp.log(weight) + norm.logpdf(value, scale=SPIKE),
        jnp.log1p(-weight) + norm.logpdf(value, scale=SLAB),
    )


def _normal_means(spike_weights) -> vcmc.Model:
    return vcmc.Model(
        {"theta": vcmc.Real(len(spike_weights))},
        lambda params: jnp.sum(_log_spike_slab(params["theta"], spike_weights)),
        lambda params, rows: jnp.sum(norm.logpdf(rows["y"], params["theta"], 3.0), axis=1),
    )


MEANS, MEAN = _normal_means(SPIKE_WEIGHTS), _normal_means(SPIKE_WEIGHTS[1:2])


def spike_slab(seed: int) -> Case:
    """Return one or three normal means that the spike and the slab may both explain."""
    generator = np.random.default_rng(seed)
    model, spike_weights = (MEAN, SPIKE_WEIGHTS[1:2]) if seed % 2 else (MEANS, SPIKE_WEIGHTS)
    num_rows, dim = 40, len(spike_weights)
    error = 9 / num_rows
    y = 3 * generator.normal(size=(num_rows, dim))
    mean = np.sqrt(error) * generator.uniform(-2.5, 2.5, size=dim)
    y += mean - y.mean(axis=0)
    variances = np.array([[SPIKE**2], [SLAB**2]])
    weights = np.stack([spike_weights, 1 - spike_weights]) * np.asarray(
        norm.pdf(mean, scale=np.sqrt(variances + error))
    )
    shrinkage = variances / (variances + error) * np.ones(dim)
    truth = mixture_moments(weights / weights.sum(0), shrinkage * mean, np.sqrt(shrinkage * error))
    return Case(model, {"y": y}, {"theta": truth}, NUM_SHARDS)


RARE_SLAB = vcmc.Model(
    {"alpha": vcmc.Real(), "beta": vcmc.Real()},
    lambda params: norm.logpdf(params["alpha"], scale=3.0) + _log_spike_slab(params["beta"], 0.4),
    log_likelihood,
)
LOGISTIC_GRID = {"alpha": np.linspace(-4, 1.5, 221), "beta": np.linspace(-14, 14, 2801)}


def spike_slab_logistic(seed: int) -> Case:
    """Return a logistic regression on a rare covariate with a spike-and-slab prior."""
    generator = np.random.default_rng(seed)
    num_rare = 20 if seed % 2 else 40
    rows = rare_rows(generator, num_rare, 400, generator.integers(num_rare // 8, num_rare // 2))
    return Case(RARE_SLAB, rows, grid_moments(RARE_SLAB, rows, LOGISTIC_GRID), NUM_SHARDS)


CAUCHY = vcmc.Model(
    {"theta": vcmc.Real()},
    lambda params: -jnp.log1p(params["theta"] ** 2),
    lambda params, rows: norm.logpdf(rows["y"], params["theta"], 20.0),
)
STUDENT = vcmc.Model(
    {"a": vcmc.Real(), "b": vcmc.Real()},
    lambda params: -1.5 * (jnp.log1p(params["a"] ** 2 / 2) + jnp.log1p(params["b"] ** 2 / 2)),
    lambda params, rows: norm.logpdf(
        rows["y"], params["a"] * rows["x"] + params["b"] * rows["z"], 20.0
    ),
)


def heavy_tails(seed: int) -> Case:
    """Return a Cauchy prior of a mean, or Student t priors of two coefficients, and weak data."""
    generator = np.random.default_rng(seed)
    noise = 20.0 * generator.normal(size=40)
    if seed % 2:
        rows = {"y": noise - noise.mean() + generator.uniform(0, 6)}
        truth = grid_moments(CAUCHY, rows, {"theta": np.linspace(-40, 50, 18_001)})
        return Case(CAUCHY, rows, truth, NUM_SHARDS)
    x, z = generator.normal(size=(2, 40))
    rows = {"y": x * generator.uniform(0, 4) + noise, "x": x, "z": z}
    grid = np.linspace(-45, 45, 601)
    return Case(STUDENT, rows, grid_moments(STUDENT, rows, {"a": grid, "b": grid}), NUM_SHARDS)
