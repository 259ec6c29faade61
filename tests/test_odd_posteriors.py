"""Odd posteriors by the default call: modes, bends and edges; right, or not called good.

Truths are exact mixtures of normals, closed forms, or grids.
"""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import vcmc

pytestmark = pytest.mark.slow

NUM_EXACT = 100_000
LEVELS = (np.arange(NUM_EXACT) + 0.5) / NUM_EXACT
MAX_MEAN_SD, MAX_SD, MAX_QUANTILE_SD = 0.2, 0.15, 0.3  # beyond, a result is wrong


def inferred(model, rows, num_shards, seed=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        return vcmc.infer(model, rows, num_shards=num_shards, seed=seed, progress=False)


def summary(draws):
    return np.stack([draws.mean(axis=0), draws.std(axis=0), *np.quantile(draws, [0.05, 0.95], 0)])


def is_right(draws, exact):
    """Whether means, sds and quantiles are those of exact draws, to a fraction of an sd."""
    truth = summary(exact)
    errors = np.abs(summary(draws) - truth) / truth[1]
    bounds = np.array([MAX_MEAN_SD, MAX_SD, MAX_QUANTILE_SD, MAX_QUANTILE_SD])
    return bool((errors.max(axis=1) < bounds).all())


def values(tree, name="theta"):
    stacked = tree["posterior"][name].to_numpy()
    return stacked.reshape(stacked.shape[0] * stacked.shape[1], -1)


def on_grid(log_density, low, high):
    """Evenly spaced quantiles of a density on a grid."""
    grid = np.linspace(low, high, 100_001)[1:-1]
    logs = log_density(grid)
    weights = np.exp(logs - logs.max())
    shares = np.cumsum(weights) - weights / 2
    return np.interp(LEVELS, shares / weights.sum(), grid)[:, None]


def direction(dim, seed):
    vector = np.random.default_rng(seed).normal(size=dim)
    return vector / np.linalg.norm(vector)


def line(num_shards):
    """Three modes on a line that is no axis, in ten dimensions; shards have one hill over all."""
    along = direction(10, 3)
    means = [-7 * along, 0 * along, 7 * along]
    return num_shards, [0.4, 0.2, 0.4], means, [np.eye(10)] * 3


def small_and_far(num_shards):
    """A small mode in a direction that nothing points to."""
    means = [np.zeros(8), 9 * direction(8, 5)]
    return num_shards, [0.85, 0.15], means, [np.eye(8), 0.5 * np.eye(8)]


def narrow_and_far(num_shards):
    """A hill a fifth as wide, in five coordinates and a direction that nothing points to."""
    means = [np.zeros(5), 4.5 * direction(5, 1)]
    return num_shards, [0.5, 0.5], means, [np.eye(5), 0.04 * np.eye(5)]


def scales(num_shards, units, apart):
    """Two modes of coordinates whose sds are orders of magnitude apart."""
    units = np.array(units)
    dim = len(units)
    correlated = (0.5 * np.ones((dim, dim)) + 0.5 * np.eye(dim)) * np.outer(units, units)
    means = [np.zeros(dim), units * apart]
    return num_shards, [0.4, 0.6], means, [correlated, np.diag((units * 0.7) ** 2)]


MIXTURES = {
    "apart in small units, 4 shards": scales(4, [1e-4, 1e3], [7.0, 0.0]),
    "apart in large units, 10 shards": scales(10, [1e-4, 1e3], [0.0, 7.0]),
    "three scales, 1 shard": scales(1, [1e-3, 1.0, 1e3], [4.0, 3.0, -4.0]),
    "three scales, 10 shards": scales(10, [1e-3, 1.0, 1e3], [4.0, 3.0, -4.0]),
    "large units, 4 shards": scales(4, [1.0, 1e6], [0.0, 8.0]),
    "small units, 4 shards": scales(4, [1.0, 1e-6], [0.0, 8.0]),
    "narrow and far, 1 shard": narrow_and_far(1),
    "narrow and far, 4 shards": narrow_and_far(4),
    "narrow and far, 10 shards": narrow_and_far(10),
    "three in a line, 4 shards": line(4),
    "three in a line, 10 shards": line(10),
    "small and far, 1 shard": small_and_far(1),
    "small and far, 10 shards": small_and_far(10),
    "near each other": (
        4,
        [0.3, 0.7],
        [[-2.0, 1.0], [1.5, -1.5]],
        [np.eye(2), np.diag([0.5, 2.0])],
    ),
    "narrow beside wide": (10, [0.3, 0.7], [[0.0], [4.0]], [np.eye(1) * 0.01, np.eye(1) * 4]),
    "narrow inside wide": (
        4,
        [0.4, 0.6],
        [[1.0, 1.0], [0.0, 0.0]],
        [np.eye(2) * 0.01, np.eye(2) * 4],
    ),
}


@pytest.mark.parametrize("kind", MIXTURES)
def test_modes_on_no_axis_are_sampled(kind, normal_mixture):
    num_shards, weights, means, covariances = MIXTURES[kind]
    mixture = normal_mixture(weights, means, covariances)
    generator = np.random.default_rng(1)
    exact = np.concatenate(
        [
            generator.multivariate_normal(mean, covariance, round(weight * NUM_EXACT))
            for weight, mean, covariance in zip(weights, means, covariances, strict=True)
        ]
    )
    tree = inferred(mixture.model, mixture.rows, num_shards)
    assert tree.attrs["verdict"] == "good"
    assert is_right(values(tree), exact)


def test_heavy_tailed_modes_far_apart_are_sampled():
    def log_density(theta):
        return jnp.logaddexp(
            -2.5 * jnp.log1p((theta + 15) ** 2 / 4), -2.5 * jnp.log1p((theta - 15) ** 2 / 4)
        )

    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: 0.0 * params["theta"],
        lambda params, rows: rows["share"] * log_density(params["theta"]),
    )
    tree = inferred(model, {"share": np.full(40, 1 / 40)}, 4)
    exact = on_grid(lambda grid: np.asarray(log_density(grid)), -400, 400)
    assert tree.attrs["verdict"] == "good"
    assert is_right(values(tree), exact)


@pytest.mark.parametrize("num_shards", [1, 4, 10])
def test_the_frequency_of_a_wave_is_right_or_not_called_good(num_shards):
    """Modes with 10⁻⁴ of the mass, up to 120 sds away, hold more than half of the variance."""
    generator = np.random.default_rng(5)
    time = np.sort(generator.uniform(0, 10, 120))
    y = 0.6 * np.sin(2 * time) + generator.normal(size=120)
    model = vcmc.Model(
        {"theta": vcmc.Interval(0.2, 8.0)},
        lambda params: 0.0 * params["theta"],
        lambda params, rows: (
            -0.5 * (rows["y"] - 0.6 * jnp.sin(params["theta"] * rows["time"])) ** 2
        ),
    )

    def log_density(grid):
        pairs = zip(y, time, strict=True)
        return -0.5 * sum((value - 0.6 * np.sin(grid * at)) ** 2 for value, at in pairs)

    tree = inferred(model, {"y": y, "time": time}, num_shards)
    assert is_right(values(tree), on_grid(log_density, 0.2, 8.0)) or tree.attrs["verdict"] != "good"


# Densities that pile up at the edge of their space.


def successes():
    """Nothing but successes, under Jeffreys' prior."""
    model = vcmc.Model(
        {"theta": vcmc.Interval(0, 1)},
        lambda params: -0.5 * jnp.log(params["theta"]) - 0.5 * jnp.log1p(-params["theta"]),
        lambda params, rows: (
            rows["y"] * jnp.log(params["theta"]) + (1 - rows["y"]) * jnp.log1p(-params["theta"])
        ),
    )
    return model, {"y": np.ones(400)}, stats.beta.ppf(LEVELS, 400.5, 0.5)[:, None]


def no_counts():
    """A rate of which no event was seen, under a prior with a spike at zero."""
    model = vcmc.Model(
        {"theta": vcmc.Positive()},
        lambda params: -0.9 * jnp.log(params["theta"]) - params["theta"],
        lambda params, rows: rows["y"] * jnp.log(params["theta"]) - params["theta"],
    )
    return model, {"y": np.zeros(100)}, stats.gamma.ppf(LEVELS, 0.1)[:, None] / 101


def small_scale():
    """A scale that is hardly above zero: y has the variance 1 + theta²."""
    y = 0.98 * np.random.default_rng(3).normal(size=200)
    model = vcmc.Model(
        {"theta": vcmc.Positive()},
        lambda params: -0.5 * params["theta"] ** 2,
        lambda params, rows: (
            -0.5 * jnp.log1p(params["theta"] ** 2)
            - 0.5 * rows["y"] ** 2 / (1 + params["theta"] ** 2)
        ),
    )

    def log_density(grid):
        return -0.5 * grid**2 - 100 * np.log1p(grid**2) - 0.5 * (y @ y) / (1 + grid**2)

    return model, {"y": y}, on_grid(log_density, 0, 4)


def no_event():
    """The coefficient of a covariate that no event came with; the intercept is known."""
    generator = np.random.default_rng(3)
    x = (generator.random(2000) < 0.05).astype(float)
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: -0.5 * (params["theta"] / 5) ** 2,
        lambda params, rows: -jnp.logaddexp(0.0, params["theta"] * rows["x"] - 2.0),
    )

    def log_density(grid):
        return -0.5 * (grid / 5) ** 2 - x.sum() * np.logaddexp(0.0, grid - 2.0)

    return model, {"x": x}, on_grid(log_density, -40, 5)


EDGES = {function.__name__: function for function in (successes, no_counts, small_scale, no_event)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", EDGES)
def test_quantiles_at_an_edge_are_right_or_not_called_good(kind, seed):
    model, rows, exact = EDGES[kind]()
    tree = inferred(model, rows, 4, seed)
    assert is_right(values(tree), exact) or tree.attrs["verdict"] != "good"


@pytest.mark.parametrize("kind", ["no_event", "successes"])
def test_quantiles_at_an_edge_are_right(kind):
    model, rows, exact = EDGES[kind]()
    assert is_right(values(inferred(model, rows, 4)), exact)


# Two components that overlap: labels switch, and the distance of the centres has no label.


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("centre", [0.6, 0.8])
def test_the_distance_of_overlapping_components_is_right_or_not_called_good(seed, centre):
    generator = np.random.default_rng(seed)
    y = np.where(generator.random(400) < 0.5, -centre, centre) + generator.normal(size=400)
    model = vcmc.models.GaussianMixture(2, 1, prior_scale=3.0, noise_scale=1.0)
    grid = np.linspace(-3, 3, 301)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    logs = -(first**2 + second**2) / 18
    for row in -0.5 * (y[:, None] - grid) ** 2:
        logs = logs + np.logaddexp(row[:, None], row)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    distance = np.abs(first - second)
    mean = np.sum(weights * distance)
    sd = np.sqrt(np.sum(weights * (distance - mean) ** 2))
    tree = inferred(model, {"x": y[:, None]}, 4, seed)
    found = np.abs(np.diff(values(tree, "centres"), axis=1))
    error = abs(found.mean() - mean)
    assert error < min(0.1 * mean, 0.2 * sd) or tree.attrs["verdict"] != "good"
