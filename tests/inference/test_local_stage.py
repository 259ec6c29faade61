"""Hierarchical models from rows to local draws, against quadrature."""

import sys

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp

import vcmc

NUM_GROUPS = 60
COUNTIES = np.array([f"county {number:02d}" for number in range(NUM_GROUPS)])


def simulated(seed=0):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 12, NUM_GROUPS)
    group = generator.permutation(np.repeat(np.arange(NUM_GROUPS), sizes))
    alpha = 1.0 + 0.5 * generator.normal(size=NUM_GROUPS)
    return {"county": COUNTIES[group], "y": alpha[group] + generator.normal(size=len(group))}


def varying_means(county, y, *, num_counties):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("counties", num_counties):
        alpha = numpyro.sample("alpha", dist.Normal(mu, tau))
    numpyro.sample("y", dist.Normal(alpha[county], 1.0), obs=y)


def exact(rows):
    """Means and sds of mu, tau and every alpha, on a grid of mu and tau."""
    mu, tau = np.linspace(0, 2, 401)[:, None], np.linspace(1e-3, 1.5, 400)[None]
    log_density = -0.5 * (mu / 10) ** 2 - 0.5 * tau**2
    conditional_mean, conditional_variance = [], []
    for county in COUNTIES:
        y = rows["y"][rows["county"] == county]
        variance = tau**2 + 1 / len(y)
        log_density = log_density - 0.5 * (np.mean(y) - mu) ** 2 / variance - 0.5 * np.log(variance)
        precision = 1 / tau**2 + len(y)
        conditional_mean.append((mu / tau**2 + y.sum()) / precision)
        conditional_variance.append(1 / precision + 0 * mu)
    weights = np.exp(log_density - logsumexp(log_density))

    def moments(value, variance=0.0):
        mean = np.sum(weights * value)
        return mean, np.sqrt(np.sum(weights * (variance + (value - mean) ** 2)))

    pairs = zip(conditional_mean, conditional_variance, strict=True)
    return moments(mu + 0 * tau), moments(tau + 0 * mu), [moments(*pair) for pair in pairs]


@pytest.fixture(scope="module")
def rows():
    return simulated()


@pytest.fixture(scope="module")
def model(rows):
    return vcmc.from_numpyro(varying_means, rows, groups="county", num_groups="num_counties")


@pytest.fixture(scope="module")
def tree(model, rows):
    return vcmc.infer(model, rows, num_shards=3, progress=False)


def test_global_and_local_parameters_agree_with_quadrature(tree, rows):
    mu, tau, alpha = exact(rows)
    posterior = tree["posterior"]
    for name, (mean, sd) in (("mu", mu), ("tau", tau)):
        draws = posterior[name].to_numpy().ravel()
        assert draws.mean() == pytest.approx(mean, abs=0.06 * sd)
        assert draws.std() == pytest.approx(sd, rel=0.05)
    means, sds = np.array(alpha).T
    draws = posterior["alpha"].to_numpy().reshape(-1, NUM_GROUPS)
    # 5000 draws have standard errors of 0.014 sd and 1 %
    np.testing.assert_allclose(draws.mean(axis=0), means, atol=0.08 * sds.max())
    np.testing.assert_allclose(draws.std(axis=0), sds, rtol=0.06)


def test_local_draws_carry_the_labels_of_groups(tree):
    alpha = tree["posterior"]["alpha"]
    assert alpha.dims == ("chain", "draw", "county")
    assert alpha["county"].to_numpy().tolist() == COUNTIES.tolist()


@pytest.mark.slow
def test_axes_of_local_vectors_have_the_names_of_their_plates(rows):
    def varying_slopes(county, x, y, *, num_counties):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("counties", num_counties), numpyro.plate("effect", 2):
            effects = numpyro.sample("effects", dist.Normal(1, tau))
        numpyro.deterministic("sum", effects.sum(axis=0))
        numpyro.sample("y", dist.Normal(effects[0, county] + effects[1, county] * x, 1.0), obs=y)

    rows = rows | {"x": np.linspace(-1, 1, len(rows["y"]))}
    model = vcmc.from_numpyro(
        varying_slopes,
        rows,
        groups="county",
        num_groups="num_counties",
        coords={"effect": ["intercept", "slope"]},
    )
    tree = vcmc.infer(model, rows, num_shards=2, progress=False)
    effects = tree["posterior"]["effects"]
    assert effects.dims == ("chain", "draw", "county", "effect")
    assert effects["effect"].to_numpy().tolist() == ["intercept", "slope"]
    np.testing.assert_allclose(tree["posterior"]["sum"], effects.sum("effect"), rtol=1e-12)
    assert tree.attrs["groups"] == "county"
    assert tree.attrs["local_parameters"] == ["effects"]


def test_a_summary_has_the_moments_of_the_draws(model, rows, tree):
    summary = vcmc.infer(model, rows, num_shards=3, locals="summary", progress=False)
    assert "alpha" not in summary["posterior"]
    draws = tree["posterior"]["alpha"].to_numpy().reshape(-1, NUM_GROUPS)
    sds = draws.std(axis=0)
    mean = summary["local_mean"]["alpha"]
    assert mean.dims == ("county",)
    # 1000 draws against 5000: 4.5 standard errors
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=0.16 * sds.max())
    np.testing.assert_allclose(summary["local_sd"]["alpha"], sds, rtol=0.12)
    assert (summary["local_q05"]["alpha"] < summary["local_q95"]["alpha"]).all()


def test_executors_draw_the_same_locals(model, rows, tree):
    other = vcmc.infer(
        model, rows, num_shards=3, executor=vcmc.executors.Processes(2), progress=False
    )
    assert (other["posterior"]["alpha"] == tree["posterior"]["alpha"]).all()


def test_a_finished_run_returns_its_locals(model, rows, tmp_path):
    first, second = (
        vcmc.infer(model, rows, num_shards=2, store=tmp_path / "run", progress=False)
        for _ in range(2)
    )
    assert (first["posterior"]["alpha"] == second["posterior"]["alpha"]).all()
    assert second["posterior"]["alpha"]["county"].to_numpy().tolist() == COUNTIES.tolist()
    loaded = vcmc.load(tmp_path / "run")
    assert loaded["posterior"]["alpha"].dims == ("chain", "draw", "county")


def test_groups_without_rows_are_drawn_from_their_prior(rows):
    table = {"county": np.append(COUNTIES, "new"), "offset": np.append(np.zeros(NUM_GROUPS), 5.0)}

    def model(county, y, offset, *, num_counties):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("counties", num_counties):
            alpha = numpyro.sample("alpha", dist.Normal(mu + offset, tau))
        numpyro.sample("y", dist.Normal(alpha[county], 1.0), obs=y)

    converted = vcmc.from_numpyro(
        model, rows, groups="county", num_groups="num_counties", group_rows=table
    )
    tree = vcmc.infer(converted, rows, num_shards=2, progress=False)
    new = tree["posterior"]["alpha"].sel(county="new").to_numpy().ravel()
    mu, tau = (tree["posterior"][name].to_numpy().ravel() for name in ("mu", "tau"))
    expected = np.sqrt(np.mean(tau**2) + mu.var())
    assert new.mean() == pytest.approx(mu.mean() + 5, abs=5 * expected / np.sqrt(len(new)))
    assert new.std() == pytest.approx(expected, rel=0.1)


def test_groups_that_the_table_does_not_have_are_refused(rows):
    table = {"county": COUNTIES, "offset": np.zeros(NUM_GROUPS)}

    def model(county, y, offset, *, num_counties):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        with numpyro.plate("counties", num_counties):
            alpha = numpyro.sample("alpha", dist.Normal(mu + offset, 1))
        numpyro.sample("y", dist.Normal(alpha[county], 1.0), obs=y)

    converted = vcmc.from_numpyro(
        model, rows, groups="county", num_groups="num_counties", group_rows=table
    )
    new = {"county": np.append(rows["county"], "unseen"), "y": np.append(rows["y"], 0.0)}
    with pytest.raises(ValueError, match="an entry for every group of the rows; 1 are missing"):
        vcmc.infer(converted, new, num_shards=2, progress=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: {"y": rows["y"]}, r"\['county'\] are missing from \['y'\]"),
        (
            lambda rows: rows | {"county": np.where(rows["y"] > 2, np.nan, 1.0)},
            "must give a group to every row",
        ),
        (
            lambda rows: rows | {"county": np.array([None, *rows["county"][1:]], object)},
            "1 labels are missing",
        ),
    ],
)
def test_bad_labels_are_refused(change, message, model, rows):
    with pytest.raises(ValueError, match=message):
        vcmc.infer(model, change(rows), num_shards=2, progress=False)


def test_a_partition_that_splits_groups_is_refused(model, rows):
    codes = np.unique(rows["county"], return_inverse=True)[1]
    partition = vcmc.split(rows | {"county": codes}, 3)
    with pytest.raises(ValueError, match="every group must lie in one shard"):
        vcmc.infer(model, partition, progress=False)


def test_draws_in_files_need_a_run_directory_and_pyarrow(model, rows, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match='locals="file" writes to the run directory: pass one'):
        vcmc.infer(model, rows, locals="file", progress=False)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'pip install "vcmc\[parquet\]"'):
        vcmc.infer(model, rows, locals="file", store=tmp_path, progress=False)


def test_only_known_ways_to_report_locals(model, rows):
    with pytest.raises(ValueError, match='locals must be "draws", "summary", "file" or "none"'):
        vcmc.infer(model, rows, locals="all", progress=False)


def test_results_have_the_number_of_rows_of_every_group(tree, rows):
    sizes = tree["group_sizes"]["num_rows"]
    assert sizes.dims == ("county",)
    expected = [np.sum(rows["county"] == county) for county in sizes["county"].to_numpy()]
    assert sizes.to_numpy().tolist() == expected


def test_refined_combined_and_stored_summaries_keep_their_labels(model, rows, tmp_path):
    options = {"num_shards": 2, "num_draws": 500, "locals": "summary", "progress": False}
    summary = vcmc.infer(model, rows, store=tmp_path / "run", **options)
    refined = vcmc.refine(summary, model, rows, progress=False)
    for result in (summary, vcmc.load(tmp_path / "run"), refined):
        assert result["local_mean"]["alpha"].dims == ("county",)
        assert result["local_mean"]["county"].to_numpy().tolist() == COUNTIES.tolist()
        assert result["group_sizes"]["num_rows"].dims == ("county",)
    combined = vcmc.combine(summary, model=model, rows=rows, progress=False)
    assert combined.attrs["groups"] == "county"
    assert combined["posterior"]["alpha"].dims == ("chain", "draw", "county")
