"""Posteriors with a second mode that is far away in the parameter's own units.

The truth is a quadrature on a grid.
"""

import jax.numpy as jnp
import numpy as np
from case import Case
from jax.scipy.stats import norm
from truths import grid_moments

import vcmc

NUM_SHARDS = 4


def _normal_location(location, prior_mean, prior_scale, noise=1.0) -> vcmc.Model:
    """Return rows y ~ N(location(theta), noise²) with a normal prior."""
    return vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: norm.logpdf(params["theta"], prior_mean, prior_scale),
        lambda params, rows: norm.logpdf(rows["y"], location(params["theta"]), noise),
    )


DOSE = _normal_location(lambda dose: 5 - ((dose - 40) / 10) ** 2, 30.0, 20.0)


def dose(seed: int) -> Case:
    """Return a response that two doses, 40 ± 20 or so, explain alike."""
    generator = np.random.default_rng(seed)
    effect = 5 - ((generator.uniform(15, 28) - 40) / 10) ** 2
    rows = {"y": effect + generator.normal(size=100)}
    truth = grid_moments(DOSE, rows, {"theta": np.linspace(-20, 100, 24_001)})
    return Case(DOSE, rows, truth, NUM_SHARDS)


ANGLE = _normal_location(lambda angle: jnp.sin(angle * np.pi / 180), 90.0, 60.0, 0.5)


def angle(seed: int) -> Case:
    """Return an angle of which the sine is measured: 30 or 150 degrees."""
    generator = np.random.default_rng(seed)
    rows = {"y": np.sin(np.radians(generator.uniform(15, 45))) + 0.5 * generator.normal(size=100)}
    truth = grid_moments(ANGLE, rows, {"theta": np.linspace(-600, 800, 28_001)})
    return Case(ANGLE, rows, truth, NUM_SHARDS)


ABSOLUTE = _normal_location(lambda theta: jnp.abs(theta + 5.5), 0.0, 10.0)


def absolute(seed: int) -> Case:
    """Return a distance from -5.5: theta is 1 or -12."""
    generator = np.random.default_rng(seed)
    rows = {"y": generator.uniform(4, 8) + generator.normal(size=100)}
    truth = grid_moments(ABSOLUTE, rows, {"theta": np.linspace(-30, 20, 20_001)})
    return Case(ABSOLUTE, rows, truth, NUM_SHARDS)


CLUSTERS = vcmc.Model(
    {"theta": vcmc.Real()},
    lambda params: norm.logpdf(params["theta"], 100.0, 50.0),
    lambda params, rows: -jnp.log1p((rows["y"] - params["theta"]) ** 2),
)


def clusters(seed: int) -> Case:
    """Return Cauchy rows in two tight clusters of the same size."""
    generator = np.random.default_rng(seed)
    y = np.repeat([100.0, 108.0], 60) + 0.2 * generator.normal(size=120)
    truth = grid_moments(CLUSTERS, {"y": y}, {"theta": np.linspace(90, 118, 14_001)})
    return Case(CLUSTERS, {"y": y}, truth, NUM_SHARDS)
