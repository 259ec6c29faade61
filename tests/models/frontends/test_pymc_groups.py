"""PyMC models with groups: the same marginal as in NumPyro, and what is refused."""

import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
import numpyro
import numpyro.distributions as dist
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


def test_counts_have_the_same_marginal_in_all_languages(groups, pm):
    """An integral by nodes: PyMC, NumPyro and plain JAX."""
    rows = groups.rows(num_groups=12, num_rows=4)
    rows["y"] = np.random.default_rng(0).poisson(np.exp(0.5 * rows["x"]))
    with pm.Model(coords={"group": np.arange(12)}) as pymc_counts:
        group, x, y = (pm.Data(name, rows[name]) for name in ("group", "x", "y"))
        mu, tau = pm.Normal("mu", 0, 10), pm.HalfNormal("tau", 1)
        alpha = pm.Normal("alpha", mu, tau, dims="group")
        pm.Poisson("likelihood", pm.math.exp(alpha[group] + 0.3 * x), observed=y)

    def numpyro_counts(group, x, y, *, num_groups):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", num_groups):
            alpha = numpyro.sample("alpha", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Poisson(jnp.exp(alpha[group] + 0.3 * x)), obs=y)

    plain = vcmc.Model(
        space={"mu": vcmc.Real(), "tau": vcmc.Positive()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: (
            stats.norm.logpdf(params["mu"], 0, 10) + jnp.log(2) + stats.norm.logpdf(params["tau"])
        ),
        log_local_prior=lambda params, local, group: stats.norm.logpdf(
            local["alpha"], params["mu"], params["tau"]
        ),
        log_likelihood=lambda params, local, rows: stats.poisson.logpmf(
            rows["y"], jnp.exp(local["alpha"] + 0.3 * rows["x"])
        ),
        groups="group",
    )
    shard, points = groups.shard(rows), jnp.array([[0.3, -0.5], [-0.4, 0.2]])
    models = [
        plain,
        vcmc.from_numpyro(numpyro_counts, rows, groups="group", num_groups="num_groups"),
        vcmc.from_pymc(pymc_counts, rows, groups="group"),
    ]
    models = [model.fitted([shard]) for model in models]
    assert {model.local.quadrature for model in models} == {vcmc.GaussHermite(9)}
    values = np.array([[m.log_likelihood_at(point, shard) for point in points] for m in models])
    np.testing.assert_allclose(values[1:], values[:1].repeat(2, axis=0), atol=1e-8, rtol=0)
    priors = np.array([[model.log_prior_at(point) for point in points] for model in models])
    np.testing.assert_allclose(priors[1:], priors[:1].repeat(2, axis=0), atol=1e-8, rtol=0)


def test_a_correlated_prior_has_the_marginal_of_numpyro(groups, pm):
    """Varying intercepts and slopes, centred and not, whose prior has a free correlation."""
    rows, shard = groups.rows(), groups.shard(groups.rows())
    values = []
    for is_centred in (True, False):
        with pm.Model(coords={"group": np.arange(8), "effect": ["intercept", "slope"]}) as model:
            group, x, y = (pm.Data(name, rows[name]) for name in ("group", "x", "y"))
            mu = pm.Normal("mu", 0, 10, dims="effect")
            root, _, _ = pm.LKJCholeskyCov("root", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
            if is_centred:
                effect = pm.MvNormal("effect_", mu, chol=root, dims=("group", "effect"))
            else:
                z = pm.Normal("z", 0, 1, dims=("effect", "group"))
                effect = pm.Deterministic("effect_", mu + (root @ z).T, dims=("group", "effect"))
            pm.Normal("likelihood", effect[group, 0] + effect[group, 1] * x, 1.0, observed=y)
        converted = vcmc.from_pymc(model, rows, groups="group").fitted([shard])
        assert converted.labels.dims["mu"] == ("effect",)
        point = jnp.array([0.3, -0.2, 0.1, 0.4, -0.3])
        params = converted.space.constrain(point)
        values.append(float(converted.log_likelihood_at(point, shard)))
    factor = np.zeros((2, 2))
    factor[np.tril_indices(2)] = params["root"]
    expected = 0.0
    for number in range(8):
        of_group = rows["group"] == number
        design = np.column_stack([np.ones(of_group.sum()), rows["x"][of_group]])
        covariance = np.eye(len(design)) + design @ factor @ factor.T @ design.T
        normal = multivariate_normal(design @ np.asarray(params["mu"]), covariance)
        expected += normal.logpdf(rows["y"][of_group])
    np.testing.assert_allclose(values, expected, atol=1e-8, rtol=0)


def test_deterministics_are_global_or_local(groups, pm):
    rows = groups.rows()
    with pm.Model(coords={"group": np.arange(8)}) as model:
        group, x, y = (pm.Data(name, rows[name]) for name in ("group", "x", "y"))
        mu, tau = pm.Normal("mu", 0, 10), pm.HalfNormal("tau", 1)
        z = pm.Normal("z", 0, 1, dims="group")
        alpha = pm.Deterministic("alpha", mu + tau * z, dims="group")
        pm.Deterministic("variance", tau**2)
        pm.Deterministic("average", alpha.mean())
        pm.Normal("likelihood", alpha[group] + x, 1.0, observed=y)
    with pytest.warns(UserWarning, match="deterministic 'average' depend on rows or on several"):
        converted = vcmc.from_pymc(model, rows, groups="group")
    params = {"mu": 1.0, "tau": 2.0}
    first = {name: array[:3] for name, array in rows.items()}
    local = converted.local.derived(params, {"z": jnp.arange(3.0)}, first)
    assert {name: value.tolist() for name, value in local.items()} == {"alpha": [1.0, 3.0, 5.0]}
    assert converted.derived(params) == {"variance": 4.0}


def shares(pm, group, x, y, mu, tau):
    concentration = pm.math.exp(mu) * np.ones(3)
    share = pm.Dirichlet("share", concentration, dims=("group", "kind"))
    pm.Categorical("kinds", share[group], observed=(y > 0) + 1 * (y > 1))


def latent_scale(pm, group, x, y, mu, tau):
    sd = pm.LogNormal("sd", mu, tau, dims="group")
    share = pm.Beta("share", 2, 2, dims="group")
    pm.Normal("likelihood", share[group] * x, sd[group], observed=y)


@pytest.mark.parametrize(
    ("likelihood", "shapes"), [(shares, {"share": (3,)}), (latent_scale, {"sd": (), "share": ()})]
)
def test_local_variables_may_have_any_space(likelihood, shapes, groups, pm):
    rows = groups.rows(num_rows=30)  # more than 127 together
    converted = vcmc.from_pymc(with_likelihood(pm, rows, likelihood), rows, groups="group")
    assert {name: part.shape for name, part in converted.local.space.items()} == shapes


def with_likelihood(pm, rows, likelihood):
    with pm.Model(coords={"group": np.arange(8), "kind": np.arange(3)}) as model:
        data = (pm.Data(name, rows[name]) for name in ("group", "x", "y"))
        likelihood(pm, *data, pm.Normal("mu", 0, 1), pm.HalfNormal("tau", 1))
    return model


def two_groups_in_a_row(pm, group, x, y, mu, tau):
    alpha = pm.Normal("alpha", mu, tau, dims="group")
    pm.Normal("likelihood", alpha[group] + alpha[(group + 1) % 8], 1.0, observed=y)


def used_by_all_groups(pm, group, x, y, mu, tau):
    alpha = pm.Normal("alpha", mu, tau, dims="group")
    pm.Normal("likelihood", alpha[group] + 0.01 * alpha.mean(), 1.0, observed=y)


def random_walk(pm, group, x, y, mu, tau):
    start = pm.Normal.dist(0, 1)
    alpha = pm.GaussianRandomWalk("alpha", mu, tau, init_dist=start, dims="group")
    pm.Normal("likelihood", alpha[group], 1.0, observed=y)


def sum_of_zero(pm, group, x, y, mu, tau):
    alpha = pm.ZeroSumNormal("alpha", tau, dims="group")
    pm.Normal("likelihood", alpha[group], 1.0, observed=y)


def discrete(pm, group, x, y, mu, tau):
    alpha = pm.Poisson("alpha", tau, dims="group")
    pm.Normal("likelihood", alpha[group], 1.0, observed=y)


def fixed_observations(pm, group, x, y, mu, tau):
    alpha = pm.Normal("alpha", mu, tau, dims="group")
    pm.Normal("likelihood", alpha[group], 1.0, observed=np.zeros(40))


def without_dims(pm, group, x, y, mu, tau):
    alpha = pm.Normal("alpha", mu, tau, shape=8)
    pm.Normal("likelihood", alpha[group], 1.0, observed=y)


def potential(pm, group, x, y, mu, tau):
    pm.Potential("penalty", -(mu**2))
    two_groups_in_a_row(pm, group, x, y, mu, tau)


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (two_groups_in_a_row, "the local parameters of its own group only"),
        (used_by_all_groups, "the local parameters of its own group only"),
        (random_walk, "'alpha' has one joint distribution over all groups"),
        (sum_of_zero, "'alpha' has one joint distribution over all groups"),
        (discrete, "'alpha' is discrete"),
        (fixed_observations, "observes an array that is fixed in the model"),
        (without_dims, "no free random variable has this dim"),
        (potential, r"cannot have pm\.Potential"),
    ],
)
def test_models_that_are_not_hierarchical_by_group_are_refused(likelihood, message, groups, pm):
    rows = groups.rows()
    with pytest.raises(ValueError, match=message):
        vcmc.from_pymc(with_likelihood(pm, rows, likelihood), rows, groups="group")


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
