"""Simulation-based calibration: ranks of the truth among posterior draws are uniform.

Global and local parameters are drawn from the prior, rows from the model; see Talts et al. (2018).
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import vcmc

NUM_GROUPS, GROUP_ROWS = 40, 6
NUM_DATA_SETS, NUM_BINS = 40, 5


def log_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)


def model_of(log_likelihood):
    return vcmc.Model(
        space={"mu": vcmc.Real(), "tau": vcmc.Positive()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mu"] ** 2 - 0.5 * params["tau"] ** 2,
        log_local_prior=lambda params, local, group: log_normal(
            local["alpha"], params["mu"], params["tau"]
        ),
        log_likelihood=log_likelihood,
        groups="group",
    )


MODELS = {
    "normal": (
        model_of(lambda params, local, rows: log_normal(rows["y"], local["alpha"], 1.0)),
        lambda generator, alpha: alpha + generator.normal(size=alpha.shape),
    ),
    "binary": (
        model_of(
            lambda params, local, rows: jax.nn.log_sigmoid((2 * rows["y"] - 1) * local["alpha"])
        ),
        lambda generator, alpha: 1.0 * (generator.random(alpha.shape) < 1 / (1 + np.exp(-alpha))),
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MODELS)
def test_ranks_of_the_truth_are_uniform(name):
    model, simulate = MODELS[name]
    group = np.repeat(np.arange(NUM_GROUPS), GROUP_ROWS)
    ranks = {parameter: [] for parameter in ("mu", "tau", "first", "last", "deviation")}
    for seed in range(NUM_DATA_SETS):
        generator = np.random.default_rng((7, seed))
        mu, tau = generator.normal(), abs(generator.normal())
        alpha = mu + tau * generator.normal(size=NUM_GROUPS)
        rows = {"group": group, "y": simulate(generator, alpha[group])}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
            tree = vcmc.infer(model, rows, num_shards=2, seed=seed, progress=False)
        posterior = tree["posterior"]
        draws = {parameter: posterior[parameter].to_numpy().ravel() for parameter in ("mu", "tau")}
        local = posterior["alpha"].to_numpy().reshape(-1, NUM_GROUPS)
        draws |= {"first": local[:, 0], "last": local[:, -1]}
        draws["deviation"] = local[:, 3] - draws["mu"]
        truth = {"mu": mu, "tau": tau, "first": alpha[0], "last": alpha[-1]}
        truth["deviation"] = alpha[3] - mu
        for parameter, values in draws.items():
            ranks[parameter].append(np.mean(values < truth[parameter]))
    expected = NUM_DATA_SETS / NUM_BINS
    for parameter, shares in ranks.items():
        counts, _ = np.histogram(shares, NUM_BINS, (0, 1))
        statistic = np.sum((counts - expected) ** 2 / expected)
        assert chi2.sf(statistic, NUM_BINS - 1) > 1e-3, (parameter, counts)
