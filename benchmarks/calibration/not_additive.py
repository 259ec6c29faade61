"""Log likelihoods that do not add up over rows, so that shards do not multiply to the posterior."""

import jax
import jax.numpy as jnp
import numpy as np
from case import Case
from jax.scipy.stats import norm

import vcmc

NUM_SHARDS = 4

SERIAL = vcmc.Model(
    {"theta": vcmc.Real()},
    lambda params: norm.logpdf(params["theta"]),
    lambda params, rows: norm.logpdf(rows["y"], params["theta"] * jnp.roll(rows["y"], 1)),
)


def _pooled_log_likelihood(params, rows):
    residual = jnp.mean((rows["y"] - params["theta"]) ** 2)
    return -0.5 * jnp.log(residual) * jnp.ones_like(rows["y"])


POOLED = vcmc.Model(
    {"theta": vcmc.Real()}, lambda params: norm.logpdf(params["theta"]), _pooled_log_likelihood
)


def not_additive(seed: int) -> Case:
    """Return an autoregression on the row before, or a scale that all rows share."""
    generator = np.random.default_rng(seed)
    model = SERIAL if seed % 2 else POOLED
    y = generator.normal(size=40) + (0.0 if seed % 2 else 1.0)
    for number in range(1, 40 * (seed % 2)):
        y[number] += 0.8 * y[number - 1]
    log_density = jax.vmap(
        lambda theta: (
            model.log_prior({"theta": theta})
            + jnp.sum(model.log_likelihood({"theta": theta}, {"y": jnp.asarray(y)}))
        )
    )
    grid = np.linspace(-5, 5, 10_001)
    logs = np.asarray(log_density(jnp.asarray(grid)))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    truth = {"theta": (mean, np.sqrt(weights @ (grid - mean) ** 2))}
    return Case(model, {"y": y}, truth, NUM_SHARDS)
