"""Posteriors that chains on shards, or an affine combination of their draws, get wrong.

Every kind is a function from a seed to a case, whose truth is a quadrature on a grid or a closed
form. Models are shared by the seeds of a kind.
"""

import jax
import jax.numpy as jnp
import numpy as np
from case import Case
from jax.scipy.stats import norm
from truths import grid_moments, mixture_moments

import vcmc

NUM_SHARDS = 4


def _model(space, log_prior, log_likelihood) -> vcmc.Model:
    return vcmc.Model(space=space, log_prior=log_prior, log_likelihood=log_likelihood)


def _normal_location(location, prior_mean, prior_scale, noise=1.0) -> vcmc.Model:
    """Return rows y ~ N(location(theta), noise²) with a normal prior."""
    return _model(
        {"theta": vcmc.Real()},
        lambda params: norm.logpdf(params["theta"], prior_mean, prior_scale),
        lambda params, rows: norm.logpdf(rows["y"], location(params["theta"]), noise),
    )


# A second mode, far away in the parameter's own units.

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


CLUSTERS = _model(
    {"theta": vcmc.Real()},
    lambda params: norm.logpdf(params["theta"], 100.0, 50.0),
    lambda params, rows: -jnp.log1p((rows["y"] - params["theta"]) ** 2),
)


def clusters(seed: int) -> Case:
    """Return Cauchy rows in two clusters of the same size."""
    generator = np.random.default_rng(seed)
    y = np.repeat([100.0, 108.0], 20) + 0.5 * generator.normal(size=40)
    truth = grid_moments(CLUSTERS, {"y": y}, {"theta": np.linspace(90, 118, 14_001)})
    return Case(CLUSTERS, {"y": y}, truth, NUM_SHARDS)


# Priors with a spike and a slab, and with heavy tails.

SPIKE, SLAB = 0.1, 3.0
SPIKE_WEIGHTS = np.array([0.3, 0.4, 0.5])


def _log_spike_slab(value, weight):
    return jnp.logaddexp(
        jnp.log(weight) + norm.logpdf(value, scale=SPIKE),
        jnp.log1p(-weight) + norm.logpdf(value, scale=SLAB),
    )


MEANS = _model(
    {"theta": vcmc.Real(3)},
    lambda params: jnp.sum(_log_spike_slab(params["theta"], SPIKE_WEIGHTS)),
    lambda params, rows: jnp.sum(norm.logpdf(rows["y"], params["theta"]), axis=1),
)


def spike_slab(seed: int) -> Case:
    """Return three normal means that the spike and the slab explain about equally well."""
    generator = np.random.default_rng(seed)
    num_rows = 40
    y = generator.normal(size=(num_rows, 3))
    mean = generator.choice([-1, 1], size=3) * generator.uniform(0.3, 0.55, size=3)
    y += mean - y.mean(axis=0)
    variances, error = np.array([[SPIKE**2], [SLAB**2]]), 1 / num_rows
    weights = np.stack([SPIKE_WEIGHTS, 1 - SPIKE_WEIGHTS]) * np.asarray(
        norm.pdf(mean, scale=np.sqrt(variances + error))
    )
    shrinkage = variances / (variances + error) * np.ones(3)
    truth = mixture_moments(weights / weights.sum(0), shrinkage * mean, np.sqrt(shrinkage * error))
    return Case(MEANS, {"y": y}, {"theta": truth}, NUM_SHARDS)


def _logistic_log_likelihood(params, rows):
    logit = params["alpha"] + params["beta"] * rows["x"]
    return rows["y"] * logit - jnp.logaddexp(0.0, logit)


RARE_SLAB = _model(
    {"alpha": vcmc.Real(), "beta": vcmc.Real()},
    lambda params: norm.logpdf(params["alpha"], scale=3.0) + _log_spike_slab(params["beta"], 0.4),
    _logistic_log_likelihood,
)
LOGISTIC_GRID = {"alpha": np.linspace(-4, 1.5, 221), "beta": np.linspace(-14, 14, 2801)}


def _rare_rows(generator, num_rare, num_rows, num_rare_events) -> dict[str, np.ndarray]:
    """Return a binary outcome with a covariate that is one in few rows."""
    x = (np.arange(num_rows) < num_rare).astype(float)
    y = (generator.random(num_rows) < 0.25).astype(float)
    y[:num_rare] = np.arange(num_rare) < num_rare_events
    return {"x": x, "y": y}


def spike_slab_logistic(seed: int) -> Case:
    """Return a logistic regression on a rare covariate with a spike-and-slab prior."""
    generator = np.random.default_rng(seed)
    rows = _rare_rows(generator, 20, 400, generator.integers(7, 11))
    return Case(RARE_SLAB, rows, grid_moments(RARE_SLAB, rows, LOGISTIC_GRID), NUM_SHARDS)


CAUCHY = _model(
    {"theta": vcmc.Real()},
    lambda params: -jnp.log1p(params["theta"] ** 2),
    lambda params, rows: norm.logpdf(rows["y"], params["theta"], 20.0),
)
STUDENT = _model(
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


# Likelihoods with a step, and posteriors of other shapes.

STEP = _model(
    {"change": vcmc.Interval(0.0, 1.0)},
    lambda params: jnp.zeros(()) * params["change"],
    lambda params, rows: norm.logpdf(rows["y"], jnp.where(rows["t"] > params["change"], 1.0, 0.0)),
)


def change_point(seed: int) -> Case:
    """Return a level that rises by one sd at an unknown time."""
    generator = np.random.default_rng(seed)
    t = (np.arange(200) + 0.5) / 200
    rows = {"t": t, "y": (t > generator.uniform(0.25, 0.75)) + generator.normal(size=200)}
    truth = grid_moments(STEP, rows, {"change": np.linspace(0.00005, 0.99995, 10_000)}, ("change",))
    return Case(STEP, rows, truth, NUM_SHARDS)


NUM_GROUPS, GROUP_ROWS = 8, 5


def _funnel_log_prior(params):
    groups = norm.logpdf(params["theta"], params["mu"], params["tau"])
    return norm.logpdf(params["mu"], scale=5.0) - 0.5 * params["tau"] ** 2 + jnp.sum(groups)


FUNNEL = _model(
    {"mu": vcmc.Real(), "tau": vcmc.Positive(), "theta": vcmc.Real(NUM_GROUPS)},
    _funnel_log_prior,
    lambda params, rows: norm.logpdf(rows["y"], params["theta"][rows["group"]]),
)


def funnel(seed: int) -> Case:
    """Return a centred hierarchical model with few rows per group and a small scale.

    Given tau, everything is Gaussian; tau is summed over a grid.
    """
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(NUM_GROUPS), GROUP_ROWS)
    effects = 1.0 + generator.uniform(0.0, 0.5) * generator.normal(size=NUM_GROUPS)
    y = effects[group] + generator.normal(size=len(group))
    means = y.reshape(NUM_GROUPS, GROUP_ROWS).mean(axis=1)
    tau = np.linspace(0.0005, 6, 12_000)[:, None]
    variance = tau**2 + 1 / GROUP_ROWS
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
    theta_variance = shrinkage / GROUP_ROWS + (1 - shrinkage) ** 2 / precision
    truth = {
        "mu": [moment[0] for moment in mixture_moments(weight, mu, precision**-0.5)],
        "tau": [moment[0] for moment in mixture_moments(weight, tau, 0 * tau)],
        "theta": mixture_moments(weight, theta, np.sqrt(theta_variance)),
    }
    return Case(FUNNEL, {"y": y, "group": group}, truth, NUM_SHARDS)


BANANA = _model(
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


SEPARATED = _model(
    {"alpha": vcmc.Real(), "beta": vcmc.Real()},
    lambda params: norm.logpdf(params["alpha"], scale=3.0) + norm.logpdf(params["beta"], scale=10),
    _logistic_log_likelihood,
)
SEPARATED_GRID = {"alpha": np.linspace(-4, 1.5, 221), "beta": np.linspace(-15, 60, 1501)}


def separation(seed: int) -> Case:
    """Return rare rows that are all events but one at most: shards separate completely."""
    generator = np.random.default_rng(seed)
    num_rare = int(generator.integers(5, 9))
    rows = _rare_rows(generator, num_rare, 400, num_rare - seed % 2)
    return Case(SEPARATED, rows, grid_moments(SEPARATED, rows, SEPARATED_GRID), NUM_SHARDS)


# Log likelihoods that do not add up over rows.

SERIAL = _model(
    {"theta": vcmc.Real()},
    lambda params: norm.logpdf(params["theta"]),
    lambda params, rows: norm.logpdf(rows["y"], params["theta"] * jnp.roll(rows["y"], 1)),
)


def _pooled_log_likelihood(params, rows):
    residual = jnp.mean((rows["y"] - params["theta"]) ** 2)
    return -0.5 * jnp.log(residual) * jnp.ones_like(rows["y"])


POOLED = _model(
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
        lambda theta: model.log_prior({"theta": theta})
        + jnp.sum(model.log_likelihood({"theta": theta}, {"y": jnp.asarray(y)}))
    )
    grid = np.linspace(-5, 5, 10_001)
    logs = np.asarray(log_density(jnp.asarray(grid)))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    truth = {"theta": (mean, np.sqrt(weights @ (grid - mean) ** 2))}
    return Case(model, {"y": y}, truth, NUM_SHARDS)
