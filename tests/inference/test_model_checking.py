"""Posterior checks: right models, planted wrong ones, closed forms, and what is refused."""

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import binom, norm

import vcmc
from vcmc.executors import Processes
from vcmc.inference import checked_rows, model_checking, replication
from vcmc.results.tree import make_tree

NUM_DRAWS = 400


def draw_normal(key, params, rows):
    noise = jax.random.normal(key, rows["y"].shape)
    return {"y": params["mu"] + params["sigma"] * noise}


NORMAL = vcmc.Model(
    space={"mu": vcmc.Real(), "sigma": vcmc.Positive()},
    log_prior=lambda params: -0.5 * params["mu"] ** 2 - params["sigma"],
    log_likelihood=lambda params, rows: stats.norm.logpdf(rows["y"], params["mu"], params["sigma"]),
    simulate=draw_normal,
)
POISSON = vcmc.Model(
    space={"rate": vcmc.Positive()},
    log_prior=lambda params: -params["rate"],
    log_likelihood=lambda params, rows: stats.poisson.logpmf(rows["y"], params["rate"]),
    simulate=lambda key, params, rows: {
        "y": jax.random.poisson(key, params["rate"], rows["y"].shape)
    },
)


def normal_tree(y, seed=0, num_shards=3):
    """Draws of mu and sigma given y under the prior 1 / sigma, which is exact."""
    generator = np.random.default_rng(seed)
    variance = y.var() * len(y) / generator.chisquare(len(y) - 1, size=(1, NUM_DRAWS))
    mu = y.mean() + np.sqrt(variance / len(y)) * generator.normal(size=(1, NUM_DRAWS))
    draws = {"mu": mu, "sigma": np.sqrt(variance)}
    return make_tree({"posterior": draws}, {"num_shards": num_shards})


def poisson_tree(y, seed=0):
    """Draws of the rate given y and a standard exponential prior, which is exact."""
    generator = np.random.default_rng(seed)
    rate = generator.gamma(1 + y.sum(), 1 / (1 + len(y)), size=(1, NUM_DRAWS))
    return make_tree({"posterior": {"rate": rate}}, {"num_shards": 3})


def check(tree, model, rows, *arguments, **options):
    return vcmc.posterior_check(tree, model, rows, *arguments, progress=False, **options)


def test_replicated_means_and_sds_of_a_normal_model_have_their_closed_forms():
    """Replicated means are normal around the data's with variance 2 s² / n."""
    y = np.random.default_rng(1).normal(3.0, 2.0, size=500)
    result = check(normal_tree(y), NORMAL, {"y": y}, num_draws=NUM_DRAWS)
    frame = result.to_frame()
    sd = np.sqrt(2 / 500) * y.std()
    error = sd / np.sqrt(NUM_DRAWS)
    assert abs(frame.loc["mean", "mean"] - y.mean()) < 4 * error
    assert abs(frame.loc["mean", "sd"] - sd) < 4 * error / np.sqrt(2)
    # a p-value of 1/2 with its Monte Carlo error
    assert abs(frame.loc["mean", "p_value"] - 0.5) < 4 * 0.5 / np.sqrt(NUM_DRAWS)
    # sds of n values have the relative variance 1 / (2 n), once for the draw, once for the data
    assert abs(frame.loc["sd", "sd"] - np.sqrt(1 / 500) * y.std()) < 4 * error / 2
    expected = [y.mean(), y.std(ddof=1), y.min(), *np.quantile(y, [0.05, 0.5, 0.95]), y.max()]
    np.testing.assert_allclose(frame["observed"], expected, rtol=1e-14)
    assert "share of zeros" not in frame.index  # there are none, in the data and in replicates
    assert result.num_replicates == NUM_DRAWS


def test_p_values_of_a_right_model_are_rarely_extreme():
    """P(p <= a) is at most 2 a under the model (Meng 1994), so at most 4 a for two sides."""
    generator = np.random.default_rng(2)
    num_data, level = 40, 0.01
    p_values = []
    for number in range(num_data):
        rate = generator.exponential()
        y = generator.poisson(rate, size=200).astype(float)
        names = ["mean", "sd", "share of zeros", "largest"]
        result = check(poisson_tree(y, number), POISSON, {"y": y}, statistics=names, seed=number)
        p_values.append(result.two_sided)
    counts = np.sum(np.array(p_values) <= 2 * level, axis=0)
    assert counts.max() <= binom.ppf(0.9999, num_data, 4 * level)


def test_too_many_zeros_are_found():
    """The share of zeros is 6 sds above that of replicates: p is below 1e-9."""
    generator = np.random.default_rng(0)
    y = generator.poisson(2.0, size=2000) * (generator.random(2000) < 0.9).astype(float)
    share = np.exp(-y.mean())
    assert np.mean(y == 0) > share + 6 * np.sqrt(share * (1 - share) / 2000)
    result = check(poisson_tree(y), POISSON, {"y": y}, num_draws=NUM_DRAWS)
    frame = result.to_frame()
    assert frame.loc["share of zeros", "p_value"] == 0
    assert frame.loc["mean", "two_sided"] > 0.5
    assert result.extreme[:2] == ["sd", "share of zeros"]


def test_heavy_tails_are_found():
    """The largest of 1000 normal values is above 6 sds with probability 1e-6."""
    y = np.random.default_rng(3).standard_t(2, size=1000)
    assert y.max() > 6 * y.std()
    frame = check(normal_tree(y), NORMAL, {"y": y}, num_draws=NUM_DRAWS).to_frame()
    assert frame.loc["largest", "p_value"] == 0
    assert frame.loc["smallest", "p_value"] == 1
    assert frame.loc["mean", "two_sided"] > 0.5


ALL_AT_ONCE = {
    "mean": np.mean,
    "sd": lambda y: np.std(y, ddof=1),
    "share of zeros": lambda y: np.mean(y == 0),
    "smallest": np.min,
    "q05": lambda y: np.quantile(y, 0.05),
    "q50": np.median,
    "q95": lambda y: np.quantile(y, 0.95),
    "largest": np.max,
}


@pytest.mark.parametrize("max_draws", [7, 10**6])
@pytest.mark.parametrize("by", [None, "region"])
def test_statistics_merged_by_shard_are_those_of_all_rows_at_once(by, max_draws, monkeypatch):
    """However shards and replicates are cut into blocks; functions see all rows."""
    generator = np.random.default_rng(4)
    y = generator.poisson(2.0, size=307).astype(float)
    regions = np.array(["north", "south", "west"])[generator.integers(0, 3, size=307)]
    rows = {"y": y, "region": regions} if by else {"y": y}
    monkeypatch.setattr(replication, "MAX_BLOCK_BYTES", 8 * 103 * max_draws)
    monkeypatch.setattr(model_checking, "MAX_VALUE_BYTES", 8 * 307 * max_draws)
    statistics = {name: name for name in ALL_AT_ONCE} | {
        f"{name} at once": function for name, function in ALL_AT_ONCE.items()
    }
    result = check(poisson_tree(y), POISSON, rows, statistics=statistics, by=by, num_draws=50)
    merged, at_once = np.split(result.replicated, 2)
    observed, observed_at_once = np.split(result.observed, 2)
    np.testing.assert_allclose(merged, at_once, rtol=1e-13, atol=0)
    np.testing.assert_allclose(observed, observed_at_once, rtol=1e-13, atol=0)
    is_exact = ~np.isin([line.statistic for line in result.lines], ["mean", "sd"])[: len(merged)]
    np.testing.assert_array_equal(merged[is_exact], at_once[is_exact])
    assert result.replicated.shape == (len(result.lines), 50)
    assert len(np.unique(merged[0])) > 25  # replicates differ from block to block


def test_p_values_by_group_have_their_closed_form():
    """Replicated means of a group are normal with variance s² (1 / n_g + 1 / n)."""
    generator = np.random.default_rng(5)
    labels, sizes = ["north", "south", "west"], np.array([440, 20, 440])
    region = generator.permutation(np.repeat(labels, sizes))
    y = generator.normal(size=900) + 2.0 * (region == "south")
    tree = normal_tree(y)
    options = {"statistics": ["mean"], "num_draws": NUM_DRAWS}
    result = check(tree, NORMAL, {"y": y, "region": region}, by="region", **options)
    assert [line.group for line in result.lines] == labels
    means = np.array([y[region == label].mean() for label in labels])
    np.testing.assert_allclose(result.observed, means, rtol=1e-13)
    z = (means - y.mean()) / (y.std() * np.sqrt(1 / sizes + 1 / 900))
    assert z[1] > 6  # no replicate of the group that differs is as large
    assert result.p_values[1] == 0
    p = norm.sf(z)
    error = np.sqrt(p * (1 - p) / NUM_DRAWS)
    np.testing.assert_array_less(np.abs(result.p_values - p), 4 * error + 1e-6)
    assert result.extreme == ["mean[south]"]
    codes = np.searchsorted(labels, region)
    by_number = check(tree, NORMAL, {"y": y, "code": codes}, by="code", **options).to_frame()
    assert by_number.loc[("mean", "1"), "observed"] == pytest.approx(means[1])


def test_functions_see_the_values_of_a_replicate_in_the_order_of_the_rows():
    model = vcmc.Model(
        space={"mu": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mu"] ** 2,
        log_likelihood=lambda params, rows: -0.5 * jnp.sum((rows["y"] - params["mu"]) ** 2, axis=1),
        simulate=lambda _, params, rows: {"both": rows["y"] + params["mu"]},
    )
    y = np.random.default_rng(0).normal(size=(50, 2))
    mu = np.arange(10.0)
    tree = make_tree({"posterior": {"mu": mu[None]}}, {"num_shards": 4})
    result = check(
        tree,
        model,
        {"y": y},
        observed="y",
        statistics={"entry": lambda values: values[17, 1], "mean": "mean"},
    )
    assert result.response == "both"
    np.testing.assert_allclose(result.replicated[0], y[17, 1] + mu, rtol=1e-14)
    np.testing.assert_allclose(result.replicated[1], y.mean() + mu, rtol=1e-12, atol=1e-14)


def test_numpyro_models_are_checked_whatever_their_columns_are_called():
    def model(size, count=None):
        rate = numpyro.sample("rate", dist.Exponential(1.0))
        numpyro.sample("obs", dist.Poisson(rate * size), obs=count)

    generator = np.random.default_rng(6)
    size = 1 + generator.random(300)
    rows = {"size": size, "count": generator.poisson(2 * size).astype(float)}
    numpyro_model = vcmc.from_numpyro(model, rows)
    rate = generator.gamma(1 + rows["count"].sum(), 1 / (1 + size.sum()), size=(1, NUM_DRAWS))
    tree = make_tree({"posterior": {"rate": rate}}, {"num_shards": 2})
    rows["region"] = np.arange(300) % 2  # which the model does not have
    options = {"by": "region", "num_draws": NUM_DRAWS}
    result = check(tree, numpyro_model, rows, observed="count", **options)
    assert result.response == "obs"
    del rows["region"]
    found = check(tree, numpyro_model, rows)  # the model simulates without "count" alone
    assert found.to_frame().loc["mean", "observed"] == pytest.approx(rows["count"].mean())
    mean, sd = result.to_frame().loc[("mean", "0"), ["mean", "sd"]]
    exposure = size[::2]
    expected = rate.mean() * exposure.mean()
    variance = rate.mean() * exposure.sum() / 150**2 + (rate.std() * exposure.mean()) ** 2
    assert abs(mean - expected) < 4 * np.sqrt(variance / NUM_DRAWS)
    assert abs(sd - np.sqrt(variance)) < 4 * np.sqrt(variance / (2 * NUM_DRAWS))


def test_replicates_are_reproducible(tmp_path):
    y = np.random.default_rng(1).normal(size=100)
    tree = normal_tree(y)
    first, again = (check(tree, NORMAL, {"y": y}) for _ in range(2))
    np.testing.assert_array_equal(first.replicated, again.replicated)
    other = check(tree, NORMAL, {"y": y}, seed=1)
    assert not np.array_equal(first.replicated, other.replicated)
    partition = vcmc.split({"y": y, "code": np.arange(100) % 2}, 3, folder=tmp_path, progress=False)
    by_file = check(tree, NORMAL, partition, by="code", statistics=["mean", np.ptp])
    assert [line.label for line in by_file.lines] == ["mean[0]", "mean[1]", "ptp[0]", "ptp[1]"]
    np.testing.assert_allclose(by_file.observed[2:], [np.ptp(y[::2]), np.ptp(y[1::2])])


@pytest.mark.slow
def test_executors_agree():
    y = np.random.default_rng(1).normal(size=100)
    rows = {"y": y, "region": np.array(["a", "b"])[np.arange(100) % 2]}

    def normal(y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.Exponential(1))
        numpyro.sample("y", dist.Normal(mu, sigma).expand([len(y)]), obs=y)

    model = vcmc.from_numpyro(normal, {"y": y})
    arguments = normal_tree(y), model, rows
    options = {"by": "region", "statistics": ["mean", "q50", np.ptp], "num_draws": 50}
    expected = check(*arguments, **options)
    with Processes(2) as executor:
        result = check(*arguments, executor=executor, **options)
    np.testing.assert_allclose(result.replicated, expected.replicated, rtol=1e-12)


def test_what_cannot_be_checked_is_refused(monkeypatch):
    y = np.random.default_rng(0).normal(size=20)
    tree, rows = normal_tree(y), {"y": y}
    silent = vcmc.Model(NORMAL.space, NORMAL.log_prior, NORMAL.log_likelihood)
    with pytest.raises(ValueError, match=r"how rows are drawn: write vcmc.Model\(..., simulate="):
        check(tree, silent, rows)
    with pytest.raises(ValueError, match=r"what the model simulates, \['y'\]; got 'z'"):
        check(tree, NORMAL, rows, "z")
    with pytest.raises(ValueError, match=r"values of 'y', one of \['y'\]; got 'z'"):
        check(tree, NORMAL, rows, observed="z")
    with pytest.raises(ValueError, match=r"by must be a column of the rows, \['y'\]; got 'z'"):
        check(tree, NORMAL, rows, by="z")
    with pytest.raises(ValueError, match=r"by must be a column of the rows, \['y'\]; got 'z'"):
        check(tree, NORMAL, vcmc.split(rows, 2), by="z")
    with pytest.raises(ValueError, match=r"the tree has no draws of \['rate'\]"):
        check(tree, POISSON, rows)
    with pytest.raises(TypeError, match="with a group 'posterior'"):
        check(make_tree({}, {}), NORMAL, rows)
    with pytest.raises(ValueError, match="num_draws must be an integer of at least 2"):
        check(tree, NORMAL, rows, num_draws=1)
    weighted = make_tree({"posterior": {"rate": np.ones((1, 9))}}, {"row_weights": "w"})
    with pytest.raises(ValueError, match="weights of rows"):
        check(weighted, POISSON, rows)
    monkeypatch.setattr(checked_rows, "MAX_GROUPS", 5)
    with pytest.raises(ValueError, match="at most 5 different values; 'id' has 20"):
        check(tree, NORMAL, {"y": y, "id": np.arange(20)}, by="id")


@pytest.mark.parametrize(
    ("statistic", "message"),
    [
        (lambda values: values, r"must return one number .*; got an array of shape \(\d+,\)\."),
        (lambda _: "a", "must return one number for an array of values; got 'a'"),
        (lambda _: None, "must return one number for an array of values; got None"),
        (lambda _: float("nan"), "must return one number for an array of values; got nan"),
        (lambda values: values.no_such, r"shape \(20,\); it fails \(AttributeError"),
        ("median", r"names among \['mean', 'sd', .* got 'median'"),
        (3, r"or functions of an array of values, .* got 3"),
    ],
)
def test_bad_statistics_are_refused(statistic, message):
    y = np.random.default_rng(0).normal(size=20)
    with pytest.raises(ValueError, match=message):
        check(normal_tree(y), NORMAL, {"y": y}, statistics={"mine": statistic})
    with pytest.raises(ValueError, match="at least one name or function; got none"):
        check(normal_tree(y), NORMAL, {"y": y}, statistics=[])
