"""Weights by row: log densities, bad weights, and processes."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Normal

import vcmc
from vcmc.data.weighted import WeightedPartition, weighted
from vcmc.executors import Local
from vcmc.inference.partitioning import as_partition
from vcmc.target import Target

GENERATOR = np.random.default_rng(0)
COUNTS = GENERATOR.integers(0, 4, size=120)
X = GENERATOR.normal(size=120)
COUNTY = np.repeat(np.arange(12), 10)
COUNTS[COUNTY == 5] = 0  # a whole group
POINTS = jnp.asarray(GENERATOR.normal(size=(5, 2)))

PLAIN = vcmc.Model(
    space={"mean": vcmc.Real(), "sd": vcmc.Positive()},
    log_prior=lambda params: Normal(0, 2).log_prob(params["mean"]) - params["sd"],
    log_likelihood=lambda params, rows: Normal(params["mean"], params["sd"]).log_prob(rows["x"]),
)
GROUPED = vcmc.Model(
    space={"mean": vcmc.Real(), "sd": vcmc.Positive()},
    log_prior=lambda params: Normal(0, 2).log_prob(params["mean"]) - params["sd"],
    local_space={"alpha": vcmc.Real()},
    log_local_prior=lambda params, local, group: Normal(params["mean"], params["sd"]).log_prob(
        local["alpha"]
    ),
    log_likelihood=lambda params, local, rows: Normal(local["alpha"], 1.0).log_prob(rows["x"]),
    groups="county",
)


def rows_with(**columns):
    return {"x": X, "county": COUNTY, **columns}


def repeated():
    return {"x": np.repeat(X, COUNTS), "county": np.repeat(COUNTY, COUNTS)}


def log_densities(model, rows, num_shards=3, weights=None):
    partition = as_partition(rows, num_shards, 0, local=model.local, weights=weights)
    target = Target.fitted(model, partition, Local())
    values, scores = target(POINTS)
    return np.asarray(values), np.asarray(scores)


def on_disk(kind, folder, rows):
    if kind == "memory":
        return rows
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(rows)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(rows)
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    return folder / "rows.parquet"


@pytest.mark.parametrize("kind", ["memory", "pandas", "polars", "parquet"])
@pytest.mark.parametrize("model", [PLAIN, GROUPED], ids=["plain", "groups"])
def test_integer_weights_equal_repeated_rows(kind, model, tmp_path):
    rows = on_disk(kind, tmp_path, rows_with(w=COUNTS))
    values, scores = log_densities(model, rows, weights="w")
    expected, expected_scores = log_densities(model, repeated())
    if model is GROUPED:  # a group of weight zero has its prior alone, which integrates to one
        assert 5 not in repeated()["county"]
    np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-8)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("num_shards", [1, 2, 4])
def test_integer_weights_equal_repeated_rows_bit_for_bit_where_sums_are_exact(num_shards):
    """Sums of multiples of 1/32 do not depend on their order: nothing else may differ."""
    model = vcmc.Model(
        space={"mean": vcmc.Real(), "slope": vcmc.Real()},
        log_prior=lambda params: -0.5 * (params["mean"] ** 2 + params["slope"] ** 2),
        log_likelihood=lambda params, rows: (
            -0.5 * (rows["x"] - params["mean"] - params["slope"] * rows["z"]) ** 2
        ),
    )
    generator = np.random.default_rng(4)
    rows = {name: generator.integers(-8, 8, size=120) / 4 for name in ("x", "z")}
    points = jnp.asarray(generator.integers(-8, 8, size=(5, 2)) / 4)
    repeats = {name: np.repeat(array, COUNTS) for name, array in rows.items()}
    results = []
    for given, weights in ((rows | {"w": COUNTS}, "w"), (repeats, None)):
        partition = as_partition(given, num_shards, 0, weights=weights)
        results.append(Target(model, partition, Local())(points))
    for weighted_values, repeated_values in zip(*results, strict=True):
        np.testing.assert_array_equal(weighted_values, repeated_values)


@pytest.mark.parametrize("model", [PLAIN, GROUPED], ids=["plain", "groups"])
def test_weights_of_one_change_nothing(model):
    values, scores = log_densities(model, rows_with(w=np.ones(120)), weights="w")
    expected, expected_scores = log_densities(model, rows_with())
    # groups without weights have a program of their own, which rounds otherwise
    tolerance = 0 if model is PLAIN else 1e-13
    np.testing.assert_allclose(values, expected, rtol=tolerance)
    np.testing.assert_allclose(scores, expected_scores, rtol=tolerance, atol=100 * tolerance)


def test_fractions_weigh_log_likelihoods():
    weights = GENERATOR.uniform(size=120)
    values, _ = log_densities(PLAIN, rows_with(w=weights), weights="w")
    for value, point in zip(values, POINTS, strict=True):
        per_row = Normal(point[0], np.exp(point[1])).log_prob(X)
        expected = float(PLAIN.log_prior_at(point) + np.sum(weights * per_row))
        assert value == pytest.approx(expected, abs=1e-8)


def test_rows_that_a_function_loads_have_weights():
    members = vcmc.split(rows_with(), 3).members
    rows = rows_with(w=COUNTS)

    def load(shard):
        return {name: array[members[shard]] for name, array in rows.items()}

    values, _ = log_densities(PLAIN, load, weights="w")
    np.testing.assert_allclose(values, log_densities(PLAIN, repeated())[0], atol=1e-8)


def test_shards_that_are_sent_to_processes_have_their_weights():
    partition = weighted(vcmc.split(rows_with(w=COUNTS), 3), "w")
    sent = partition.subset([1])
    assert sent.has(1)
    assert not sent.has(0)
    np.testing.assert_array_equal(sent.load(1).weights, partition.load(1).weights)
    assert "w" not in sent.load(1).rows
    grouped = as_partition(rows_with(w=COUNTS), 3, 0, local=GROUPED.local, weights="w")
    np.testing.assert_array_equal(grouped.subset([2]).load(2).weights, grouped.load(2).weights)


def test_files_are_weighted_where_they_are_loaded(tmp_path):
    rows = on_disk("parquet", tmp_path, rows_with(w=COUNTS))
    partition = as_partition(rows, 3, 0, tmp_path / "shards", weights="w")
    assert isinstance(partition.subset([1]), WeightedPartition)
    grouped = as_partition(rows, 3, 0, tmp_path / "grouped", local=GROUPED.local, weights="w")
    sent = grouped.subset([1])
    np.testing.assert_array_equal(sent.load(1).weights, grouped.load(1).weights)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.where(np.arange(120) == 7, -1.0, 1.0), "must be finite and not negative; got -1.0"),
        (np.where(np.arange(120) == 7, np.nan, 1.0), r"rows\['w'\] must be finite; got NaN"),
        (np.zeros(120), "must not all be zero; got 120 rows"),
        (np.ones((120, 2)), r"must be one number per row; got \(2,\) numbers"),
        (np.full(120, "a"), r"rows\['w'\] must hold numbers or booleans"),
        (None, r"weights must name a column of the rows, one of \['x', 'county'\]; got 'w'"),
    ],
)
@pytest.mark.parametrize("model", [PLAIN, GROUPED], ids=["plain", "groups"])
def test_bad_weights_get_one_clear_error(model, values, words):
    rows = rows_with() if values is None else rows_with(w=values)
    with pytest.raises(ValueError, match=words):
        vcmc.infer(model, rows, num_shards=2, weights="w")


def test_an_array_is_no_name_of_a_column():
    with pytest.raises(TypeError, match=r"weights must name a column of the rows.*got ndarray"):
        vcmc.infer(PLAIN, rows_with(), num_shards=2, weights=np.ones(120))


def test_a_shard_without_weight_is_refused():
    partition = weighted(vcmc.split(rows_with(w=np.eye(1, 120)[0]), 2), "w")
    empty = next(shard for shard in (0, 1) if 0 not in partition.partition.members[shard])
    with pytest.raises(ValueError, match=rf"of shard {empty} are all zero.*fewer shards"):
        partition.load(empty)


def weighted_posterior(conjugate, weights):
    """Return mean and covariance of a regression with known noise and weights."""
    x, y = conjugate.rows["x"], conjugate.rows["y"]
    precision = x.T @ (weights[:, None] * x) + np.diag(conjugate.prior_precision)
    return np.linalg.solve(precision, x.T @ (weights * y)), np.linalg.inv(precision)


@pytest.fixture(scope="module")
def weights_of_rows():
    return np.random.default_rng(2).exponential(size=1003)


def test_a_weighted_posterior_is_recovered(conjugate, weights_of_rows):
    mean, covariance = weighted_posterior(conjugate, weights_of_rows)
    sds = np.sqrt(np.diag(covariance))
    rows = conjugate.rows | {"w": weights_of_rows}
    tree = vcmc.infer(conjugate.model, rows, num_shards=4, weights="w")
    assert tree.attrs["verdict"] == "good"
    assert tree.attrs["row_weights"] == "w"
    draws = tree["posterior"]["beta"].to_numpy().reshape(-1, 3)
    # means and sds are fitted to full-data scores, which are linear
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sds, np.zeros(3), atol=1e-3)
    np.testing.assert_allclose(draws.std(axis=0) / sds, np.ones(3), atol=1e-2)
    # later verbs take the weights of the result, and need their column
    assert vcmc.diagnose(tree, conjugate.model, rows).verdict == "good"
    with pytest.raises(ValueError, match=r"weights must name a column of the rows"):
        vcmc.diagnose(tree, conjugate.model, conjugate.rows)
    refined = vcmc.refine(tree, conjugate.model, rows, min_ess=200)
    assert refined.attrs["verdict"] == "good"
    assert refined.attrs["row_weights"] == "w"
    again = vcmc.combine(tree, model=conjugate.model, rows=rows)
    assert (again.attrs["verdict"], again.attrs["row_weights"]) == ("good", "w")


def test_unweighted_draws_are_poor_for_weighted_rows(conjugate, weights_of_rows):
    tree = vcmc.infer(conjugate.model, conjugate.rows, num_shards=2)
    rows = conjugate.rows | {"w": weights_of_rows}
    assert vcmc.diagnose(tree, conjugate.model, rows, weights="w").verdict == "poor"


def test_a_run_directory_notices_other_weights(conjugate, weights_of_rows, tmp_path):
    rows = conjugate.rows | {"w": weights_of_rows}
    settings = {"num_shards": 2, "store": tmp_path / "run"}
    tree = vcmc.infer(conjugate.model, rows, weights="w", **settings)
    again = vcmc.infer(conjugate.model, rows, weights="w", **settings)
    np.testing.assert_array_equal(again["posterior"]["beta"], tree["posterior"]["beta"])
    with pytest.raises(vcmc.StoreError, match="the rows have changed"):
        vcmc.infer(conjugate.model, rows | {"w": 2 * rows["w"]}, weights="w", **settings)
    with pytest.raises(vcmc.StoreError, match="weights: the run has w, given None"):
        vcmc.infer(conjugate.model, conjugate.rows, **settings)


def test_samplers_that_take_no_weights_give_way():
    model = vcmc.models.Probit(2)
    rows = model.simulate(0, 400).rows | {"w": np.full(400, 2.0)}
    tree = vcmc.infer(model, rows, num_shards=2, num_draws=500, weights="w")
    assert "ProbitGibbs" not in tree.attrs["sampler"]
    gibbs = vcmc.samplers.ProbitGibbs()
    with pytest.raises(ValueError, match="ProbitGibbs takes no weights"):
        vcmc.infer(model, rows, num_shards=2, weights="w", sampler=gibbs)


def test_the_exact_wishart_sampler_takes_weights():
    model = vcmc.models.NormalWishart(2, mean=np.zeros(2))
    x = model.simulate(0, 300, {"precision": np.eye(2)}).rows["x"]
    weights = np.random.default_rng(0).uniform(0.5, 3.0, size=300)
    tree = vcmc.infer(model, {"x": x, "w": weights}, num_shards=1, num_draws=4000, weights="w")
    assert "WishartExact" in tree.attrs["sampler"]
    exact = model.dof + weights.sum(), np.linalg.inv(model.scale) + x.T @ (weights[:, None] * x)
    mean = exact[0] * np.linalg.inv(exact[1])
    draws = tree["posterior"]["precision"].to_numpy().reshape(-1, 2, 2)
    errors = (draws.mean(axis=0) - mean) / draws.std(axis=0)
    np.testing.assert_allclose(errors, np.zeros((2, 2)), atol=4.5 / np.sqrt(4000))


def test_numpyro_models_with_groups_take_weights():
    numpyro = pytest.importorskip("numpyro")

    def radon(x, county, num_counties):
        mean = numpyro.sample("mean", Normal(0, 1))
        with numpyro.plate("counties", num_counties):
            alpha = numpyro.sample("alpha", Normal(mean, 1))
        numpyro.sample("x", Normal(alpha[county], 1.0), obs=x)

    model = vcmc.from_numpyro(radon, rows_with(), groups="county", num_groups="num_counties")
    tree = vcmc.infer(model, rows_with(w=COUNTS), num_shards=2, num_draws=2000, weights="w")
    assert tree["posterior"]["alpha"].sizes["county"] == 12
    # a group's mean given all counts: its sum has variance n + n² (1 + Var mean)
    sizes = np.bincount(COUNTY, COUNTS)
    sums = np.bincount(COUNTY, COUNTS * X)
    has_rows = sizes > 0
    variances = 1 + 1 / sizes[has_rows]
    precision = 1 + np.sum(1 / variances)
    mean = np.sum(sums[has_rows] / sizes[has_rows] / variances) / precision
    draws = tree["posterior"]["mean"].to_numpy()
    assert (draws.mean() - mean) * np.sqrt(precision) == pytest.approx(0, abs=4.5 / np.sqrt(2000))
    assert draws.std() * np.sqrt(precision) == pytest.approx(1, abs=4.5 / np.sqrt(4000))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "parquet"])
def test_processes_sample_the_same_draws(kind, tmp_path):
    rows = on_disk(kind, tmp_path, {"x": X, "w": COUNTS})
    settings = {"num_shards": 2, "num_draws": 2000, "weights": "w"}
    expected = vcmc.infer(PLAIN, rows, **settings)
    with vcmc.executors.Processes(1) as processes:
        found = vcmc.infer(PLAIN, rows, executor=processes, **settings)
    for name in ("mean", "sd"):
        np.testing.assert_array_equal(found["posterior"][name], expected["posterior"][name])
