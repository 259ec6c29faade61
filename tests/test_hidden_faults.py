"""Posteriors of which scores at the draws of one mode show nothing: right, or not good.

Modes far away in the model's own units, slabs and heavy tails of priors, and steps of the log
likelihood. Truths are closed forms, or quadrature on a grid.
"""

import warnings

import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
import pytest

import vcmc

pytestmark = pytest.mark.slow

ROWS = {"y": np.random.default_rng(0).normal(size=400)}


def normal_rows(mean):
    """The log likelihood of 400 rows around a function of theta."""
    return lambda params, rows: -0.5 * (rows["y"] - mean(params["theta"])) ** 2


def curve(theta):
    return 5 - ((theta - 40) / 10) ** 2


def wave(theta):
    return jnp.sin(jnp.deg2rad(theta))


def distance(theta):
    return jnp.abs(theta + 5.5)


def normal_prior(mean, sd):
    return lambda params: -0.5 * ((params["theta"] - mean) / sd) ** 2


SECOND_MODES = {
    "dose 20 or 60": (vcmc.Real(), normal_prior(40.0, 50.0), curve, 20.0),
    "angle 30 or 150": (vcmc.Interval(0, 180), lambda params: 0.0 * params["theta"], wave, 30.0),
    "distance 1 or -12": (vcmc.Real(), normal_prior(0.0, 10.0), distance, 1.0),
}


def on_grid(log_density, grid):
    """Return the mean and the sd of a density on a grid."""
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2)


@pytest.mark.parametrize("refine", [False, True], ids=["combined", "refined"])
@pytest.mark.parametrize("kind", SECOND_MODES)
def test_a_second_mode_far_away_is_sampled(kind, refine):
    space, log_prior, mean, truth = SECOND_MODES[kind]
    model = vcmc.Model({"theta": space}, log_prior, normal_rows(mean))
    rows = {"y": np.asarray(mean(truth)) + ROWS["y"] * (0.2 if kind.startswith("angle") else 1.0)}
    tree = vcmc.infer(model, rows, num_shards=4, refine=refine)
    ends = (0, 180) if kind.startswith("angle") else (-100, 200)
    grid = np.linspace(*ends, 200_001)[1:-1]
    squares = np.sum(rows["y"] ** 2) - 2 * np.sum(rows["y"]) * np.asarray(mean(grid))
    squares += len(rows["y"]) * np.asarray(mean(grid)) ** 2
    exact_mean, exact_sd = on_grid(log_prior({"theta": grid}) - squares / 2, grid)
    theta = tree["posterior"]["theta"].to_numpy()
    errors = tree["mean_error_se"]["theta"].item(), tree["sd_error_se"]["theta"].item()
    assert tree.attrs["verdict"] == "good"
    assert len(tree["mode_weights"]["weight"]) == 2
    assert abs(theta.mean() - exact_mean) < 4 * errors[0] * exact_sd
    assert abs(theta.std() / exact_sd - 1) < 4 * errors[1] + 0.01
    if refine:
        assert "mode 1 by 32 of 32 chains" in tree.attrs["refined_modes"]


def test_two_clusters_of_cauchy_rows_are_both_sampled():
    noise = 0.3 * np.random.default_rng(0).standard_cauchy(20)
    y = np.concatenate([100 + noise, 108 - noise])
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        normal_prior(0.0, 1000.0),
        lambda params, rows: -jnp.log1p((rows["y"] - params["theta"]) ** 2),
    )
    tree = vcmc.infer(model, {"y": y}, num_shards=2)
    grid = np.linspace(90, 118, 20_001)
    mean, sd = on_grid(-np.log1p((y[:, None] - grid) ** 2).sum(axis=0), grid)
    theta = tree["posterior"]["theta"].to_numpy()
    assert tree.attrs["verdict"] == "good"
    assert abs(theta.mean() - mean) < 4 * tree["mean_error_se"]["theta"].item() * sd
    assert theta.std() == pytest.approx(sd, rel=0.02)


def is_right(tree, mean, sd, bound=0.1):
    """Whether means and sds are right to 0.1 posterior sds."""
    theta = tree["posterior"]["theta"].to_numpy().reshape(-1, len(mean))
    errors = np.abs(theta.mean(axis=0) - mean) / sd, np.abs(theta.std(axis=0) / sd - 1)
    return bool(np.max(errors) < bound)


def quietly(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        return function(*arguments, progress=False, **options)


@pytest.mark.parametrize("first", [True, False], ids=["the first shard", "another shard"])
def test_a_mode_that_one_shard_sees(two_normals, first):
    """All that rows say of two modes is in one shard; the others know the prior."""
    share = np.zeros(60)
    share[0 if first else -1] = 1.0
    partition = vcmc.Partition({"share": share}, np.split(np.arange(60), 4))
    model = vcmc.Model(
        {"theta": vcmc.Real(2)},
        lambda params: -0.5 * jnp.sum((params["theta"] / 100) ** 2),
        two_normals.model.log_likelihood,
    )
    tree = quietly(vcmc.infer, model, partition)
    assert is_right(tree, *two_normals.moments) or tree.attrs["verdict"] != "good"


def test_a_mode_of_weight_001(normal_mixture):
    covariances = [np.eye(2), np.eye(2)]
    mixture = normal_mixture([0.01, 0.99], [[-10.0, 0.0], [4.0, 2.0]], covariances)
    tree = quietly(vcmc.infer, mixture.model, mixture.rows, num_shards=4)
    assert tree.attrs["verdict"] == "good"
    weights, errors = (
        tree["mode_weights"][name].to_numpy() for name in ("weight", "standard_error")
    )
    assert (np.abs(weights - [0.99, 0.01]) < 4 * errors).all()
    assert is_right(tree, *mixture.moments)


@pytest.mark.parametrize(("weight", "distance"), [(0.01, 9.0), (3e-3, 7.5), (3e-4, 8.0)])
def test_a_small_mode_that_shards_take_for_a_large_one(weight, distance, normal_mixture):
    """Ten shards see it with a weight of 0.3 to 0.4; all posterior draws were from it."""
    generator = np.random.default_rng(2)
    factors = generator.normal(size=(2, 4, 8))
    covariances = [factor @ factor.T for factor in factors]
    covariances = [
        matrix / np.sqrt(np.outer(np.diag(matrix), np.diag(matrix))) for matrix in covariances
    ]
    along = np.random.default_rng(5).normal(size=4)
    step = along * distance / np.sqrt(along @ np.linalg.solve(np.mean(covariances, axis=0), along))
    mixture = normal_mixture([1 - weight, weight], [np.zeros(4), step], covariances)
    tree = quietly(vcmc.infer, mixture.model, mixture.rows, num_shards=10, seed=2)
    assert tree.attrs["verdict"] == "good"
    assert is_right(tree, *mixture.moments)


def test_modes_that_shards_cannot_separate(normal_mixture):
    covariances = [np.eye(2), np.diag([1.0, 3.0])]
    mixture = normal_mixture([0.4, 0.6], [[0.0, 0.0], [6.0, 0.0]], covariances)
    tree = quietly(vcmc.infer, mixture.model, mixture.rows, num_shards=10)
    assert tree.attrs["verdict"] == "good"
    assert is_right(tree, *mixture.moments)


@pytest.mark.parametrize("num_shards", [1, 4])
def test_a_ridge_without_a_mode(num_shards):
    """A ring of radius 2, of which every shard has a share."""
    model = vcmc.Model(
        {"theta": vcmc.Real(2)},
        lambda params: 0.0 * params["theta"].sum(),
        lambda params, rows: -rows["one"] * (jnp.linalg.norm(params["theta"]) - 2) ** 2,
    )
    tree = quietly(vcmc.infer, model, {"one": np.ones(40)}, num_shards=num_shards)
    radius = np.linspace(0, 4, 4001)
    weights = radius * np.exp(-40 * (radius - 2) ** 2)
    sd = np.sqrt(weights @ radius**2 / weights.sum() / 2)
    assert is_right(tree, np.zeros(2), np.full(2, sd)) or tree.attrs["verdict"] != "good"


def moments(log_density, grid):
    """Mean and sd of a density on a grid."""
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2)


def assert_wrong_and_not_good(model, rows, log_density, grid):
    """Assert that a result is off by the truth on a grid, and is not called good."""
    mean, sd = moments(log_density, grid)
    with pytest.warns(vcmc.DoubtfulWarning):
        tree = vcmc.infer(model, rows, num_shards=2)
    draws = tree["posterior"]["theta"].to_numpy()
    assert abs(draws.mean() - mean) > 0.2 * sd or abs(draws.std() / sd - 1) > 0.15
    assert tree.attrs["verdict"] in ("doubtful", "poor")


def spike_and_slab(theta):
    return jnp.logaddexp(
        jnp.log(0.4) + stats.norm.logpdf(theta, 0, 0.1),
        jnp.log(0.6) + stats.norm.logpdf(theta, 0, 3.0),
    )


@pytest.mark.parametrize("noise", [1.0, 2.0])
def test_a_slab_behind_a_spike_is_not_missed(noise):
    rows = {"y": 0.1 + noise * np.random.default_rng(1).normal(size=4)}
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: spike_and_slab(params["theta"]),
        lambda params, rows: -0.5 * ((rows["y"] - params["theta"]) / noise) ** 2,
    )
    grid = np.linspace(-20, 20, 200_001)
    log_density = np.asarray(spike_and_slab(grid)) - 0.5 * sum(
        ((y - grid) / noise) ** 2 for y in rows["y"]
    )
    mean, sd = moments(log_density, grid)
    square, square_sd = moments(log_density, (grid - mean) ** 2)
    tree = vcmc.infer(model, rows, num_shards=2)
    draws = tree["posterior"]["theta"].to_numpy()
    assert tree.attrs["verdict"] == "good"
    error = 4 / np.sqrt(draws.size)
    assert abs(draws.mean() - mean) < error * sd
    assert abs(draws.var() - square) < error * square_sd


def test_a_change_point_is_not_called_good():
    generator = np.random.default_rng(0)
    time = np.arange(200) / 200
    rows = {"time": time, "y": np.where(time < 0.43, 0.0, 0.8) + generator.normal(size=200)}
    model = vcmc.Model(
        {"theta": vcmc.Interval(0, 1)},
        lambda params: 0.0 * params["theta"],
        lambda params, rows: (
            -0.5 * (rows["y"] - jnp.where(rows["time"] < params["theta"], 0.0, 0.8)) ** 2
        ),
    )
    grid = np.linspace(0.0005, 0.9995, 2001)
    log_density = np.array(
        [-0.5 * np.sum((rows["y"] - np.where(time < at, 0, 0.8)) ** 2) for at in grid]
    )
    assert_wrong_and_not_good(model, rows, log_density, grid)
