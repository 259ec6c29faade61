"""PyMC models: the same density as in NumPyro and in JAX, what is refused, and the way back to
PyMC."""

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
import xarray

import vcmc
from vcmc.cli.inputs import load_model
from vcmc.density import Subposterior, evaluate
from vcmc.target import Target

# The models here take shapes from their data.
pytestmark = pytest.mark.filterwarnings("ignore:pm.sample_posterior_predictive would draw")

generator = np.random.default_rng(0)
NUM_ROWS = 400
X = generator.normal(size=(NUM_ROWS, 2))
ROWS = {"x": X, "y": (generator.random(NUM_ROWS) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype(int)}
COUNTS = {"kind": generator.integers(0, 3, NUM_ROWS), "z": generator.normal(0.3, size=NUM_ROWS)}
Y = {"y": generator.normal(size=60)}


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
    return vcmc.infer(model, ROWS, num_shards=2, num_draws=1000, seed=4, combiner=consensus)


@pytest.mark.slow
def test_the_same_density_has_the_same_posterior(tree):
    """NumPyro's is left out, as its density was shown to be the same, and a sampler takes five
    seconds to compile."""
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
    assert list(load_model(f"{tmp_path / 'with_pymc.py'}:model", Y).space) == ["mean"]


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


def test_potentials_count_where_they_are_declared(pm, around):
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
            r"pm.Potential\('total'\) is declared as likelihood and must have one value "
            r"per row; got shape \(\)",
        ),
        (
            {"prior_potentials": ["penalty", "total"], "likelihood_potentials": ["fit"]},
            "the prior depends on the rows",
        ),
    ],
)
def test_potentials_that_cannot_be_are_refused(pm, declared, message, around):
    with pytest.raises(ValueError, match=message):
        vcmc.from_pymc(around(pm, with_potential), Y, **declared)


def test_deterministic_values_that_depend_on_rows_are_left_out_and_named(pm, around):
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


def test_what_is_not_a_pymc_model_is_refused(pm):
    with pytest.raises(TypeError, match=r"must be a pymc\.Model; got function"):
        vcmc.from_pymc(numpyro_logistic, ROWS)


def test_without_pymc_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymc", None)
    with pytest.raises(ImportError, match=r"pip install 'vcmc\[pymc\]'"):
        vcmc.from_pymc(None, ROWS)


# Back to the user's own tools


def assert_predicts(tree, bought):
    """Predictions have each draw's own probability, so that they are larger where it is, row by
    row."""
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
    assert bought.shape == (4, 250, NUM_ROWS)
    assert_predicts(tree, np.concatenate(bought))


def test_draws_go_back_to_numpyro(tree):
    draws = vcmc.posterior_draws(tree)
    predict = numpyro.infer.Predictive(numpyro_logistic, posterior_samples=draws)
    bought = predict(jax.random.key(0), x=X)["bought"]
    assert_predicts(tree, bought)


def test_draws_go_back_to_arviz(pm, tree):
    arviz = pytest.importorskip("arviz")
    if int(arviz.__version__.split(".")[0]) < 1:  # from ArviZ 1.0 trees are its own
        tree_for_arviz = arviz.InferenceData.from_datatree(tree)
    else:
        tree_for_arviz = tree
    summary = arviz.summary(tree_for_arviz, round_to=12)
    mean = tree["posterior"]["scale"].mean().item()
    np.testing.assert_allclose(float(summary.loc["scale", "mean"]), mean, rtol=1e-6)


COORDS = {"feature": ["age", "income"], "day": np.array(["2024-01-01", "2024-01-02"], "M8[ns]")}


def test_a_potential_can_be_the_whole_likelihood(pm):
    with pm.Model() as original:
        y = pm.Data("y", Y["y"])
        mean = pm.Normal("mean", 0.0, 1.0)
        pm.Potential("fit", -0.5 * (y - mean) ** 2)
    model = vcmc.from_pymc(original, Y, likelihood_potentials=["fit"])
    values = model.log_likelihood({"mean": jnp.asarray(0.5)}, Y)
    np.testing.assert_allclose(values, -0.5 * (Y["y"] - 0.5) ** 2, rtol=1e-12)
    with pytest.raises(ValueError, match=r"or have a pm.Potential that is declared in likelihood"):
        vcmc.from_pymc(original, Y, prior_potentials=["fit"])


def test_a_potential_that_ignores_the_rows_is_no_likelihood(pm):
    with pm.Model() as original:
        pm.Data("y", Y["y"])
        mean = pm.Normal("mean", 0.0, 1.0)
        pm.Potential("fit", -0.5 * (Y["y"] - mean) ** 2)  # fixed in the model
    with pytest.raises(ValueError, match=r"pm.Potential\('fit'\) .* must have one value per row"):
        vcmc.from_pymc(original, Y, likelihood_potentials=["fit"])


@pytest.fixture(scope="module")
def labelled_model(pm):
    """A model whose parameters have dims, with an intercept far from its prior's mean."""
    bought = (generator.random(NUM_ROWS) < 1 / (1 + np.exp(-5 - X @ [1.0, -0.5]))).astype(int)
    with pm.Model(coords=COORDS) as model:
        model.add_coord("shard", length=3)  # also the name of an axis of a result
        x, y = pm.Data("x", X, dims=("row", "feature")), pm.Data("y", bought, dims="row")
        intercepts = pm.Normal("intercepts", 0.0, 5.0, dims="day")
        beta = pm.Normal("beta", 0.0, 1.0, dims="feature")
        shift = pm.Normal("shift", 0.0, 0.1, dims="shard")
        pm.Dirichlet("shares", np.ones((2, 3)), dims=("feature", "shard"))
        pm.Deterministic("odds", pm.math.exp(beta), dims="feature")
        logit = intercepts.sum() + shift.sum() + x @ beta
        pm.Bernoulli("bought", logit_p=logit, observed=y)
    return model


@pytest.fixture(scope="module")
def labelled_tree(pm, labelled_model, tmp_path_factory):
    rows = {name: labelled_model[name].get_value() for name in ("x", "y")}
    model = vcmc.from_pymc(labelled_model, rows)
    folder = tmp_path_factory.mktemp("run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws
        return vcmc.infer(model, rows, num_shards=2, shard_draws=100, store=folder), folder


def assert_is_labelled(tree):
    posterior = tree["posterior"]
    assert posterior["beta"].dims == ("chain", "draw", "feature")
    assert posterior["odds"].dims == ("chain", "draw", "feature")
    assert posterior["intercepts"].dims == ("chain", "draw", "day")
    assert posterior["shift"].dims == ("chain", "draw", "shard")
    assert posterior["shares"].dims == ("chain", "draw", "feature", "shard")
    assert posterior["feature"].values.tolist() == ["age", "income"]
    np.testing.assert_array_equal(posterior["day"].values.astype("M8[ns]"), COORDS["day"])
    if "subposterior" in tree.children:
        shards = tree["subposterior"]
        assert shards["beta"].dims == ("shard", "chain", "draw", "feature")
        assert shards["shift"].dims == ("shard", "chain", "draw", "shift_dim_0")
        assert shards["feature"].values.tolist() == ["age", "income"]
    assert tree["mean_error"]["beta"].dims == ("feature",)


@pytest.mark.slow
def test_results_keep_dims_and_coords(labelled_tree, labelled_model, tmp_path):
    tree, folder = labelled_tree
    assert_is_labelled(tree)
    assert_is_labelled(vcmc.load(folder))
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with xarray.open_datatree(tmp_path / "tree.nc") as loaded:
        assert_is_labelled(loaded)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Zarr has no standard for text yet
        tree.to_zarr(tmp_path / "tree.zarr")
        assert_is_labelled(xarray.open_datatree(tmp_path / "tree.zarr", engine="zarr"))
    rows = {name: labelled_model[name].get_value() for name in ("x", "y")}
    model = vcmc.from_pymc(labelled_model, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws
        assert_is_labelled(vcmc.combine(tree, model=model, rows=rows))
        assert_is_labelled(vcmc.refine(tree, model, rows, min_ess=50))
        combined = vcmc.combine(tree, space=model.space)
    assert combined["posterior"]["beta"].dims == ("chain", "draw", "feature")


@pytest.mark.slow
def test_predictions_use_the_posterior_of_parameters_with_dims(pm, labelled_tree, labelled_model):
    tree, _ = labelled_tree
    posterior = tree["posterior"].to_dataset()
    inputs = [posterior]
    arviz = pytest.importorskip("arviz")
    if int(arviz.__version__.split(".")[0]) < 1:
        inputs.append(arviz.InferenceData.from_datatree(tree))
    else:
        inputs.append(tree)
    logit = posterior["intercepts"].sum("day") + posterior["shift"].sum("shard")
    expected = jax.nn.sigmoid(logit.to_numpy()[..., None] + posterior["beta"].to_numpy() @ X.T)
    for draws in inputs:
        predicted = pm.sample_posterior_predictive(
            draws,
            model=labelled_model,
            random_seed=1,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
        bought = predicted["posterior_predictive"]["bought"].to_numpy()
        assert abs(bought.mean() - expected.mean()) < 0.005  # with draws of the prior: 0.4 off


def test_parameters_that_pymc_would_draw_from_their_prior_are_named(pm):
    with pytest.warns(UserWarning, match=r"'beta' from the prior, .* pm.Data 'x'.*freeze"):
        vcmc.from_pymc(pymc_logistic(pm), ROWS)
