"""PyMC models: the same density as in NumPyro and in JAX, what is refused, and the way back to PyMC."""

import sys
import warnings

import arviz_stats
import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import vcmc
from vcmc.cli.jobs import named_model
from vcmc.density import Subposterior, evaluate
from vcmc.target import Target

generator = np.random.default_rng(0)
NUM_ROWS = 400
X = generator.normal(size=(NUM_ROWS, 2))
ROWS = {"x": X, "y": (generator.random(NUM_ROWS) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype(int)}
COUNTS = {"kind": generator.integers(0, 3, NUM_ROWS), "z": generator.normal(0.3, size=NUM_ROWS)}
Y = {"y": generator.normal(size=60)}


@pytest.fixture(scope="module")
def pm():
    """PyMC, imported once and late: it takes four seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("pymc")


def pymc_logistic(pm):
    with pm.Model() as model:
        x, y = pm.Data("x", ROWS["x"]), pm.Data("y", ROWS["y"])
        scale = pm.LogNormal("scale", 0.0, 0.3)
        beta = pm.Normal("beta", 0.0, scale, shape=x.shape[1])
        pm.Deterministic("variance", scale**2)
        pm.Bernoulli("bought", logit_p=x @ beta, observed=y)
    return model


def numpyro_logistic(x, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.3))
    beta = numpyro.sample("beta", dist.Normal(0, scale).expand([2]).to_event(1))
    numpyro.sample("bought", dist.Bernoulli(logits=x @ beta), obs=y)


JAX_LOGISTIC = vcmc.Model(
    space={"scale": vcmc.Positive(), "beta": vcmc.Real(2)},
    log_prior=lambda params: (
        -0.5 * (jnp.log(params["scale"]) / 0.3) ** 2
        - 3 * jnp.log(params["scale"])
        - 0.5 * jnp.sum((params["beta"] / params["scale"]) ** 2)
    ),
    log_likelihood=lambda params, rows: (
        -jax.nn.softplus(-(2 * rows["y"] - 1) * (rows["x"] @ params["beta"]))
    ),
)


def pymc_counts(pm):
    with pm.Model() as model:
        kind, z = pm.Data("kind", COUNTS["kind"]), pm.Data("z", COUNTS["z"])
        shares = pm.Dirichlet("shares", np.array([1.0, 2.0, 3.0]))
        centre = pm.Uniform("centre", -1.0, 2.0)
        pm.Categorical("k", p=shares, observed=kind)
        pm.Normal("value", centre, 1.0, observed=z)
    return model


def numpyro_counts(kind, z):
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    centre = numpyro.sample("centre", dist.Uniform(-1.0, 2.0))
    with numpyro.plate("rows", kind.shape[0]):
        numpyro.sample("k", dist.Categorical(shares), obs=kind)
        numpyro.sample("value", dist.Normal(centre, 1.0), obs=z)


JAX_COUNTS = vcmc.Model(
    space={"shares": vcmc.Simplex(3), "centre": vcmc.Interval(-1.0, 2.0)},
    log_prior=lambda params: jnp.sum(jnp.array([0.0, 1.0, 2.0]) * jnp.log(params["shares"])),
    log_likelihood=lambda params, rows: (
        jnp.log(params["shares"])[rows["kind"]] - 0.5 * (rows["z"] - params["centre"]) ** 2
    ),
)


@pytest.fixture(scope="module")
def logistic(pm):
    return vcmc.from_pymc(pymc_logistic(pm), ROWS)


@pytest.fixture(scope="module")
def counts(pm):
    return vcmc.from_pymc(pymc_counts(pm), COUNTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "in_numpyro", "in_jax"),
    [
        ("logistic", ROWS, numpyro_logistic, JAX_LOGISTIC),
        ("counts", COUNTS, numpyro_counts, JAX_COUNTS),
    ],
)
def test_the_same_model_has_the_same_density_in_all_languages(
    name, rows, in_numpyro, in_jax, request
):
    models = [request.getfixturevalue(name), vcmc.from_numpyro(in_numpyro, rows), in_jax]
    shard = vcmc.split(rows, 3).load(0)
    points = jax.random.normal(jax.random.key(0), (6, in_jax.space.dim))
    found = [evaluate(Subposterior(model, shard, jnp.asarray(1 / 3)), points) for model in models]
    for model, (values, scores) in zip(models, found, strict=True):
        assert model.space.coordinates == in_jax.space.coordinates
        assert values.dtype == jnp.float64
        np.testing.assert_allclose(values - values[0], found[-1][0] - found[-1][0][0], atol=1e-8)
        np.testing.assert_allclose(scores, found[-1][1], atol=1e-8)


@pytest.fixture(scope="module")
def tree(logistic):
    return inferred(logistic)


def inferred(model):
    consensus = vcmc.combiners.Consensus()  # least to compile
    return vcmc.infer(model, ROWS, num_shards=2, num_draws=500, seed=4, combiner=consensus)


@pytest.mark.slow
def test_the_same_density_has_the_same_posterior(tree):
    """NumPyro's is left out, as its density was shown to be the same, and a sampler takes five seconds to compile."""
    found = [tree, inferred(JAX_LOGISTIC)]
    for name in ("scale", "beta"):
        first, second = (
            each["posterior"][name].mean(("chain", "draw")).to_numpy() for each in found
        )
        errors = [arviz_stats.mcse(each, var_names=[name])[name].to_numpy() for each in found]
        np.testing.assert_array_less(np.abs(first - second), 4 * np.hypot(*errors))
    np.testing.assert_allclose(tree["posterior"]["variance"], tree["posterior"]["scale"] ** 2)


@pytest.mark.slow
def test_another_process_finds_the_same_densities(logistic):
    shards = [vcmc.split(ROWS, 2).load(k) for k in range(2)]
    points = jax.random.normal(jax.random.key(1), (4, 3))
    with vcmc.executors.Processes(1) as there:
        found = Target(logistic, shards, there)(points)
    for here, other in zip(
        Target(logistic, shards, vcmc.executors.Local())(points), found, strict=True
    ):
        np.testing.assert_array_equal(here, other)


def test_a_pickled_model_is_the_same(logistic):
    twin = cloudpickle.loads(cloudpickle.dumps(logistic))
    params = logistic.space.constrain(jnp.array([0.1, 0.2, 0.3]))
    np.testing.assert_array_equal(
        jax.jit(twin.log_likelihood)(params, ROWS), jax.jit(logistic.log_likelihood)(params, ROWS)
    )
    assert float(jax.jit(twin.log_prior)(params)) == float(jax.jit(logistic.log_prior)(params))


def test_pymc_leaves_the_process_as_it_was(logistic):
    del logistic
    assert jax.device_count() == 1  # PyMC's JAX samplers ask for a hundred


def test_a_file_may_hold_a_pymc_model(pm, tmp_path):
    (tmp_path / "with_pymc.py").write_text(
        "import numpy as np, pymc as pm\n"
        "with pm.Model() as model:\n"
        "    y = pm.Data('y', np.zeros(3))\n"
        "    pm.Normal('obs', pm.Normal('mean'), 1.0, observed=y)\n"
    )
    assert list(named_model(f"{tmp_path / 'with_pymc.py'}:model", Y).space) == ["mean"]


# Spaces


def transform(pm, name):
    return getattr(pm.distributions.transforms, name)


SPACES = {
    "ordered": (
        lambda pm: pm.Normal(
            "a", 0, 1, shape=3, transform=transform(pm, "ordered"), initval=[0.0, 1.0, 2.0]
        ),
        "Ordered(shape=(3,))",
        dist.Normal(0, 1).log_prob,
    ),
    "lower": (
        lambda pm: pm.TruncatedNormal("a", 0.0, 1.0, lower=0.0),
        "Positive(shape=())",
        dist.HalfNormal(1).log_prob,
    ),
    "lower, not 0": (
        lambda pm: pm.Pareto("a", 3.0, 1.5, shape=2),
        "Space(GreaterThan(lower_bound=1.5), shape=(2,))",
        dist.Pareto(1.5, 3.0).log_prob,
    ),
    "upper": (
        lambda pm: pm.TruncatedNormal("a", 0.0, 1.0, upper=-1.0),
        "Space(LessThan(upper_bound=-1.0), shape=())",
        dist.Normal(0, 1).log_prob,
    ),
    "unit": (
        lambda pm: pm.LogitNormal("a", 0.0, 1.0, shape=2),
        "Interval(shape=(2,))",
        lambda a: -0.5 * jax.scipy.special.logit(a) ** 2 - jnp.log(a * (1 - a)),
    ),
    "zero sum": (
        lambda pm: pm.ZeroSumNormal("a", shape=3),
        "Space(PyMC's ZeroSumTransform, shape=(3,))",
        dist.Normal(0, 1).log_prob,
    ),
    "no transform": (
        lambda pm: pm.HalfNormal("a", 1.0, default_transform=None),
        "Positive(shape=())",
        dist.HalfNormal(1).log_prob,
    ),
    "matrix": (
        lambda pm: pm.Wishart("a", nu=4, V=np.eye(2)),
        "PositiveDefinite(shape=(2, 2))",
        dist.Wishart(4, scale_matrix=np.eye(2)).log_prob,
    ),
}


def around(pm, make, rows=Y):
    """A model that observes normal rows, with whatever is made in it."""
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore")
        data = {name: pm.Data(name, value) for name, value in rows.items()}
        free = make(pm, **data) if make.__code__.co_argcount > 1 else make(pm)
        if not model.observed_RVs:
            pm.Normal("obs", free.sum() if free is not None else 0.0, 1.0, observed=data["y"])
    return model


@pytest.mark.parametrize("name", SPACES)
def test_spaces_are_those_of_the_supports(pm, name):
    make, expected_space, expected_prior = SPACES[name]
    model = vcmc.from_pymc(around(pm, make), Y)
    assert str(model.space["a"]) == expected_space

    @jax.jit
    def look(point):
        params, log_det = model.space.constrain_with_log_det(point)
        slopes = jax.jacobian(lambda point: model.space.constrain(point)["a"].reshape(-1))(point)
        return params, log_det, slopes, model.space.unconstrain(params), model.log_prior(params)

    point = np.random.default_rng(2).normal(size=model.space.dim)
    params, log_det, slopes, back, log_prior = look(point)
    other, *_, other_log_prior = look(0.5 * point)
    np.testing.assert_allclose(back, point, atol=1e-10)
    expected = np.sum(expected_prior(params["a"])) - np.sum(expected_prior(other["a"]))
    np.testing.assert_allclose(
        log_prior - other_log_prior, expected, atol=1e-10
    )  # PyMC's constants have 32 bits
    if name == "matrix":  # as many coordinates as numbers on and below the diagonal
        slopes = slopes[np.array([0, 2, 3])]
    volume = 0.5 * np.linalg.slogdet(slopes.T @ slopes)[1]
    np.testing.assert_allclose(log_det, volume, atol=1e-10)


def test_bounds_may_depend_on_parameters(pm):
    def nested(pm):
        width = pm.HalfNormal("width", 1.0)
        return pm.Uniform("a", -width, 2 * width)

    model = vcmc.from_pymc(around(pm, nested), Y)
    params, log_det = model.space.constrain_with_log_det(jnp.array([0.7, 0.0]))
    np.testing.assert_allclose(params["a"], 0.5 * params["width"])  # the middle
    np.testing.assert_allclose(log_det, 0.7 + jnp.log(3 * params["width"] / 4))


@pytest.mark.slow
def test_cholesky_factors_of_covariances(pm):
    rows = {"x": X}

    def covariance(pm, x):
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0))
        pm.MvNormal("obs", mu=np.zeros(2), chol=chol, observed=x)

    model = vcmc.from_pymc(around(pm, covariance, rows), rows)
    params = model.space.constrain(jnp.array([0.3, -0.2, 0.1]))
    np.testing.assert_allclose(params["chol"], [np.exp(0.3), -0.2, np.exp(0.1)])
    root = np.array([[params["chol"][0], 0.0], [params["chol"][1], params["chol"][2]]])
    expected = scipy.stats.multivariate_normal(np.zeros(2), root @ root.T).logpdf(X)
    np.testing.assert_allclose(jax.jit(model.log_likelihood)(params, rows), expected, rtol=1e-10)
    assert model.derived(params)["chol_corr"].shape == (2, 2)


def test_space_can_say_more_than_the_support(pm):
    def mixture(pm, y):
        centres = pm.Normal("centres", 0, 3, shape=3)
        pm.NormalMixture("obs", w=np.ones(3) / 3, mu=centres, sigma=1.0, observed=y)

    model = around(pm, mixture)
    exchangeable = vcmc.Exchangeable(3, vcmc.Real())
    assert (
        vcmc.from_pymc(model, Y, space={"centres": exchangeable}).space["centres"] is exchangeable
    )
    with pytest.raises(ValueError, match=r"must have the variable's shape \(3,\)"):
        vcmc.from_pymc(model, Y, space={"centres": vcmc.Real(2)})
    with pytest.raises(ValueError, match="the free random variables are"):
        vcmc.from_pymc(model, Y, space={"center": exchangeable})


# Rows, data, potentials, deterministic values


def test_other_data_are_constants_and_dims_may_follow_the_rows(pm):
    with pm.Model(coords={"feature": ["a", "b"]}) as original:
        x = pm.Data("x", X, dims=("row", "feature"))
        y = pm.Data("y", X[:, 0], dims="row")
        width = pm.Data("width", 3.0)
        beta = pm.Normal("beta", 0.0, width, dims="feature")
        pm.Normal("obs", x @ beta, 1.0, observed=y, dims="row")
    rows = {"x": X[:8], "y": X[:8, 1]}
    model = vcmc.from_pymc(original, rows)
    params = {"beta": jnp.array([0.5, -1.0])}
    np.testing.assert_allclose(
        model.log_prior(params), dist.Normal(0, 3).log_prob(params["beta"]).sum()
    )
    expected = dist.Normal(X[:8] @ params["beta"], 1).log_prob(X[:8, 1])
    np.testing.assert_allclose(model.log_likelihood(params, rows), expected, rtol=1e-12)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="must have 2 axes"):
        vcmc.from_pymc(original, pandas.DataFrame({"x": X[:, 0], "y": X[:, 1]}))


def with_potential(pm, y):
    mean = pm.Normal("mean")
    pm.Potential("penalty", -(mean**4))
    pm.Potential("fit", -0.5 * (y - mean) ** 2)
    pm.Potential("total", -0.5 * ((y - mean) ** 2).sum())
    pm.Normal("obs", mean, 1.0, observed=y)


def test_potentials_count_where_they_are_declared(pm):
    original = around(pm, with_potential)
    del original.potentials[-1]
    model = vcmc.from_pymc(original, Y, prior_potentials=["penalty"], likelihood_potentials=["fit"])
    params = {"mean": jnp.asarray(0.5)}
    np.testing.assert_allclose(model.log_prior(params), dist.Normal(0, 1).log_prob(0.5) - 0.5**4)
    expected = dist.Normal(0.5, 1).log_prob(Y["y"]) - 0.5 * (Y["y"] - 0.5) ** 2
    np.testing.assert_allclose(model.log_likelihood(params, Y), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({}, r"pm.Potential\('penalty'\) may belong to the prior or to the likelihood.*declare it"),
        ({"prior_potentials": ["penalties"]}, "declared but not in the model"),
        (
            {"prior_potentials": ["penalty"], "likelihood_potentials": ["fit", "total"]},
            r"pm.Potential\('total'\) is declared a likelihood and must have one value per row; got shape \(\)",
        ),
        (
            {"prior_potentials": ["penalty", "total"], "likelihood_potentials": ["fit"]},
            "the prior depends on the rows",
        ),
    ],
)
def test_potentials_that_cannot_be_are_refused(pm, declared, message):
    with pytest.raises(ValueError, match=message):
        vcmc.from_pymc(around(pm, with_potential), Y, **declared)


def test_deterministic_values_that_depend_on_rows_are_left_out_and_named(pm):
    def deterministic(pm, y):
        mean = pm.Normal("mean")
        pm.Deterministic("square", mean**2)
        pm.Deterministic("each", mean + y)
        pm.Deterministic("total", mean * y.sum())
        pm.Normal("obs", mean, 1.0, observed=y)

    with pytest.warns(
        UserWarning, match="deterministic 'each', 'total' depend on the rows"
    ) as warned:
        model = vcmc.from_pymc(around(pm, deterministic), Y)
    assert [each.filename for each in warned if "'each'" in str(each.message)] == [__file__]
    assert {
        name: float(value) for name, value in model.derived({"mean": jnp.asarray(3.0)}).items()
    } == {"square": 9.0}


# What is refused


def latent_per_row(pm, y):
    pm.Normal("obs", pm.Normal("effect", 0, 1, shape=y.shape[0]), 1.0, observed=y)


def latent_of_fixed_size(pm, y):
    pm.Normal("obs", pm.Normal("effect", 0, 1, shape=60), 1.0, observed=y)


def fixed_shape(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, shape=60, observed=y)


def discrete(pm, y):
    pm.Normal("obs", pm.Bernoulli("kind", 0.5), 1.0, observed=y)


def baked_in(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=np.zeros(60))


def not_in_rows(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=pm.Data("other", np.zeros(60)))


def covariate_not_in_rows(pm, y):
    pm.Normal("obs", pm.Normal("mean") * pm.Data("other", np.zeros(60)), 1.0, observed=y)


def joint(pm, y):
    size = y.shape[0]
    import pytensor.tensor as pt

    pm.MvNormal("obs", pm.Normal("mean") * pt.ones(size), cov=pt.eye(size), observed=y)


def random_walk(pm, y):
    pm.GaussianRandomWalk("obs", sigma=pm.HalfNormal("s"), init_dist=pm.Normal.dist(), observed=y)


def columns_beside_rows(pm, y):
    pm.Normal("obs", pm.Normal("mean") * y[:, None], 1.0, observed=y[:, None] + y[None, :])


def scaled(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=y, total_size=600)


def minibatch(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=pm.Minibatch(Y["y"], batch_size=10))


def missing(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=np.ma.masked_greater(Y["y"], 1.0))


def prior_sees_rows(pm, y):
    pm.Normal("obs", pm.Normal("mean", 0.0, y.std()), 1.0, observed=y)


def bounds_see_rows(pm, y):
    pm.Normal("obs", pm.Uniform("mean", 0.0, abs(y).max()), 1.0, observed=y)


def improper(pm, y):
    pm.Normal("obs", pm.Flat("mean"), 1.0, observed=y)


def nothing_free(pm, y):
    pm.Normal("obs", 0.0, 1.0, observed=y)


def black_box(pm, y):
    import pytensor.tensor as pt
    from pytensor.compile.ops import wrap_py

    double = wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])(lambda value: 2 * value)
    pm.Normal("obs", double(pm.Normal("mean")), 1.0, observed=y)


def simulator(pm, y):
    pm.Simulator(
        "obs",
        lambda rng, mean, size=None: rng.normal(mean, size=size),
        pm.Normal("mean"),
        observed=y,
    )


def bounded_without_transform(pm, y):
    import pytensor.tensor as pt

    a = pm.CustomDist("a", logp=lambda value: pt.log(value) + pt.log(1 - value))
    pm.Normal("obs", a, 1.0, observed=y)


def some_bounds(pm, y):
    a = pm.TruncatedNormal("a", 0.0, 1.0, lower=np.array([0.0, -np.inf]), shape=2)
    pm.Normal("obs", a.sum(), 1.0, observed=y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            latent_per_row,
            r"'effect' has one value per row \(shape \(5,\) for 5 rows, \(7,\) for 7\).*integrate it out",
        ),
        (latent_of_fixed_size, "must run on any number of rows.*hard-coded"),
        (fixed_shape, "must run on any number of rows.*hard-coded"),
        (covariate_not_in_rows, r"Are \['other'\] per row\? Name them in rows too"),
        (discrete, "'kind' is discrete.*sum it out"),
        (baked_in, "'obs' observes is an array that is baked into the model.*pm.Data"),
        (not_in_rows, r"'obs' observes pm.Data \['other'\], which rows do not name"),
        (joint, "one joint distribution over all rows"),
        (random_walk, "one joint distribution over all rows"),
        (columns_beside_rows, r"\(N, 1\) beside \(N,\)"),
        (scaled, "total_size, pm.Minibatch"),
        (minibatch, "total_size, pm.Minibatch"),
        (missing, "PyMC imputes missing values of 'obs'"),
        (prior_sees_rows, "the prior depends on the rows.*pm.Data not in rows"),
        (bounds_see_rows, "the prior depends on the rows"),
        (improper, "improper prior, pm.Flat: give it a proper one"),
        (nothing_free, "must have a free random variable"),
        (black_box, "PyTensor cannot run in JAX"),
        (simulator, "PyTensor cannot run in JAX.*Random"),
        (bounded_without_transform, r"'a' has no density at .*space=\{'a': vcmc.Interval"),
        (some_bounds, "some values of 'a' have bounds and others have none"),
    ],
)
def test_what_cannot_be_sharded_is_refused_with_a_reason(pm, make, message):
    with pytest.raises(ValueError, match=message):
        vcmc.from_pymc(around(pm, make), Y)


def test_a_latent_value_per_row_is_refused_though_its_dims_have_a_fixed_length(pm):
    with pm.Model(coords={"row": np.arange(60)}) as model:
        y = pm.Data("y", Y["y"], dims="row")
        pm.Normal("obs", pm.Normal("effect", dims="row"), 1.0, observed=y)
    with pytest.raises(ValueError, match=r"'effect' has one value per row \(dims \['row'\]\)"):
        vcmc.from_pymc(model, Y)


def test_a_model_that_observes_nothing_or_has_no_data_is_refused(pm):
    with pm.Model() as model:
        pm.Normal("mean")
    with pytest.raises(ValueError, match=r"the model has no pm\.Data"):
        vcmc.from_pymc(model, Y)
    with model:
        pm.Data("y", Y["y"])
    with pytest.raises(ValueError, match="must observe its rows"):
        vcmc.from_pymc(model, Y)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"z": Y["y"]}, r"must be those of pm.Data in the model, \['x', 'y'\]; got \['z'\]"),
        ({"x": X, "y": ROWS["y"][:9]}, "must have the same number of rows"),
        ({"x": X[:, 0], "y": ROWS["y"]}, r"rows\['x'\] must have 2 axes.*got shape \(400,\)"),
        ({"x": X, "y": ROWS["y"] + 0.5}, r"rows\['y'\] must hold whole numbers"),
        ({"x": X}, r"observes pm.Data \['y'\], which rows do not name"),
    ],
)
def test_rows_that_do_not_fit_are_refused(pm, rows, message):
    with pytest.raises(ValueError, match=message):
        vcmc.from_pymc(pymc_logistic(pm), rows)


def test_a_space_may_be_said_where_pymc_has_no_transform(pm):
    model = around(pm, bounded_without_transform)
    found = vcmc.from_pymc(model, Y, space={"a": vcmc.Interval(0, 1)})
    np.testing.assert_allclose(found.log_prior({"a": jnp.asarray(0.25)}), np.log(0.25 * 0.75))


def test_data_of_a_fixed_shape_are_refused(pm):
    with pm.Model() as model:
        y = pm.Data("y", Y["y"], shape=(60,))
        pm.Normal("obs", pm.Normal("mean"), 1.0, observed=y)
    with pytest.raises(ValueError, match=r"has a fixed number of rows, 60.*leave out its shape="):
        vcmc.from_pymc(model, Y)


def test_what_is_not_a_pymc_model_is_refused(pm):
    with pytest.raises(TypeError, match=r"must be a pymc\.Model; got function"):
        vcmc.from_pymc(numpyro_logistic, ROWS)


def test_without_pymc_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(ImportError, match=r"pip install 'vcmc\[pymc\]'"):
        vcmc.from_pymc(None, ROWS)


# Back to the user's own tools


def assert_predicts(tree, bought):
    """Predictions have each draw's own probability, so that they are larger where it is, row by row."""
    probability = jax.nn.sigmoid(vcmc.posterior_draws(tree)["beta"] @ X.T)
    error = jnp.sqrt(jnp.sum(probability * (1 - probability), axis=0)) / len(probability)
    np.testing.assert_array_less(jnp.abs(bought.mean(axis=0) - probability.mean(axis=0)), 5 * error)


def test_draws_go_back_to_pymc(pm, tree):
    from pymc.model.transform.optimization import freeze_dims_and_data

    predicted = pm.sample_posterior_predictive(
        tree["posterior"].to_dataset(),
        model=freeze_dims_and_data(pymc_logistic(pm)),
        random_seed=1,
        progressbar=False,
        compile_kwargs={"mode": "FAST_COMPILE"},
    )
    bought = predicted["posterior_predictive"]["bought"].to_numpy()
    assert bought.shape == (1, 500, NUM_ROWS)
    assert_predicts(tree, bought[0])


def test_draws_go_back_to_numpyro(tree):
    draws = vcmc.posterior_draws(tree)
    predict = numpyro.infer.Predictive(numpyro_logistic, posterior_samples=draws)
    bought = predict(jax.random.key(0), x=X)["bought"]
    assert_predicts(tree, bought)


def test_draws_go_back_to_arviz(pm, tree):
    arviz = pytest.importorskip("arviz")
    convert = getattr(
        arviz.InferenceData, "from_datatree", lambda tree: tree
    )  # from ArviZ 1.0 trees are its own
    summary = arviz.summary(convert(tree), round_to=12)
    mean = tree["posterior"]["scale"].mean().item()
    np.testing.assert_allclose(float(summary.loc["scale", "mean"]), mean, rtol=1e-6)
