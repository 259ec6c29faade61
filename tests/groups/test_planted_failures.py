"""Integrals over local parameters that are wrong must not pass as good."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc

pytestmark = pytest.mark.slow


def log_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)


def infer(model, rows, num_shards=2):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        return vcmc.infer(model, rows, num_shards=num_shards, progress=False, locals="none")


def simulated(num_groups=60, group_rows=4, seed=0):
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(num_groups), group_rows)
    alpha = generator.normal(size=num_groups)
    return {"group": group, "y": alpha[group] + generator.normal(size=len(group))}


def model_of(log_local_prior, log_likelihood, **more):
    return vcmc.Model(
        space={"mu": vcmc.Real(), "tau": vcmc.Positive()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mu"] ** 2 - 0.5 * params["tau"] ** 2,
        log_local_prior=log_local_prior,
        log_likelihood=log_likelihood,
        groups="group",
        **more,
    )


def test_two_modes_of_a_local_parameter_are_not_good():
    """The likelihood sees the square of the local parameter: both signs are as likely."""
    rows = simulated()
    rows["y"] = 4 + 0.3 * rows["y"]
    model = model_of(
        lambda params, local, group: log_normal(local["alpha"], params["mu"], 2 + params["tau"]),
        lambda params, local, rows: log_normal(rows["y"], local["alpha"] ** 2, 0.3),
    )
    tree = infer(model, rows)
    assert tree.attrs["verdict"] != "good"
    assert "several modes" in tree.attrs["verdict_text"]


def test_heavy_tails_of_local_parameters_are_not_good():
    """Cauchy local parameters and one vague row per group: nodes around the mode miss the tails."""
    generator = np.random.default_rng(0)
    rows = {"group": np.arange(200), "y": 8 * generator.standard_cauchy(size=200)}
    model = model_of(
        lambda params, local, group: (
            -jnp.log1p(((local["alpha"] - params["mu"]) / params["tau"]) ** 2)
            - jnp.log(params["tau"])
        ),
        lambda params, local, rows: log_normal(rows["y"], local["alpha"], 5.0),
        quadrature=vcmc.GaussHermite(5),
    )
    tree = infer(model, rows)
    assert tree.attrs["verdict"] != "good"


def test_few_nodes_for_few_binary_rows_are_not_good():
    rows = simulated(num_groups=2000, group_rows=1)
    rows["y"] = (rows["y"] > 0).astype(float)
    rows["x"] = np.random.default_rng(1).normal(size=len(rows["y"]))
    model = model_of(
        lambda params, local, group: log_normal(local["alpha"], params["mu"], 8 * params["tau"]),
        lambda params, local, rows: jax.nn.log_sigmoid(
            (2 * rows["y"] - 1) * (4 * local["alpha"] + params["mu"] * rows["x"])
        ),
        quadrature=vcmc.GaussHermite(3),
    )
    assert infer(model, rows).attrs["verdict"] != "good"


def test_a_group_with_a_hundred_times_the_influence_is_right_or_not_good():
    generator = np.random.default_rng(0)
    sizes = np.append(np.full(60, 4), 400)
    group = np.repeat(np.arange(61), sizes)
    alpha = np.append(generator.normal(size=60), 6.0)
    rows = {"group": group, "y": alpha[group] + generator.normal(size=len(group))}
    model = model_of(
        lambda params, local, group: log_normal(local["alpha"], params["mu"], params["tau"]),
        lambda params, local, rows: log_normal(rows["y"], local["alpha"], 1.0),
    )
    tree = infer(model, rows, num_shards=4)
    if tree.attrs["verdict"] == "good":
        mu, tau = np.linspace(-1, 2, 400)[:, None], np.linspace(1e-3, 3, 400)[None]
        log_density = -0.5 * mu**2 - 0.5 * tau**2
        for number, size in enumerate(sizes):
            mean = rows["y"][group == number].mean()
            variance = tau**2 + 1 / size
            log_density = log_density - 0.5 * (mean - mu) ** 2 / variance - 0.5 * np.log(variance)
        weights = np.exp(log_density - log_density.max())
        weights = weights / weights.sum()
        for name, value in (("mu", mu + 0 * tau), ("tau", tau + 0 * mu)):
            mean = np.sum(weights * value)
            sd = np.sqrt(np.sum(weights * (value - mean) ** 2))
            draws = tree["posterior"][name].to_numpy()
            assert draws.mean() == pytest.approx(mean, abs=0.1 * sd)
            assert draws.std() == pytest.approx(sd, rel=0.1)
