"""A logistic regression on an intercept and a covariate that is one in few rows."""

import jax.numpy as jnp
import numpy as np


def log_likelihood(params, rows):
    """Return the log likelihood of every row."""
    logit = params["alpha"] + params["beta"] * rows["x"]
    return rows["y"] * logit - jnp.logaddexp(0.0, logit)


def rare_rows(generator, num_rare, num_rows, num_rare_events) -> dict[str, np.ndarray]:
    """Return a binary outcome with a covariate that is one in few rows."""
    x = (np.arange(num_rows) < num_rare).astype(float)
    y = (generator.random(num_rows) < 0.25).astype(float)
    y[:num_rare] = np.arange(num_rare) < num_rare_events
    return {"x": x, "y": y}
