"""NumPyro models with groups: which sites are local, and what is refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import mask, scale

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


def test_scales_and_masks_of_rows_are_honoured(converted, groups):
    def varying(group, x, y, *, num_groups):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        with numpyro.plate("groups", num_groups):
            alpha = numpyro.sample("alpha", dist.Normal(mu, 1))
        with scale(scale=jnp.abs(x)), mask(mask=x > 0):
            numpyro.sample("y", dist.Normal(alpha[group], 1.0), obs=y)

    rows = groups.rows()
    alpha = np.linspace(-1, 1, len(rows["y"]))
    found = converted(varying).log_likelihood({"mu": 0.3}, {"alpha": alpha}, rows)
    expected = np.maximum(rows["x"], 0) * dist.Normal(alpha, 1.0).log_prob(rows["y"])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


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


def latent_scale(group, x, y, *, num_groups):
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        sd = numpyro.sample("sd", dist.LogNormal(0, spread))
        bounded = numpyro.sample("bounded", dist.Uniform(-1, 2))
    numpyro.sample("y", dist.Normal(bounded[group] * x, sd[group]), obs=y)


def shares(group, x, y, *, num_groups):
    concentration = numpyro.sample("concentration", dist.Gamma(2, 1))
    with numpyro.plate("groups", num_groups):
        share = numpyro.sample("share", dist.Dirichlet(concentration * jnp.ones(3)))
    numpyro.sample("y", dist.Categorical(share[group]), obs=(y > 0) + 1 * (y > 1))


def effects_by_plate(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups), numpyro.plate("effect", 2):
        effect = numpyro.sample("effects", dist.Normal(0, tau))
    numpyro.sample("y", dist.Normal(effect[0, group] + effect[1, group] * x, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "shapes", "dim"),
    [
        (latent_scale, {"sd": (), "bounded": ()}, 2),
        (shares, {"share": (3,)}, 2),
        (effects_by_plate, {"effects": (2,)}, 2),
    ],
)
def test_local_parameters_may_have_any_space(model, shapes, dim, converted):
    local = converted(model).local
    assert {name: part.shape for name, part in local.space.items()} == shapes
    assert local.space.dim == dim


def test_deterministic_sites_are_global_or_local(converted, groups):
    def model(group, x, y, *, num_groups):
        non_centred(group, x, y, num_groups=num_groups)
        numpyro.deterministic("one", 1.0)

    rows = groups.rows()
    grouped = converted(model, rows)
    params = {"mu": 1.0, "tau": 2.0, "sigma": 1.0}
    values = grouped.local.derived(
        params, {"z": jnp.arange(3.0)}, {n: v[:3] for n, v in rows.items()}
    )
    assert values["alpha"].tolist() == [1.0, 3.0, 5.0]
    assert grouped.derived(params) == {"one": 1.0}


def test_deterministic_sites_of_several_groups_or_rows_are_omitted(converted):
    def model(group, x, y, *, num_groups):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        with numpyro.plate("groups", num_groups):
            alpha = numpyro.sample("alpha", dist.Normal(mu, 1))
        numpyro.deterministic("average", alpha.mean())
        numpyro.deterministic("deviation", alpha - alpha.mean())
        mean = numpyro.deterministic("mean", alpha[group] + x)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    message = "'average', 'deviation', 'mean' depend on rows or on several groups"
    with pytest.warns(UserWarning, match=message):
        grouped = converted(model)
    assert grouped.derived is None
    assert grouped.local.derived is None


def test_axes_of_global_sites_have_names(converted, groups):
    rows = groups.rows() | {"item": np.tile(np.arange(5), 8)}

    def model(group, item, x, y, *, num_groups):
        with numpyro.plate("items", 5):
            difficulty = numpyro.sample("difficulty", dist.Normal(0, 1))
        with numpyro.plate("groups", num_groups):
            ability = numpyro.sample("ability", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(ability[group] - difficulty[item] + x, 1.0), obs=y)

    grouped = converted(model, rows, coords={"items": list("abcde")})
    assert grouped.labels.dims["difficulty"] == ("items",)
    assert grouped.labels.dims["ability"] == ("group",)
    assert grouped.labels.coords["items"].tolist() == list("abcde")


def test_inner_units_of_ragged_groups_are_local(converted, groups):
    """Classes in schools: three classes at most, and unused ones integrate to one."""
    rows = groups.rows(num_groups=8, num_rows=6)
    rows["inner"] = np.minimum(np.tile(np.arange(6), 8) // 2, rows["group"] % 3)

    def model(group, inner, x, y, *, num_groups):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", num_groups):
            outer = numpyro.sample("outer", dist.Normal(0, tau))
            effect = numpyro.sample("effect", dist.Normal(0, 0.5).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(outer[group] + effect[group, inner] + x, 1.0), obs=y)

    grouped, shard = converted(model, rows), groups.shard(rows)
    value = float(grouped.fitted([shard]).log_likelihood_at(jnp.array([np.log(0.7)]), shard))
    expected = 0.0
    for number in range(8):
        of_group = rows["group"] == number
        inner = rows["inner"][of_group]
        covariance = np.eye(6) + 0.7**2 + 0.5**2 * (inner[:, None] == inner)
        residual = (rows["y"] - rows["x"])[of_group]
        expected += dist.MultivariateNormal(jnp.zeros(6), covariance).log_prob(residual)
    assert value == pytest.approx(float(expected), abs=1e-8)


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


def used_by_all_groups(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Normal(0, tau))
    numpyro.sample("y", dist.Normal(alpha[group] + 0.01 * alpha.mean(), 1.0), obs=y)


def used_in_a_few_rows(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Normal(0, tau))
    numpyro.sample("y", dist.Normal(jnp.where(x > 1.2, alpha[0], alpha[group]), 1.0), obs=y)


def used_by_a_global(group, x, y, *, num_groups):
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Normal(0, 1))
    mu = numpyro.sample("mu", dist.Normal(alpha.mean(), 1))
    numpyro.sample("y", dist.Normal(mu + alpha[group], 1.0), obs=y)


def centred_by_hand(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        first = numpyro.sample("first", dist.Normal(0, tau))
        second = numpyro.sample("second", dist.Normal(first.mean(), tau))
    numpyro.sample("y", dist.Normal(first[group] + second[group] * x, 1.0), obs=y)


def discrete_locals(group, x, y, *, num_groups):
    share = numpyro.sample("share", dist.Beta(1, 1))
    with numpyro.plate("groups", num_groups):
        kind = numpyro.sample("kind", dist.Bernoulli(share))
    numpyro.sample("y", dist.Normal(kind[group], 1.0), obs=y)


def joint_rows(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Normal(0, tau))
    numpyro.sample("y", dist.MultivariateNormal(alpha[group], jnp.eye(len(y))), obs=y)


def bounds_of_a_global(group, x, y, *, num_groups):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Uniform(0, tau))
    numpyro.sample("y", dist.Normal(alpha[group], 1.0), obs=y)


def with_factor(group, x, y, *, num_groups):
    non_centred(group, x, y, num_groups=num_groups)
    numpyro.factor("penalty", -1.0)


def fixed_size(group, x, y, *, num_groups):
    del num_groups
    non_centred(group, x, y, num_groups=8)


def without_locals(group, x, y, *, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (two_groups_in_a_row, "the local parameters of its own group only"),
        (used_by_all_groups, "the local parameters of its own group only"),
        (used_in_a_few_rows, "the local parameters of its own group only"),
        (used_by_a_global, "the prior of global parameters .* neither on local parameters"),
        (centred_by_hand, "the prior of local parameters .* independent given the global ones"),
        (dependent_groups, "one joint distribution over all groups"),
        (discrete_locals, "'kind' is discrete"),
        (joint_rows, "'y' has one joint distribution over all rows"),
        (bounds_of_a_global, "the bounds of 'alpha' depend on other parameters"),
        (with_factor, r"site 'penalty' \(factor\) cannot be in a model with groups"),
        (fixed_size, "which is no number in the model but an argument of it"),
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


def test_another_argument_than_the_number_of_groups_is_refused(converted, groups):
    def model(group, item, x, y, *, num_groups, num_items):
        with numpyro.plate("items", num_items):
            difficulty = numpyro.sample("difficulty", dist.Normal(0, 1))
        with numpyro.plate("groups", num_groups):
            ability = numpyro.sample("ability", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(ability[group] - difficulty[item] + x, 1.0), obs=y)

    rows = groups.rows() | {"item": np.tile(np.arange(5), 8)}
    with pytest.raises(ValueError, match="the local parameters of its own group only"):
        converted(model, rows, num_groups="num_items", constants={"num_groups": 8})


def test_a_number_of_groups_among_the_constants_is_not_used(converted, groups):
    shard, point = groups.shard(groups.rows()), jnp.array([0.3, -0.5, 0.1])
    values = [
        float(converted(groups.model, **more).fitted([shard]).log_likelihood_at(point, shard))
        for more in ({}, {"constants": {"num_groups": 3}})
    ]
    assert values[0] == values[1]


def test_declared_factors_are_refused(converted, groups):
    with pytest.raises(ValueError, match="a model with groups cannot have"):
        converted(groups.model, prior_sites=["penalty"])


def test_a_missing_column_of_groups_is_named(converted, groups):
    with pytest.raises(ValueError, match="groups must name a column of the rows"):
        converted(groups.model, groups="county")


def test_a_hierarchical_model_without_groups_is_recognised(groups):
    rows = groups.rows(num_groups=30)
    with pytest.warns(UserWarning, match='groups="group", num_groups="num_groups"'):
        vcmc.from_numpyro(groups.model, rows, constants={"num_groups": 30})
