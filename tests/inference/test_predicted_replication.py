"""Posterior checks of rows that `predict` simulates: those of models with groups."""

import copy

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.data.size import FileRows
from vcmc.inference import predicted_replication, prediction
from vcmc.results.tree import make_tree
from vcmc.testing.gaussians import varying_means

LABELS = [f"group {number:02d}" for number in range(24)]
NUM_DRAWS = 40


@pytest.fixture(scope="module")
def tree():
    generator = np.random.default_rng(0)
    groups = {
        "posterior": {
            "mu": np.ones((2, 60, 2)),
            "tau": np.ones((2, 60)),
            "alpha": generator.normal(size=(2, 60, 24, 2)),
        },
        "dims": {"alpha": np.array(["group", "entry"])},
        "coords": {"group": np.array(LABELS)},
    }
    return make_tree(groups, {"num_shards": 2, "groups": "group"})


@pytest.fixture(scope="module")
def flat_rows():
    """Rows with one number in every column, as files have them."""
    model, rows = varying_means()
    del model
    columns = {"group": rows["group"], "y0": rows["y"][:, 0], "y1": rows["y"][:, 1]}
    return columns | {"half": np.where(np.arange(200) < 70, "first", "second")}


def simulated(noise=0.0):
    """Return the model with local values of every row's group, and noise."""
    model, rows = varying_means()
    changed = copy.copy(model)

    def simulate(key, params, local, rows):
        import jax

        del params, rows
        return {"y": local["alpha"] + noise * jax.random.normal(key, local["alpha"].shape)}

    changed.simulate_rows = simulate
    return changed, rows


def check(tree, model, rows, **options):
    return vcmc.posterior_check(
        tree, model, rows, "y", num_draws=NUM_DRAWS, progress=False, **options
    )


@pytest.mark.parametrize("max_draws", [3, 1000])
def test_replicates_use_the_local_draws_of_every_group(tree, max_draws, monkeypatch):
    monkeypatch.setattr(predicted_replication, "MAX_VALUE_BYTES", 8 * 2 * 400 * max_draws)
    model, rows = simulated()
    result = check(tree, model, rows, by="group", statistics={"top": np.max, "largest": "largest"})
    assert [line.group for line in result.lines] == LABELS * 2
    chosen = tree["posterior"]["alpha"].to_numpy()[:, ::3]
    expected = chosen.reshape(NUM_DRAWS, 24, 2).max(axis=2).T
    # replicates of a block of draws are those of its chains, one after the other
    for first in (0, 24):
        replicated = result.replicated[first : first + 24]
        np.testing.assert_array_equal(np.sort(replicated), np.sort(expected))
    largest = [rows["y"][rows["group"] == label].max() for label in LABELS]
    np.testing.assert_array_equal(result.observed, largest * 2)


@pytest.fixture(scope="module")
def parquet(flat_rows, tmp_path_factory):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pandas.DataFrame(flat_rows).to_parquet(path, row_group_size=37)
    return path


@pytest.mark.parametrize("statistics", [None, {"range": np.ptp, "first": lambda y: y[0, 0]}])
@pytest.mark.parametrize("by", [None, "half"])
def test_rows_in_files_have_the_result_of_rows_in_memory(
    tree, flat_rows, parquet, statistics, by, monkeypatch
):
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 8 * 4 * NUM_DRAWS * 30)  # 30 rows
    model, rows = simulated(noise=1.0)
    in_memory = check(tree, model, rows | {"half": flat_rows["half"]}, by=by, statistics=statistics)
    columns = {"y": ["y0", "y1"], "group": "group", "half": "half"}
    of_file = check(tree, model, FileRows(parquet, columns), by=by, statistics=statistics)
    assert in_memory.lines == of_file.lines
    np.testing.assert_array_equal(in_memory.observed, of_file.observed)
    np.testing.assert_array_equal(in_memory.replicated, of_file.replicated)


def test_merged_blocks_have_the_statistics_of_all_rows(tree, monkeypatch):
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 8 * 4 * NUM_DRAWS * 30)
    model, rows = simulated(noise=1.0)
    names = ["mean", "sd", "smallest", "q05", "q50", "q95", "largest"]
    functions = {
        "mean": np.mean,
        "sd": lambda y: np.std(y, ddof=1),
        "smallest": np.min,
        "q05": lambda y: np.quantile(y, 0.05),
        "q50": np.median,
        "q95": lambda y: np.quantile(y, 0.95),
        "largest": np.max,
    }
    merged = check(tree, model, rows, statistics=names)
    whole = check(tree, model, rows, statistics=functions)
    np.testing.assert_allclose(merged.observed, whole.observed, rtol=1e-12)
    np.testing.assert_allclose(merged.replicated, whole.replicated, rtol=1e-12)


def test_thinned_quantiles_of_many_blocks_are_close(tree, monkeypatch):
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 8 * 4 * NUM_DRAWS * 10)
    model, rows = simulated(noise=1.0)
    exact = check(tree, model, rows, statistics=["q50", "mean"])
    num_points = 64
    monkeypatch.setattr(predicted_replication, "MIN_POINTS", num_points)
    monkeypatch.setattr(predicted_replication, "MAX_SUMMARY_BYTES", 0)
    thinned = check(tree, model, rows, statistics=["q50", "mean"])
    assert (thinned.replicated[0] != exact.replicated[0]).any()
    np.testing.assert_array_equal(thinned.replicated[1], exact.replicated[1])
    # 400 values in 20 blocks of 20: merged blocks of 80, 160 and 320 are thinned, each of which
    # moves the level by less than 1 / 64; the density at the median is about 0.28
    assert np.abs(thinned.replicated[0] - exact.replicated[0]).max() < 3 / num_points / 0.2


def test_a_partition_in_files_gives_functions_the_order_of_the_rows(tree, tmp_path):
    model, rows = simulated()
    number = np.arange(200.0)
    partition = vcmc.split(
        {"group": np.searchsorted(LABELS, rows["group"]), "y": rows["y"], "number": number},
        4,
        folder=tmp_path / "shards",
    )
    numbered = make_tree(
        {
            "posterior": {
                name: tree["posterior"][name].to_numpy() for name in ("mu", "tau", "alpha")
            },
            "dims": {"alpha": np.array(["group", "entry"])},
            "coords": {"group": np.arange(24)},
        },
        {"num_shards": 4},
    )
    result = check(numbered, model, partition, statistics={"first": lambda y: y[0, 0]})
    assert result.observed.tolist() == [rows["y"][0, 0]]


def test_what_cannot_be_replicated_is_refused(tree, parquet):
    model, rows = simulated()
    columns = {"y": ["y0", "y1"], "group": "group", "half": "half"}
    without = make_tree({"posterior": {"mu": np.ones((1, 9, 2)), "tau": np.ones((1, 9))}}, {})
    with pytest.raises(ValueError, match=r"\['alpha'\], and the tree has none.*locals=\"draws\""):
        check(without, model, rows)
    with pytest.raises(ValueError, match=r"by must be a column of the rows, .*; got 'region'"):
        check(tree, model, FileRows(parquet, columns), by="region")
    with pytest.raises(ValueError, match=r"shape of the rows of rows\['half'\], \(\); got \(2,\)"):
        check(tree, model, FileRows(parquet, columns), observed="half")
    with pytest.raises(ValueError, match=r"data's values of 'y', one of \['group', 'half', 'y0'"):
        check(tree, model, parquet)


def test_the_column_that_the_model_predicts_without_is_the_data(tree):
    """The site is called obs, and its column length."""

    def lengths(group, age, length=None, *, num_groups):
        with numpyro.plate("groups", num_groups):
            alpha = numpyro.sample("alpha", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("obs", dist.Normal(alpha[group, 0] + age, 1.0), obs=length)

    def grouped(group, age, length=None, *, num_groups):
        numpyro.sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("tau", dist.HalfNormal(1))
        lengths(group, age, length, num_groups=num_groups)

    rows = {"group": np.repeat(LABELS, 5), "age": np.zeros(120), "length": np.ones(120)}
    model = vcmc.from_numpyro(grouped, rows, groups="group", num_groups="num_groups")
    result = vcmc.posterior_check(
        tree, model, rows, statistics=["mean"], num_draws=NUM_DRAWS, progress=False
    )
    assert "statistics of 'obs'" in str(result)
    np.testing.assert_allclose(result.observed, 1.0)


def test_the_data_of_an_observed_variable_of_pymc_are_found():
    pm = pytest.importorskip("pymc")
    rows = {"age": np.zeros(60), "bought": np.ones(60)}
    with pm.Model() as pymc_model:
        slope = pm.Normal("slope", 0, 1)
        mean = slope * pm.Data("age", rows["age"])
        pm.Normal("y", mean, 1, observed=pm.Data("bought", rows["bought"]))
    slopes = make_tree({"posterior": {"slope": np.zeros((1, 60))}}, {"num_shards": 2})
    result = vcmc.posterior_check(
        slopes,
        vcmc.from_pymc(pymc_model, rows),
        rows,
        statistics=["mean"],
        num_draws=NUM_DRAWS,
        progress=False,
    )
    np.testing.assert_allclose(result.observed, 1.0)
