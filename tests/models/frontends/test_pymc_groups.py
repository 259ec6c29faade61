"""PyMC models with groups: the same marginal as in NumPyro, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import vcmc

pytestmark = pytest.mark.slow  # importing PyMC takes seconds


def pymc_model(pm, rows, dims="group"):
    with pm.Model(coords={dims: np.unique(rows["group"])}) as model:
        group, x, y = (pm.Data(name, rows[name]) for name in ("group", "x", "y"))
        mu = pm.Normal("mu", 0, 10)
        tau = pm.HalfNormal("tau", 1)
        sigma = pm.HalfNormal("sigma", 1)
        alpha = pm.Normal("alpha", mu, tau, dims=dims)
        pm.Normal("likelihood", alpha[group] + 0.3 * x, sigma, observed=y)
    return model


def test_the_marginal_is_that_of_numpyro(groups, pm):
    rows, points = groups.rows(), jnp.array([[0.3, -0.5, 0.1], [0.7, 0.2, -0.3]])
    shard = groups.shard(rows)
    models = [
        vcmc.from_pymc(pymc_model(pm, rows), rows, groups="group"),
        vcmc.from_numpyro(groups.model, rows, groups="group", num_groups="num_groups"),
    ]
    assert list(models[0].space) == ["mu", "tau", "sigma"]
    assert list(models[0].local.space) == ["alpha"]
    models = [model.fitted([shard]) for model in models]
    values = [[m.log_likelihood_at(point, shard) for point in points] for m in models]
    np.testing.assert_allclose(*values, atol=1e-8, rtol=0)
    priors = [[m.log_prior_at(point) for point in points] for m in models]
    np.testing.assert_allclose(*priors, atol=1e-8, rtol=0)


def test_labels_may_be_texts(groups, pm):
    rows = groups.rows()
    labelled = rows | {"group": np.array([f"group {number}" for number in rows["group"]])}
    model = vcmc.from_pymc(pymc_model(pm, rows), labelled, groups="group")
    tree = vcmc.infer(model, labelled, num_shards=1, progress=False)
    assert tree["posterior"]["alpha"]["group"].to_numpy()[0] == "group 0"


def test_a_covariate_of_groups_is_a_table(groups, pm):
    rows = groups.rows()
    table = {"group": np.arange(8), "height": np.linspace(-1, 1, 8)}
    with pm.Model(coords={"group": np.arange(8)}) as model:
        group, x, y = (pm.Data(name, rows[name]) for name in ("group", "x", "y"))
        height = pm.Data("height", table["height"], dims="group")
        mu = pm.Normal("mu", 0, 10)
        alpha = pm.Normal("alpha", mu * height, 0.5, dims="group")
        pm.Normal("likelihood", alpha[group] + 0.3 * x, 1.0, observed=y)
    converted_model = vcmc.from_pymc(model, rows, groups="group", group_rows=table)
    shard = groups.shard(rows, table)
    fitted = converted_model.fitted([shard])
    expected = 0.0
    for number in range(8):
        observed = (rows["y"] - 0.3 * rows["x"])[rows["group"] == number]
        mean = np.full(len(observed), 0.7 * table["height"][number])
        expected += multivariate_normal(mean, np.eye(len(observed)) + 0.25).logpdf(observed)
    value = float(fitted.log_likelihood_at(jnp.array([0.7]), shard))
    assert value == pytest.approx(expected, abs=1e-8)


def test_groups_must_be_a_dim(groups, pm):
    rows = groups.rows()
    with pytest.raises(ValueError, match="must be the dim of local variables"):
        vcmc.from_pymc(pymc_model(pm, rows, dims="county"), rows, groups="group")
