"""An updated posterior is that of one run on all rows, in whatever order batches come."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.inference.batch_plan import EarlierShard
from vcmc.inference.sampling import ShardDraws
from vcmc.inference.update_stages import joined_draws
from vcmc.samplers.base import Chain

# Combined draws have the moments of full-data scores: what differs between two runs is the error of
# the batch that these are evaluated at, 0.015 sd by `Newton.max_noise` for each, three times.
MAX_MEAN_ERROR = 3 * 0.015 * np.sqrt(2)
# 5000 draws of each: sds of 1/sqrt(2 * 5000) relative, four of them and of both
MAX_SD_ERROR = 4 * np.sqrt(2) / np.sqrt(2 * 5000)


def logistic(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def poisson(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(x @ beta)), obs=y)


def example(model, count=6_000):
    """Return the rows of a model in three batches of different sizes."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(count, 3)) * [1.0, 0.5, 0.5]
    predictor = x @ [0.5, -0.5, 0.3]
    if model is logistic:
        y = (predictor + generator.logistic(size=count) > 0).astype(float)
    else:
        y = generator.poisson(np.exp(predictor)).astype(float)
    bounds = [(0, 3_000), (3_000, 5_000), (5_000, count)]
    return {"x": x, "y": y}, [{"x": x[a:b], "y": y[a:b]} for a, b in bounds]


def moments(tree):
    draws = tree["posterior"]["beta"].to_numpy().reshape(-1, 3)
    return draws.mean(axis=0), draws.std(axis=0)


def assert_close(tree, other):
    (mean, sd), (other_mean, other_sd) = moments(tree), moments(other)
    assert np.abs((mean - other_mean) / other_sd).max() < MAX_MEAN_ERROR
    assert np.abs(sd / other_sd - 1).max() < MAX_SD_ERROR


def updated(model, batches, order, folder):
    """Return the result of one run and two updates."""
    first, *later = (batches[number] for number in order)
    vcmc.infer(model, first, num_shards=4, store=folder, progress=False)
    for batch in later:
        tree = vcmc.update(folder, model, batch, num_shards=2, progress=False)
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("program", [logistic, poisson])
def test_any_order_of_batches_gives_the_posterior_of_one_run(program, tmp_path):
    rows, batches = example(program)
    model = vcmc.from_numpyro(program, rows)
    whole = vcmc.infer(model, rows, num_shards=8, progress=False)
    for order in itertools.islice(itertools.permutations(range(3)), 0, 6, 2):
        name = "".join(map(str, order))
        tree = updated(model, batches, order, tmp_path / name)
        assert tree.attrs["verdict"] == "good", tree.attrs["verdict_text"]
        assert_close(tree, whole)


@pytest.mark.slow
def test_default_numbers_of_shards_are_as_good(tmp_path):
    rows, batches = example(logistic)
    model = vcmc.from_numpyro(logistic, rows)
    whole = vcmc.infer(model, rows, progress=False)
    vcmc.infer(model, batches[0], store=tmp_path, progress=False)
    vcmc.update(tmp_path, model, batches[1], progress=False)
    tree = vcmc.update(tmp_path, model, batches[2], progress=False)
    assert tree.attrs["verdict"] == "good", tree.attrs["verdict_text"]
    assert_close(tree, whole)


@pytest.mark.slow
def test_weights_of_rows_count(tmp_path):
    rows, batches = example(logistic)
    model = vcmc.from_numpyro(logistic, rows)
    weighted = [{**batch, "w": np.full(len(batch["y"]), 2.0)} for batch in batches]
    vcmc.infer(model, weighted[0], num_shards=4, weights="w", store=tmp_path, progress=False)
    tree = vcmc.update(tmp_path, model, weighted[1], num_shards=2, progress=False)
    twice = {name: np.concatenate([b[name] for b in batches[:2] * 2]) for name in rows}
    assert_close(tree, vcmc.infer(model, twice, num_shards=6, progress=False))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_a_batch_that_says_nothing_about_a_coefficient_is_merged(tmp_path):
    rows, batches = example(logistic)
    model = vcmc.from_numpyro(logistic, rows)
    vcmc.infer(model, batches[0], num_shards=4, store=tmp_path, progress=False)
    silent = {**batches[2], "x": batches[2]["x"] * [1.0, 1.0, 0.0]}
    tree = vcmc.update(tmp_path, model, silent, progress=False)
    assert tree.attrs["verdict"] == "good", tree.attrs["verdict_text"]
    whole = {name: np.concatenate([batches[0][name], silent[name]]) for name in rows}
    assert_close(tree, vcmc.infer(model, whole, num_shards=5, progress=False))


def test_draws_of_unequal_shards_are_padded():
    generator = np.random.default_rng(0)

    def chain(count):
        return Chain(generator.normal(size=(count, 2)), {"lp": np.zeros(count)})

    earlier = [EarlierShard(None, 0, 0, 0, [chain(5), chain(5)])]
    drawn = ShardDraws(generator.normal(size=(1, 1, 6, 2)), {"lp": np.ones((1, 1, 6))}, {})
    draws = joined_draws(earlier, drawn)
    assert draws.counts == [10, 6]
    assert draws.points.shape == (2, 1, 10, 2)
    np.testing.assert_array_equal(draws.points[0, 0, 5:], earlier[0].chains[1].points)
    np.testing.assert_array_equal(draws.points[1, 0, :6], drawn.points[0, 0])
    assert np.isnan(draws.points[1, 0, 6:]).all()
    assert np.nanmean(draws.stats["lp"][1]) == 1
    equal = joined_draws([EarlierShard(None, 0, 0, 0, [chain(6)])], drawn)
    assert equal.counts is None
    assert equal.points.shape == (2, 1, 6, 2)


@pytest.mark.slow
def test_coefficients_that_change_between_batches_are_reported(tmp_path):
    rows, batches = example(logistic)
    model = vcmc.from_numpyro(logistic, rows)
    changed = {**batches[1], "y": 1 - batches[1]["y"]}  # all coefficients change their signs
    vcmc.infer(model, batches[0], num_shards=4, store=tmp_path, progress=False)
    tree = vcmc.update(tmp_path, model, changed, num_shards=2, progress=False)
    assert "The batches of rows disagree on beta[0]" in tree.attrs["verdict_text"]
    whole = {name: np.concatenate([batches[0][name], changed[name]]) for name in rows}
    assert_close(tree, vcmc.infer(model, whole, num_shards=6, progress=False))
    assert tree.attrs["verdict"] == "good"
