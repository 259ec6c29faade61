"""Updates without the old rows: right where the verdict is good, and doubtful far away."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.inference.surrogate_assessment import OLD_RESULT
from vcmc.results.tree import add_groups


def linear_model():
    """Return a model of a normal mean in two dimensions, with unit noise."""
    return vcmc.Model(
        {"mu": vcmc.Real(2)},
        lambda params: -0.5 * jnp.sum(params["mu"] ** 2) / 100,
        lambda params, rows: -0.5 * jnp.sum((rows["y"] - params["mu"]) ** 2, axis=1),
    )


# Poisson rates with Gamma(1, 1/1000) priors
RATES = vcmc.Model(
    {"rate": vcmc.Positive(2)},
    lambda params: -jnp.sum(params["rate"]) / 1000,
    lambda params, rows: jnp.sum(rows["y"] * jnp.log(params["rate"]) - params["rate"], axis=1),
    derived=lambda params: {"log_rate": jnp.log(params["rate"])},
)


def linear_rows(generator, count, mean=0.0):
    return {"y": mean + generator.normal(size=(count, 2))}


def joined(*parts):
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def moments(tree, name):
    draws = tree["posterior"][name].to_numpy()
    draws = draws.reshape(-1, *draws.shape[2:])
    return draws.mean(axis=0), draws.std(axis=0)


@pytest.fixture(scope="module")
def linear():
    """A model, its first rows and their posterior."""
    model, rows = linear_model(), linear_rows(np.random.default_rng(0), 400)
    return model, rows, vcmc.infer(model, rows, num_shards=2, progress=False)


def test_a_normal_posterior_is_updated_exactly_up_to_chance(linear):
    model, old_rows, old = linear
    new_rows = linear_rows(np.random.default_rng(1), 200)
    tree = vcmc.update(old, model, new_rows, name="february", progress=False)
    rows = joined(old_rows, new_rows)
    precision = len(rows["y"]) + 1 / 100
    mean, sd = moments(tree, "mu")
    error = (mean - rows["y"].sum(axis=0) / precision) * precision**0.5
    assert np.abs(error).max() < 0.06  # draws of the old and the new posterior: 0.02 sd by chance
    assert np.abs(sd * precision**0.5 - 1).max() < 0.05
    assert tree.attrs["verdict"] == "good"
    assert "The old rows are represented by" in tree.attrs["verdict_text"]
    known = tree["mean_error"]["mu"].to_numpy(), tree["mean_error_se"]["mu"].to_numpy()
    assert (np.abs(error - known[0]) < 4 * known[1]).all()
    assert tree["updates"]["name"].to_numpy().tolist() == ["0", "february"]
    assert tree["updates"]["num_rows"].to_numpy().tolist() == [400, 200]
    np.testing.assert_allclose(tree["update_mean"]["mu"].to_numpy()[1], mean)
    assert vcmc.diagnose(tree).verdict == "good"


def test_the_prior_is_counted_once():
    model = vcmc.Model(
        {"mu": vcmc.Real(2)},
        lambda params: -0.5 * jnp.sum(params["mu"] ** 2) * 50,
        lambda params, rows: -0.5 * jnp.sum((rows["y"] - params["mu"]) ** 2, axis=1),
    )
    generator = np.random.default_rng(2)
    first, second = linear_rows(generator, 50), linear_rows(generator, 50)
    old = vcmc.infer(model, first, num_shards=1, progress=False)
    tree = vcmc.update(old, model, second, progress=False)
    mean, sd = moments(tree, "mu")
    expected = joined(first, second)["y"].sum(axis=0) / 150
    assert np.abs((mean - expected) * 150**0.5).max() < 0.1
    assert np.abs(sd * 150**0.5 - 1).max() < 0.05  # twice the prior: 13 % less


def test_rows_that_lead_far_away_make_the_result_doubtful(linear):
    model, _, old = linear
    new_rows = linear_rows(np.random.default_rng(3), 200, mean=np.array([0.6, 0.0]))
    with pytest.warns(vcmc.DoubtfulWarning, match="a guess"):
        tree = vcmc.update(old, model, new_rows, progress=False)
    move = (moments(tree, "mu")[0] - moments(old, "mu")[0]) / moments(old, "mu")[1]
    assert abs(move[0] - 4.6) < 1  # 4.6 by the formula of both sets of rows
    assert tree.attrs["verdict"] == "doubtful"
    assert "disagree with the old ones" in tree.attrs["verdict_text"]
    assert not vcmc.diagnose(tree).can_be_refined


def test_doubts_are_passed_on_once_and_errors_add_up(linear):
    model, _, old = linear
    doubtful = add_groups(
        old, {}, {"verdict": "doubtful", "verdict_reasons": ["Shard 1 did not converge."]}
    )
    rows = linear_rows(np.random.default_rng(7), 20)
    with pytest.warns(vcmc.DoubtfulWarning):
        first = vcmc.update(doubtful, model, rows, progress=False)
    sentence = f"{OLD_RESULT} doubtful: Shard 1 did not converge."
    assert first.attrs["verdict"] == "doubtful"
    assert sentence in first.attrs["verdict_text"]
    with pytest.warns(vcmc.DoubtfulWarning):
        second = vcmc.update(first, model, rows, progress=False)
    assert second.attrs["verdict_text"].count(OLD_RESULT) == 1
    assert second["updates"].sizes["update"] == 3
    errors = [float(tree["mean_error_se"]["mu"].max()) for tree in (old, first, second)]
    assert errors == sorted(errors)


@pytest.mark.parametrize("seed", [0, 1])
def test_skewed_rates_are_right_to_a_tenth_of_an_sd(seed):
    generator = np.random.default_rng(seed)
    old_rows = {"y": np.array([[4.0, 60.0]])}
    new_rows = {"y": generator.poisson([[4.0, 60.0]]).astype(float)}
    model = RATES
    old = vcmc.infer(model, old_rows, num_shards=1, seed=seed, progress=False)
    tree = vcmc.update(old, model, new_rows, progress=False)
    shape = 1 + old_rows["y"][0] + new_rows["y"][0]
    mean, sd = moments(tree, "log_rate")
    true_sd = np.sqrt(polygamma(1, shape))
    move = (digamma(shape) - np.log(2.001) - moments(old, "log_rate")[0]) / moments(
        old, "log_rate"
    )[1]
    assert np.abs(move).max() < 1.2
    assert np.abs((mean - digamma(shape) + np.log(2.001)) / true_sd).max() < 0.1
    assert np.abs(sd / true_sd - 1).max() < 0.1
    assert tree.attrs["surrogate_maps"] > 0


def test_a_curved_posterior_is_not_called_good():
    model = vcmc.Model(
        {"a": vcmc.Real(), "b": vcmc.Real()},
        lambda params: -0.5 * (params["a"] ** 2 + params["b"] ** 2 / 4),
        lambda params, rows: jnp.where(
            rows["old"] > 0,
            -0.5 * (rows["y"] - params["b"] - params["a"] ** 2 / 2) ** 2,
            -0.5 * (rows["y"] - params["a"]) ** 2 / 4,
        ),
    )
    generator = np.random.default_rng(8)
    old_rows = {"y": generator.normal(1, 1, size=10), "old": np.ones(10)}
    new_rows = {"y": generator.normal(1, 2, size=4), "old": np.zeros(4)}
    with pytest.warns(vcmc.DoubtfulWarning):
        old = vcmc.infer(model, old_rows, num_shards=1, progress=False)
    good = add_groups(old, {}, {"verdict": "good", "verdict_reasons": []})
    with pytest.warns(vcmc.DoubtfulWarning):
        tree = vcmc.update(good, model, new_rows, progress=False)
    assert tree.attrs["verdict"] in ("doubtful", "poor")


def test_results_without_rows_cannot_be_updated_with_some_of_them(linear):
    model, old_rows, old = linear
    without_rows = add_groups(old, {}, {"surrogate_maps": 0})
    with pytest.raises(ValueError, match="without its earlier rows"):
        vcmc.update(without_rows, model, old_rows, rows=old_rows, progress=False)


def group_model():
    return vcmc.Model(
        {"mu": vcmc.Real()},
        lambda params: -0.5 * params["mu"] ** 2 / 100,
        lambda params, local, rows: -0.5 * (rows["y"] - local["alpha"]) ** 2,
        local_space={"alpha": vcmc.Real()},
        log_local_prior=lambda params, local, group: -0.5 * (local["alpha"] - params["mu"]) ** 2,
        groups="g",
    )


def test_new_groups_are_added_and_known_ones_refused():
    generator = np.random.default_rng(11)

    def rows(groups):
        g = np.repeat(groups, 4)
        effects = generator.normal(size=len(groups))
        return {"g": g, "y": np.repeat(effects, 4) + generator.normal(size=len(g))}

    model, first, second = group_model(), rows(np.arange(60)), rows(np.arange(60, 90))
    old = vcmc.infer(model, first, num_shards=1, progress=False)
    tree = vcmc.update(old, model, second, progress=False)
    means = joined(first, second)["y"].reshape(-1, 4).mean(axis=1)
    precision = len(means) / 1.25 + 0.01  # a group's mean has the variance 1 + 1/4
    mean, sd = moments(tree, "mu")
    assert abs(mean - means.sum() / 1.25 / precision) * precision**0.5 < 0.1
    assert abs(sd * precision**0.5 - 1) < 0.05
    assert tree["posterior"]["alpha"].sizes["g"] == 30
    with pytest.raises(vcmc.ModelError, match="groups of the new rows"):
        vcmc.update(old, model, first, progress=False)
