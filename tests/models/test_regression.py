import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats.base import array_stats

import vcmc
from vcmc.models.regression import rare_covariate
from vcmc.samplers import NUTS, ProbitGibbs


def probit(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(probs=jax.scipy.stats.norm.cdf(x @ beta)), obs=y)


def logistic(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "theirs"), [(vcmc.models.Probit(3), probit), (vcmc.models.Logistic(3), logistic)]
)
def test_our_sampler_agrees_with_numpyros_nuts_on_their_model(model, theirs):
    rows = model.simulate(0, 300, {"beta": [0.8, -0.4, 0.1]}).rows
    tree = vcmc.infer(model, rows, num_shards=1, shard_draws=4000)
    ours = np.concatenate(tree["posterior"]["beta"].to_numpy())
    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(theirs), num_warmup=500, num_samples=2000, progress_bar=False
    )
    mcmc.run(jax.random.key(1), **rows)
    draws = np.asarray(mcmc.get_samples()["beta"])
    effective = [array_stats.ess(d[None], chain_axis=0, draw_axis=1) for d in (ours, draws)]
    error = ours.std(axis=0) * np.sqrt(1 / effective[0] + 1 / effective[1])
    assert (np.abs(ours.mean(axis=0) - draws.mean(axis=0)) < 4 * error).all()
    assert (np.abs(ours.std(axis=0) - draws.std(axis=0)) < 4 * error).all()


@pytest.mark.slow
def test_gibbs_and_nuts_give_the_same_subposteriors():
    model = vcmc.models.Probit(4)
    rows = model.simulate(3, 800, {"beta": [0.5, -0.5, 0.2, 0.0]}).rows
    partition = vcmc.split(rows, 4)
    trees = [
        vcmc.infer(model, partition, sampler=s, shard_draws=3000) for s in (ProbitGibbs(), NUTS())
    ]
    means, sds, effective = (
        [f(tree) for tree in trees]
        for f in (
            lambda tree: tree["subposterior"]["beta"].mean(("chain", "draw")).to_numpy(),
            lambda tree: tree["subposterior"]["beta"].std(("chain", "draw")).to_numpy(),
            lambda tree: tree["subposterior_ess"]["beta"].to_numpy(),
        )
    )
    error = sds[0] * np.sqrt(1 / effective[0] + 1 / effective[1])
    assert (np.abs(means[0] - means[1]) < 4 * error).all()
    assert (np.abs(sds[0] - sds[1]) < 4 * error).all()


def test_probit_is_sampled_by_gibbs_unless_an_outcome_is_rare():
    model = vcmc.models.Probit(5)
    rare = vcmc.split(rare_covariate(0, 2000), 1).load(0)
    balanced = vcmc.split(model.simulate(0, 200).rows, 1).load(0)
    assert model.suited_sampler([rare]) is None
    assert isinstance(model.suited_sampler([balanced]), ProbitGibbs)
    assert isinstance(vcmc.models.Logistic(5).suited_sampler([balanced]), NUTS)


def test_simulated_outcomes_follow_the_link():
    for model, expected in (
        (vcmc.models.Probit(1), jax.scipy.stats.norm.cdf),
        (vcmc.models.Logistic(1), jax.nn.sigmoid),
    ):
        _, rows = model.simulate(0, 100_000, {"beta": [2.0]})
        near = np.abs(rows["x"][:, 0] - 0.5) < 0.05
        probability = float(expected(1.0))
        assert abs(rows["y"][near].mean() - probability) < 4 * np.sqrt(0.25 / near.sum()) + 0.001


def test_the_rare_design_is_scotts():
    rows = rare_covariate(0, 200_000)
    frequencies = [1.0, 0.2, 0.3, 0.5, 0.01]
    np.testing.assert_allclose(
        rows["x"].mean(axis=0), frequencies, atol=4 * np.sqrt(0.25 / 200_000)
    )


def test_test_functions_are_moments():
    functions = vcmc.models.Probit(2).test_functions({"beta": jnp.array([2.0, 3.0])})
    assert {name: values.tolist() for name, values in functions.items()} == {
        "first": [2.0, 3.0],
        "pure second": [4.0, 9.0],
        "mixed second": [6.0],
    }


def test_a_scale_must_be_positive():
    with pytest.raises(ValueError, match="prior_scale must be positive; got 0"):
        vcmc.models.Probit(3, prior_scale=0)


@pytest.mark.parametrize("kind", [bool, np.uint8, int, float])
@pytest.mark.parametrize("make", [vcmc.models.Probit, vcmc.models.Logistic])
def test_labels_of_any_type_mean_the_same(make, kind):
    model = make(2)
    rows = model.simulate(0, 50).rows
    params = {"beta": jnp.array([1.0, -1.0])}
    shard = vcmc.split(rows | {"y": rows["y"].astype(kind)}, 1).load(0)
    found = model.log_likelihood(params, shard.rows)
    np.testing.assert_allclose(found, model.log_likelihood(params, rows), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.repeat([-1.0, 1.0], 25)}, r"must be one 0 or 1 .* got the values \[-1.0, 1.0\]"),
        ({"y": np.ones((50, 1))}, r"shape \(\d+, 1\)"),
        ({"x": np.zeros((50, 3))}, r"must have 2 columns; got shape \(3,\)"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change, message):
    model = vcmc.models.Probit(2)
    with pytest.raises(ValueError, match=message):
        vcmc.infer(model, model.simulate(0, 50).rows | change, num_shards=2)


def test_rows_must_be_named():
    with pytest.raises(ValueError, match=r"must be named x and y; got \['x'\]"):
        vcmc.infer(vcmc.models.Probit(2), {"x": np.zeros((9, 2))}, num_shards=2)
