"""Integrals over local parameters that are wrong must not pass as good.

Each result is compared with the posterior of both global parameters on a grid, where the local ones
are integrated out without the package, so that it is known to be wrong.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logsumexp, voigt_profile
from scipy.stats import norm

import vcmc

pytestmark = pytest.mark.slow


def log_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)


def infer(model, rows, num_shards=2, shard_draws=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        return vcmc.infer(
            model,
            rows,
            num_shards=num_shards,
            shard_draws=shard_draws,
            progress=False,
            locals="none",
        )


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


def largest_error(tree, log_likelihood, mu, tau):
    """Return the largest error of means and sds of mu and tau, in posterior sds.

    Args:
        tree: a result.
        log_likelihood: the log likelihood, one value for each pair of mu and tau.
        mu: a grid.
        tau: a grid.
    """
    log_density = log_likelihood - 0.5 * mu[:, None] ** 2 - 0.5 * tau**2
    weights = np.exp(log_density - logsumexp(log_density))
    edges = np.concatenate([weights[[0, -1]].ravel(), weights[:, -1]])
    assert edges.max() < 1e-4 * weights.max()  # the grid is wide enough
    errors = []
    for name, values, shares in (
        ("mu", mu, weights.sum(axis=1)),
        ("tau", tau, weights.sum(axis=0)),
    ):
        mean = shares @ values
        sd = np.sqrt(shares @ (values - mean) ** 2)
        draws = tree["posterior"][name].to_numpy()
        errors += [abs(draws.mean() - mean) / sd, abs(draws.std() / sd - 1)]
    return max(errors)


def test_two_modes_of_a_local_parameter_are_not_good():
    """The likelihood sees the square of the local parameter: both signs are as likely."""
    rows = simulated()
    rows["y"] = 4 + 0.3 * rows["y"]
    model = model_of(
        lambda params, local, group: log_normal(local["alpha"], params["mu"], 2 + params["tau"]),
        lambda params, local, rows: log_normal(rows["y"], local["alpha"] ** 2, 0.3),
    )
    tree = infer(model, rows)
    mu, tau, alpha = np.linspace(-3, 3, 61), np.linspace(1e-3, 5, 40), np.linspace(-5, 5, 2001)
    prior = norm.logpdf(alpha[:, None, None], mu[:, None], 2 + tau)
    truth = np.zeros((len(mu), len(tau)))
    for group in range(60):
        y = rows["y"][rows["group"] == group, None]
        likelihood = norm.logpdf(y, alpha**2, 0.3).sum(axis=0)
        near = likelihood > likelihood.max() - 40
        truth += logsumexp(likelihood[near, None, None] + prior[near], axis=0)
    assert largest_error(tree, truth, mu, tau) > 1
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
        quadrature=vcmc.GaussHermite(3),
    )
    tree = infer(model, rows)
    mu, tau = np.linspace(-4, 4, 201), np.linspace(1e-3, 9, 300)
    truth = np.zeros((len(mu), len(tau)))
    for y in rows["y"]:
        truth += np.log(voigt_profile(y - mu[:, None], 5.0, tau))
    assert largest_error(tree, truth, mu, tau) > 0.1
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
    tree = infer(model, rows)
    mu, tau = np.linspace(-3, 3, 121), np.linspace(1e-3, 5, 80)
    nodes = np.linspace(-8, 8, 801)
    shares = norm.pdf(nodes) / norm.pdf(nodes).sum()
    centres = np.linspace(-30, 30, 601)  # of log odds, which are normal with the sd 32 tau
    truth = np.zeros((len(mu), len(tau)))
    for column, scale in enumerate(32 * tau):
        share_of_ones = expit(centres[:, None] + scale * nodes) @ shares
        for row, mean in enumerate(mu):
            share = np.interp(mean * (4 + rows["x"]), centres, share_of_ones)
            truth[row, column] = np.log(np.where(rows["y"] > 0, share, 1 - share)).sum()
    assert largest_error(tree, truth, mu, tau) > 0.1
    assert tree.attrs["verdict"] != "good"


@pytest.mark.parametrize("place", [6.0, 60.0])
def test_a_group_with_a_hundred_times_the_influence_is_right_or_not_good(place):
    generator = np.random.default_rng(0)
    sizes = np.append(np.full(60, 4), 400)
    group = np.repeat(np.arange(61), sizes)
    alpha = np.append(generator.normal(size=60), place)
    rows = {"group": group, "y": alpha[group] + generator.normal(size=len(group))}
    model = model_of(
        lambda params, local, group: log_normal(local["alpha"], params["mu"], params["tau"]),
        lambda params, local, rows: log_normal(rows["y"], local["alpha"], 1.0),
    )
    tree = infer(model, rows, num_shards=4)
    mu, tau = np.linspace(-3, 5, 400), np.linspace(1e-3, 9, 600)
    truth = np.zeros((len(mu), len(tau)))
    for number, size in enumerate(sizes):
        mean = rows["y"][group == number].mean()
        truth += norm.logpdf(mean, mu[:, None], np.sqrt(tau**2 + 1 / size))
    assert largest_error(tree, truth, mu, tau) < 0.1 or tree.attrs["verdict"] != "good"
