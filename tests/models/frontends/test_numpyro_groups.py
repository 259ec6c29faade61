"""NumPyro models with groups: which sites are local, and what is refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc


def non_centred(group, x, y, *, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        z = numpyro.sample("z", dist.Normal(0, 1))
        alpha = numpyro.deterministic("alpha", mu + tau * z)
    numpyro.sample("y", dist.Normal(alpha[group] + 0.3 * x, sigma), obs=y)


def correlated(group, x, y, *, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 10).expand([2]).to_event(1))
    tau = numpyro.sample("tau", dist.HalfNormal(1).expand([2]).to_event(1))
    root = numpyro.sample("root", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("groups", num_groups):
        local = numpyro.sample("local", dist.MultivariateNormal(mu, scale_tril=tau[:, None] * root))
    numpyro.sample("y", dist.Normal(local[group, 0] + local[group, 1] * x, 1.0), obs=y)


@pytest.fixture(scope="module")
def converted(groups):
    def convert(model, rows=None, **more):
        more = {"groups": "group", "num_groups": "num_groups"} | more
        return vcmc.from_numpyro(model, rows or groups.rows(), **more)

    return convert


def test_sites_with_one_value_per_group_are_local(converted, groups):
    model = converted(groups.model)
    assert list(model.space) == ["mu", "tau", "sigma"]
    assert list(model.local.space) == ["alpha"]
    assert model.local.space["alpha"].shape == ()
    assert "by group: alpha" in repr(model)


def test_local_sites_may_be_vectors_with_a_correlated_prior(converted, groups):
    model = converted(correlated)
    assert list(model.space) == ["mu", "tau", "root"]
    assert model.local.space["local"].shape == (2,)
    shard = groups.shard(groups.rows())
    fitted = model.fitted([shard])
    assert isinstance(fitted.local.quadrature, vcmc.ExactGaussian)


def test_centred_and_non_centred_models_have_the_same_marginal(converted, groups):
    shard, point = groups.shard(groups.rows()), jnp.array([0.3, -0.5, 0.1])
    values = [
        float(converted(model).fitted([shard]).log_likelihood_at(point, shard))
        for model in (groups.model, non_centred)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-8)


def test_plain_jax_has_the_same_marginal(converted, groups):
    def log_normal(x, mean, sd):
        return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * np.log(2 * np.pi)

    plain = vcmc.Model(
        space={"mu": vcmc.Real(), "tau": vcmc.Positive(), "sigma": vcmc.Positive()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: 0.0,
        log_local_prior=lambda params, local, group: log_normal(
            local["alpha"], params["mu"], params["tau"]
        ),
        log_likelihood=lambda params, local, rows: log_normal(
            rows["y"], local["alpha"] + 0.3 * rows["x"], params["sigma"]
        ),
        groups="group",
    )
    shard, point = groups.shard(groups.rows()), jnp.array([0.3, -0.5, 0.1])
    values = [
        float(model.fitted([shard]).log_likelihood_at(point, shard))
        for model in (plain, converted(groups.model))
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-8)


def test_a_table_of_groups_gives_their_covariates(converted, groups):
    table = {"group": np.arange(8), "height": np.linspace(-1, 1, 8)}

    def model(group, x, y, height, *, num_groups):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", num_groups):
            alpha = numpyro.sample("alpha", dist.Normal(mu * height, tau))
        numpyro.sample("y", dist.Normal(alpha[group] + 0.3 * x, 1.0), obs=y)

    rows, point = groups.rows(), jnp.array([0.7, -0.5])
    grouped = converted(model, rows, group_rows=table)
    shard = groups.shard(rows, table)
    value = float(grouped.fitted([shard]).log_likelihood_at(point, shard))
    expected = 0.0
    for group in range(8):
        y = (rows["y"] - 0.3 * rows["x"])[rows["group"] == group] - 0.7 * table["height"][group]
        covariance = np.eye(len(y)) + np.exp(-1.0)
        expected += dist.MultivariateNormal(jnp.zeros(len(y)), covariance).log_prob(y)
    assert value == pytest.approx(float(expected), abs=1e-8)


def test_crossed_factors_leave_one_global(converted, groups):
    rows = groups.rows() | {"item": np.tile(np.arange(5), 8)}

    def model(group, item, x, y, *, num_groups):
        difficulty = numpyro.sample("difficulty", dist.Normal(0, 1).expand([5]).to_event(1))
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", num_groups):
            ability = numpyro.sample("ability", dist.Normal(0, tau))
        numpyro.sample("y", dist.Normal(ability[group] - difficulty[item] + x, 1.0), obs=y)

    grouped = converted(model, rows)
    assert list(grouped.space) == ["difficulty", "tau"]
    assert list(grouped.local.space) == ["ability"]


def two_groups_in_a_row(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Normal(0, tau))
    numpyro.sample("y", dist.Normal(alpha[group] + alpha[(group + 1) % num_groups], 1.0), obs=y)


def dependent_groups(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    alpha = numpyro.sample("alpha", dist.GaussianRandomWalk(tau, num_steps=num_groups))
    numpyro.sample("y", dist.Normal(alpha[group], 1.0), obs=y)


def one_value_per_row(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Normal(0, tau))
    with numpyro.plate("rows", x.shape[0]):
        noise = numpyro.sample("noise", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(alpha[group] + noise, 1.0), obs=y)


def without_locals(group, x, y, *, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (two_groups_in_a_row, "the local parameters of its own group only"),
        (dependent_groups, "independent given the global ones"),
        (one_value_per_row, "'noise' has one value per row"),
        (without_locals, "no latent site has one value per group"),
    ],
)
def test_models_that_are_not_hierarchical_by_group_are_refused(model, message, converted):
    with pytest.raises(ValueError, match=message):
        converted(model)


def test_a_missing_number_of_groups_is_named(converted, groups):
    with pytest.raises(ValueError, match=r"\['num_groups'\] are missing"):
        converted(groups.model, num_groups=None)


def test_a_missing_column_of_groups_is_named(converted, groups):
    with pytest.raises(ValueError, match="groups must name a column of the rows"):
        converted(groups.model, groups="county")


def test_a_hierarchical_model_without_groups_is_recognised(groups):
    rows = groups.rows(num_groups=30)
    with pytest.warns(UserWarning, match='groups="group", num_groups="num_groups"'):
        vcmc.from_numpyro(groups.model, rows, constants={"num_groups": 30})
