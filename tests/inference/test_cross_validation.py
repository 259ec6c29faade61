"""Leave-one-out cross-validation and WAIC, against published numbers, closed forms and ArviZ."""

import os
from pathlib import Path

import arviz_stats
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import multivariate_normal, norm
from xarray import Dataset, DataTree

import vcmc
from vcmc.executors import Processes
from vcmc.results.tree import make_tree
from vcmc.testing.gaussians import varying_means

DATA = Path(os.environ.get("VCMC_DATA", Path(__file__).parents[3] / "shared" / "data"))
LOG_TWO_PI = float(np.log(2 * np.pi))
LOGISTIC = vcmc.Model(
    space={"beta": vcmc.Real(3)},
    log_prior=lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
    log_likelihood=lambda params, rows: (
        -jnp.logaddexp(0.0, (1 - 2 * rows["y"]) * (rows["x"] @ params["beta"]))
    ),
)


def wells():
    """Return rows of two models of who switched wells: linear, and logarithmic, in arsenic."""
    path = DATA / "wells.npz"
    if not path.exists():
        pytest.skip(f"needs the published data {path.name}; its folder is VCMC_DATA")
    data = np.load(path)
    ones, distance = np.ones(len(data["dist"])), data["dist"] / 100
    return {
        name: {"x": np.stack([ones, distance, arsenic], axis=1), "y": data["switched"]}
        for name, arsenic in (("linear", data["arsenic"]), ("log", np.log(data["arsenic"])))
    }


def arviz_loo(tree, log_likelihoods):
    """Return ArviZ's result for the whole matrix of draws and rows."""
    chains, draws = (tree["posterior"].sizes[dim] for dim in ("chain", "draw"))
    matrix = log_likelihoods.reshape(chains, draws, -1)
    groups = {
        "posterior": tree["posterior"].to_dataset(),
        "log_likelihood": Dataset({"y": (("chain", "draw", "row"), matrix)}),
    }
    return arviz_stats.loo(DataTree.from_dict(groups), pointwise=True)


def assert_same(result, expected, tolerance=1e-6):
    for name in ("elpd", "se", "p", "good_k"):
        assert result[name] == pytest.approx(expected[name], abs=tolerance)
    for name in ("n_samples", "n_data_points", "scale", "warning", "kind"):
        assert result[name] == expected[name]
    for name in ("elpd_i", "pareto_k"):
        np.testing.assert_allclose(result[name], expected[name], rtol=0, atol=tolerance)


def exact_tree(conjugate, num_chains=1, num_draws=4000):
    """Return a tree of independent draws from the known posterior."""
    draws = np.random.default_rng(5).multivariate_normal(
        *conjugate.posterior(), size=(num_chains, num_draws)
    )
    return make_tree({"posterior": {"beta": draws}}, {"num_shards": 3})


def log_likelihoods(conjugate, tree):
    beta = vcmc.posterior_draws(tree)["beta"]
    return -0.5 * (conjugate.rows["y"] - beta @ conjugate.rows["x"].T) ** 2


@pytest.mark.slow
def test_wells_have_the_published_scores_and_those_of_arviz():
    """elpd_loo -1968.5 and -1952.0, p_loo 3.2, difference 16.3 ± 4.4, from four shards."""
    results = {}
    published = {"linear": (-1968.5, 15.6, 3.2), "log": (-1952.0, 16.2, 3.0)}
    for name, rows in wells().items():
        tree = vcmc.infer(LOGISTIC, rows, num_shards=4, progress=False)
        results[name] = vcmc.loo(tree, LOGISTIC, rows, progress=False)
        elpd, se, p = published[name]
        assert results[name].elpd == pytest.approx(elpd, abs=0.3)
        assert results[name].se == pytest.approx(se, abs=0.1)
        assert results[name].p == pytest.approx(p, abs=0.3)
        assert not results[name].warning
        beta = vcmc.posterior_draws(tree)["beta"]
        matrix = -np.logaddexp(0, (1 - 2 * rows["y"]) * (beta @ rows["x"].T))
        assert_same(results[name], arviz_loo(tree, matrix))
        waic = vcmc.waic(tree, LOGISTIC, rows, progress=False)
        assert waic.elpd == pytest.approx(results[name].elpd, abs=0.1)
        assert waic.p == pytest.approx(results[name].p, abs=0.1)
    table = vcmc.loo_compare(results)
    assert list(table.index) == ["log", "linear"]
    assert table["elpd_diff"]["linear"] == pytest.approx(16.3, abs=0.3)
    assert table["dse"]["linear"] == pytest.approx(4.4, abs=0.1)


@pytest.mark.parametrize("num_chains", [1, 4])
def test_regression_has_its_exact_log_predictive_densities(conjugate, num_chains):
    """A row that is left out is normal around its prediction, with the noise's variance 1."""
    tree = exact_tree(conjugate, num_chains, 4000 // num_chains)
    result = vcmc.loo(tree, conjugate.model, conjugate.rows, progress=False)
    covariance = conjugate.posterior().covariance
    x, y = conjugate.rows["x"], conjugate.rows["y"]
    # the posterior without row n, by the formula for a change of rank one
    leverage = np.einsum("ni,ij,nj->n", x, covariance, x)
    residual = (y - x @ conjugate.posterior().mean) / (1 - leverage)
    sd = np.sqrt(1 / (1 - leverage))
    exact = norm.logpdf(residual, scale=sd) + LOG_TWO_PI / 2  # the model leaves out the constant
    # a log likelihood has an sd of at most 0.35 over the draws, and its mean one of 0.0055
    np.testing.assert_allclose(result.elpd_i, exact, atol=0.03)
    # the sum is off by about sqrt(d / 4000) by the draws' mean
    assert result.elpd == pytest.approx(exact.sum(), abs=0.1)
    assert result.se == pytest.approx(np.sqrt(len(y)) * exact.std(), rel=0.01)
    assert_same(result, arviz_loo(tree, log_likelihoods(conjugate, tree)))
    assert result.elpd_i.dims == ("row",)
    assert result.elpd_i["row"].to_numpy().tolist() == list(range(len(y)))


def test_fewer_draws_are_evenly_spaced(conjugate):
    tree = exact_tree(conjugate, 2, 500)
    result = vcmc.loo(tree, conjugate.model, conjugate.rows, num_draws=200, progress=False)
    fewer = tree.isel(draw=slice(None, None, 5))
    assert result.n_samples == 200
    assert_same(result, arviz_loo(fewer, log_likelihoods(conjugate, fewer)))
    many = vcmc.loo(tree, conjugate.model, conjugate.rows, num_draws=10**6, progress=False)
    assert many.n_samples == 1000


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # of few draws
def test_many_chains_may_give_one_draw_each(conjugate):
    tree = exact_tree(conjugate, 40, 10)
    result = vcmc.loo(tree, conjugate.model, conjugate.rows, num_draws=40, progress=False)
    one_each = exact_tree(conjugate, 1, 40)
    one_each["posterior"]["beta"][0] = tree["posterior"]["beta"].to_numpy()[:, 0]
    expected = vcmc.loo(one_each, conjugate.model, conjugate.rows, progress=False)
    assert_same(result, expected, 1e-10)


@pytest.mark.slow
def test_executors_agree(conjugate):
    tree = exact_tree(conjugate, num_draws=400)
    arguments = tree, conjugate.model, conjugate.rows
    expected = vcmc.loo(*arguments, progress=False)
    with Processes(2) as executor:
        result = vcmc.loo(*arguments, executor=executor, progress=False)
        waic = vcmc.waic(*arguments, executor=executor, progress=False)
    assert_same(result, expected, 1e-12)
    np.testing.assert_allclose(
        waic.elpd_i, vcmc.waic(*arguments, progress=False).elpd_i, rtol=0, atol=1e-12
    )


def test_rows_may_be_split_or_in_files_or_loaded(conjugate, tmp_path):
    tree = exact_tree(conjugate, num_draws=1000)
    rows = conjugate.rows
    expected = vcmc.loo(tree, conjugate.model, rows, progress=False)
    loaded = vcmc.LazyRows(
        lambda shard: {
            name: array[500 * shard :][: 500 + 3 * shard] for name, array in rows.items()
        },
        2,
    )
    files = vcmc.split(rows, 5, folder=tmp_path, progress=False)
    for given in (vcmc.split(rows, 7, seed=1), files, loaded):
        result = vcmc.loo(tree, conjugate.model, given, progress=False)
        assert_same(result, expected, 1e-10)


def test_rows_with_a_large_k_are_named(conjugate):
    """A row far from all others determines the posterior: leaving it out is another one."""
    x, y = (conjugate.rows[name].copy() for name in ("x", "y"))
    x[123], y[123] = 30.0, 90.0
    changed = conjugate._replace(rows={"x": x, "y": y})
    tree = exact_tree(changed, num_draws=1000)
    with pytest.warns(vcmc.DoubtfulWarning, match=r"above 0\.67 for 1 of 1003 rows \(123 \(k = "):
        result = vcmc.loo(tree, conjugate.model, changed.rows, progress=False)
    assert result.warning
    assert np.flatnonzero(result.pareto_k > result.good_k).tolist() == [123]
    assert "very bad" in str(result)
    with pytest.warns(vcmc.DoubtfulWarning, match=r"1 of 1003 rows \(123 \(variance = .*vcmc\.loo"):
        assert vcmc.waic(tree, conjugate.model, changed.rows, progress=False).warning


def exact_without(conjugate, row):
    """Return the log predictive density of a row given all others, in closed form."""
    x, y = (np.delete(conjugate.rows[name], row, axis=0) for name in ("x", "y"))
    mean, covariance = conjugate._replace(rows={"x": x, "y": y}).posterior()
    x_row, y_row = conjugate.rows["x"][row], conjugate.rows["y"][row]
    sd = np.sqrt(1 + x_row @ covariance @ x_row)
    return norm.logpdf(y_row, x_row @ mean, sd) + LOG_TWO_PI / 2


@pytest.mark.parametrize("size", [5.0, 30.0])
def test_moment_matching_leaves_an_outlier_out_as_its_closed_form(conjugate, size):
    """The mean moves by some sds without the row, and the variance along it grows."""
    x, y = (conjugate.rows[name].copy() for name in ("x", "y"))
    x[123] = size
    y[123] = x[123] @ conjugate.posterior().mean + 30
    changed = conjugate._replace(rows={"x": x, "y": y})
    arguments = exact_tree(changed), conjugate.model, changed.rows
    with pytest.warns(vcmc.DoubtfulWarning, match=r"loo\(\.\.\., moment_matching=True\)"):
        plain = vcmc.loo(*arguments, progress=False)
    result = vcmc.loo(*arguments, moment_matching=True, progress=False)
    assert not result.warning
    assert float(result.pareto_k[123]) < result.good_k
    exact = exact_without(changed, 123)
    # weights have an sd of about 1, so that the estimate's is about sqrt(2 / 4000) = 0.022
    assert float(result.elpd_i[123]) == pytest.approx(exact, abs=0.09)
    assert abs(float(plain.elpd_i[123]) - exact) > 0.5
    others = np.arange(len(y)) != 123
    np.testing.assert_array_equal(result.elpd_i[others], plain.elpd_i[others])
    difference = float(result.elpd_i[123] - plain.elpd_i[123])
    assert result.elpd - plain.elpd == pytest.approx(difference, rel=1e-6)
    assert result.p - plain.p == pytest.approx(-difference, rel=1e-6)


def test_moment_matching_moves_draws_of_groups():
    """Means of groups are normal around mu, whose posterior is normal, too."""
    sizes, rng = np.full(12, 5), np.random.default_rng(3)
    label = np.repeat(np.arange(12), sizes)
    y = rng.normal(size=12)[label] + rng.normal(size=60)
    y[label == 7] += 14.0
    model = vcmc.Model(
        space={"mu": vcmc.Real()},
        log_prior=lambda params: dist.Normal(0, 10).log_prob(params["mu"]),
        local_space={"alpha": vcmc.Real()},
        log_local_prior=lambda params, local, group: dist.Normal(params["mu"], 1).log_prob(
            local["alpha"]
        ),
        log_likelihood=lambda params, local, rows: dist.Normal(local["alpha"], 1).log_prob(
            rows["y"]
        ),
        groups="label",
    )
    covariance = np.eye(60) + (label[:, None] == label) + 100.0
    inverse = np.linalg.inv(covariance - 100.0)
    precision = inverse.sum() + 0.01
    draws = rng.normal(inverse.sum(axis=0) @ y / precision, precision**-0.5, size=(1, 4000))
    tree = make_tree({"posterior": {"mu": draws}}, {"num_shards": 3})
    rows = {"label": label, "y": y}
    with pytest.warns(vcmc.DoubtfulWarning, match=r"groups of 'label' \(7 \(k = "):
        vcmc.loo(tree, model, rows, progress=False)
    result = vcmc.loo(tree, model, rows, moment_matching=True, progress=False)
    assert not result.warning
    others = label != 7
    without = multivariate_normal.logpdf(y[others], np.zeros(55), covariance[others][:, others])
    exact = multivariate_normal.logpdf(y, np.zeros(60), covariance) - without
    assert float(result.elpd_i[7]) == pytest.approx(exact, abs=0.09)


def group_log_marginals(rows, draws):
    """Log marginal likelihoods in closed form: rows of a group are normal, and correlated."""
    columns = []
    for label in np.unique(rows["group"]):
        y = rows["y"][rows["group"] == label]
        constant = (len(y) + 1) * LOG_TWO_PI  # which the model leaves out, for two coordinates
        columns.append(
            [
                constant
                + sum(
                    multivariate_normal.logpdf(
                        y[:, axis], np.full(len(y), mu[axis]), np.eye(len(y)) + tau**2
                    )
                    for axis in range(2)
                )
                for mu, tau in zip(draws["mu"], draws["tau"], strict=True)
            ]
        )
    return np.array(columns).T


def test_groups_are_left_out_one_at_a_time():
    model, rows = varying_means()
    generator = np.random.default_rng(0)
    draws = {
        "mu": 1 + 0.05 * generator.normal(size=(1, 200, 2)),
        "tau": 0.5 * np.exp(0.05 * generator.normal(size=(1, 200))),
    }
    tree = make_tree({"posterior": draws}, {"num_shards": 3})
    result = vcmc.loo(tree, model, rows, progress=False)
    matrix = group_log_marginals(rows, vcmc.posterior_draws(tree))
    assert_same(result, arviz_loo(tree, matrix), 1e-8)
    labels = np.unique(rows["group"]).tolist()
    assert result.elpd_i.dims == ("group",)
    assert result.elpd_i["group"].to_numpy().tolist() == labels
    waic = vcmc.waic(tree, model, rows, progress=False)
    np.testing.assert_allclose(waic.p, matrix.var(axis=0, ddof=1).sum(), rtol=1e-8)


def test_groups_without_rows_are_not_assessed():
    """A table of groups may have labels that no row has: there is nothing to predict."""

    def varying(county, y, size, *, num_counties):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("counties", num_counties):
            alpha = numpyro.sample("alpha", dist.Normal(size, tau))
        numpyro.sample("y", dist.Normal(alpha[county], 1.0), obs=y)

    rows = {"county": np.repeat(["b", "d", "e"], 5), "y": np.linspace(-1.0, 1.0, 15)}
    table = {"county": ["d", "c", "b", "a", "e"], "size": np.arange(5.0)}
    names = {"groups": "county", "num_groups": "num_counties"}
    model = vcmc.from_numpyro(varying, rows, group_rows=table, **names)
    tau = np.linspace(0.99, 1.01, 100)
    tree = make_tree({"posterior": {"tau": tau[None]}}, {"num_shards": 2})
    result = vcmc.waic(tree, model, rows, progress=False)
    assert result.elpd_i["county"].to_numpy().tolist() == ["b", "d", "e"]
    for label, size in (("b", 2.0), ("d", 0.0), ("e", 4.0)):
        y = rows["y"][rows["county"] == label]
        values = [multivariate_normal.logpdf(y, np.full(5, size), np.eye(5) + t**2) for t in tau]
        expected = np.log(np.mean(np.exp(values))) - np.var(values, ddof=1)
        assert float(result.elpd_i.sel(county=label)) == pytest.approx(expected, rel=1e-8)


def test_groups_with_a_large_k_are_named():
    model, rows = varying_means()
    rows = rows | {"y": np.where(rows["group"][:, None] == "group 07", 60.0, rows["y"])}
    generator = np.random.default_rng(0)
    draws = {
        "mu": 1 + generator.normal(size=(1, 200, 2)),
        "tau": np.exp(0.3 * generator.normal(size=(1, 200))),
    }
    tree = make_tree({"posterior": draws}, {"num_shards": 2})
    with pytest.warns(vcmc.DoubtfulWarning, match=r"groups of 'group' \(group 07 \(k = "):
        assert vcmc.loo(tree, model, rows, progress=False).warning


def test_what_cannot_be_left_out_is_refused(conjugate):
    model, rows = conjugate.model, conjugate.rows
    tree = exact_tree(conjugate, num_draws=100)
    without = make_tree({"subposterior": {"beta": np.zeros((2, 1, 50, 3))}}, {})
    with pytest.raises(TypeError, match="with a group 'posterior'; got DataTree with the groups"):
        vcmc.loo(without, model, rows)
    other = make_tree({"posterior": {"gamma": np.zeros((1, 100))}}, {})
    with pytest.raises(ValueError, match=r"the tree has no draws of \['beta'\]"):
        vcmc.loo(other, model, rows)
    larger = make_tree({"posterior": {"beta": np.zeros((1, 100, 4))}}, {})
    with pytest.raises(ValueError, match=r"shape \(3,\), but the tree's draws have \(4,\)"):
        vcmc.waic(larger, model, rows)
    with pytest.raises(vcmc.ModelError, match=r"asks for 'y'; the rows are \['x'\]"):
        vcmc.loo(tree, model, {"x": rows["x"]}, progress=False)
    with pytest.raises(TypeError, match="model must be a Model instance"):
        vcmc.loo(tree, "model.py", rows)
    with pytest.raises(ValueError, match="num_draws must be an integer of at least 25; got 10"):
        vcmc.loo(tree, model, rows, num_draws=10)
    with pytest.raises(ValueError, match="at least 25 draws; the tree has 20"):
        vcmc.loo(tree.isel(draw=slice(20)), model, rows)


def test_rows_of_another_fit_are_refused(conjugate):
    tree = exact_tree(conjugate, num_draws=100)
    tree.attrs["shard_sizes"] = [500, 503]
    half = {name: array[:500] for name, array in conjugate.rows.items()}
    with pytest.raises(ValueError, match="was fitted to, 1003 rows; got 500"):
        vcmc.loo(tree, conjugate.model, half, progress=False)


def test_impossible_rows_are_named(conjugate):
    """A row whose likelihood is zero at some draws."""
    model = vcmc.Model(
        space={"beta": vcmc.Real(3)},
        log_prior=conjugate.model.log_prior,
        log_likelihood=lambda params, rows: jnp.where(
            (rows["y"] > 3.9) & (params["beta"][0] > 1.0), -jnp.inf, -0.5 * rows["y"] ** 2
        ),
    )
    (bad,) = np.nonzero(conjugate.rows["y"] > 3.9)
    tree = exact_tree(conjugate, num_draws=100)
    match = rf"not finite at some draws for {len(bad)} of 1003 rows \({bad[0]}; "
    for verb in (vcmc.loo, vcmc.waic):
        with pytest.raises(ValueError, match=match):
            verb(tree, model, conjugate.rows, progress=False)


def test_results_with_weights_of_rows_are_refused():
    rng = np.random.default_rng(0)
    rows = {"y": rng.normal(size=40), "w": rng.integers(1, 3, 40).astype(float)}
    model = vcmc.Model(
        {"mu": vcmc.Real()},
        lambda params: -0.5 * params["mu"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["mu"]) ** 2,
    )
    tree = vcmc.infer(model, rows, num_shards=1, weights="w", progress=False, num_draws=200)
    with pytest.raises(ValueError, match="Repeat the rows by their weights"):
        vcmc.loo(tree, model, {"y": rows["y"]})
