"""Posteriors that are wrong where scores at the draws show nothing: none may pass as good.

Modes far away in the model's own units, slabs and heavy tails of priors, and steps of the log
likelihood. Truths are closed forms, or quadrature on a grid.
"""

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


@pytest.mark.parametrize("refine", [False, True], ids=["combined", "refined"])
@pytest.mark.parametrize("kind", SECOND_MODES)
def test_a_second_mode_far_away_is_found(kind, refine):
    space, log_prior, mean, truth = SECOND_MODES[kind]
    model = vcmc.Model({"theta": space}, log_prior, normal_rows(mean))
    rows = {"y": np.asarray(mean(truth)) + ROWS["y"] * (0.2 if kind.startswith("angle") else 1.0)}
    with pytest.warns(vcmc.DoubtfulWarning):
        tree = vcmc.infer(model, rows, num_shards=4, refine=refine)
    if not refine:
        assert "has another mode, far from the draws" in tree.attrs["verdict_text"]
    assert tree.attrs["verdict"] in ("doubtful", "poor")


def test_refinement_visits_the_other_mode():
    space, log_prior, mean, truth = SECOND_MODES["dose 20 or 60"]
    model = vcmc.Model({"theta": space}, log_prior, normal_rows(mean))
    rows = {"y": np.asarray(mean(truth)) + ROWS["y"]}
    with pytest.warns(vcmc.DoubtfulWarning, match="did not converge"):
        tree = vcmc.infer(model, rows, num_shards=4, refine=True)
    theta = tree["posterior"]["theta"].to_numpy()
    assert 0.3 < np.mean(theta < 40) < 0.7  # the two modes hold half of the mass each


def test_two_clusters_of_cauchy_rows_are_not_called_one_mode():
    noise = 0.3 * np.random.default_rng(0).standard_cauchy(20)
    rows = {"y": np.concatenate([100 + noise, 108 - noise])}
    model = vcmc.Model(
        {"theta": vcmc.Real()},
        normal_prior(0.0, 1000.0),
        lambda params, rows: -jnp.log1p((rows["y"] - params["theta"]) ** 2),
    )
    with pytest.warns(vcmc.DoubtfulWarning):
        tree = vcmc.infer(model, rows, num_shards=2)
    assert tree["posterior"]["theta"].std() < 2  # the posterior's is 4
    assert tree.attrs["verdict"] in ("doubtful", "poor")


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
