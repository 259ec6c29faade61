"""Marginal likelihoods of groups: closed forms, fine quadrature, scores and Hessians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import vcmc
from vcmc.data.grouped import GroupedPartition, encode_groups
from vcmc.groups.quadrature import default_quadrature

SIZES = np.array([1, 3, 40, 2, 7, 1])
QUADRATURES = [vcmc.ExactGaussian(), vcmc.GaussHermite(3), vcmc.QuasiRandom(16)]


def normal_model(quadrature=None):
    """Rows are normal around their group's value, which is normal around a common mean."""
    return vcmc.Model(
        space={"mean": vcmc.Real(), "spread": vcmc.Positive(), "noise": vcmc.Positive()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mean"] ** 2 - params["spread"] - params["noise"],
        log_local_prior=lambda params, local, group: log_normal(
            local["alpha"], params["mean"], params["spread"]
        ),
        log_likelihood=lambda params, local, rows: log_normal(
            rows["y"], local["alpha"], params["noise"]
        ),
        groups="group",
        quadrature=quadrature,
    )


def log_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * np.log(2 * np.pi)


def simulated(sizes=SIZES, seed=0):
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    y = 1 + generator.normal(size=len(sizes))[group] + generator.normal(size=len(group))
    order = generator.permutation(len(group))
    return {"y": y[order], "group": group[order]}


def shard_of(rows, num_shards=1):
    encoded, labels = encode_groups(rows, "group")
    return GroupedPartition(vcmc.split(encoded, num_shards, groups="group"), "group", labels)


@pytest.mark.parametrize("quadrature", QUADRATURES)
def test_normal_groups_have_the_closed_form(quadrature):
    rows = simulated()
    shard = shard_of(rows).load(0)
    local = normal_model(quadrature).local
    params = {"mean": 0.3, "spread": 0.7, "noise": 1.2}
    values, _ = local.log_marginals({k: jnp.asarray(v) for k, v in params.items()}, shard)
    for group in range(len(SIZES)):
        y = rows["y"][rows["group"] == group]
        covariance = 1.2**2 * np.eye(len(y)) + 0.7**2
        expected = multivariate_normal(np.full(len(y), 0.3), covariance).logpdf(y)
        assert float(values[group]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("quadrature", QUADRATURES)
def test_scores_and_hessians_of_normal_groups_are_exact(quadrature):
    shard = shard_of(simulated()).load(0)
    point = jnp.array([0.3, -0.4, 0.2])

    def closed_form(point):
        mean, spread, noise = point[0], jnp.exp(point[1]), jnp.exp(point[2])
        groups = shard.groups
        count = groups.sum(jnp.ones(len(shard.weights)), shard.weights)
        total = groups.sum(shard.rows["y"], shard.weights)
        square = groups.sum((shard.rows["y"] - mean) ** 2, shard.weights)
        # Sherman and Morrison
        share = spread**2 / (noise**2 + count * spread**2)
        quadratic = (square - share * (total - count * mean) ** 2) / noise**2
        log_det = (count - 1) * 2 * jnp.log(noise) + jnp.log(noise**2 + count * spread**2)
        return -0.5 * jnp.sum(quadratic + log_det + count * jnp.log(2 * jnp.pi))

    model = normal_model(quadrature)
    marginal = lambda point: model.log_likelihood_at(point, shard)  # noqa: E731
    assert float(marginal(point)) == pytest.approx(float(closed_form(point)), abs=1e-9)
    np.testing.assert_allclose(jax.grad(marginal)(point), jax.grad(closed_form)(point), rtol=1e-8)
    if not isinstance(quadrature, vcmc.QuasiRandom):  # Hessians need exactness of degree four
        hessians = [jax.jacfwd(jax.grad(density))(point) for density in (marginal, closed_form)]
        np.testing.assert_allclose(*hessians, rtol=1e-7, atol=1e-7)


def binary_model(quadrature=None):
    return vcmc.Model(
        space={"mean": vcmc.Real(), "spread": vcmc.Positive()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mean"] ** 2 - params["spread"],
        log_local_prior=lambda params, local, group: log_normal(
            local["alpha"], params["mean"], params["spread"]
        ),
        log_likelihood=lambda params, local, rows: (
            -jnp.logaddexp(0.0, (1 - 2 * rows["y"]) * local["alpha"])
        ),
        groups="group",
        quadrature=quadrature,
    )


def test_binary_groups_agree_with_a_fine_grid():
    rows = simulated(sizes=np.array([1, 2, 5, 20, 100]))
    rows["y"] = (rows["y"] > 0.5).astype(float)
    shard = shard_of(rows).load(0)
    mean, spread = 0.4, 1.3
    params = {"mean": jnp.asarray(mean), "spread": jnp.asarray(spread)}
    values, _ = binary_model(vcmc.GaussHermite(9)).local.log_marginals(params, shard)
    alpha = np.linspace(mean - 10 * spread, mean + 10 * spread, 20_001)
    step = alpha[1] - alpha[0]
    for group in range(5):
        y = rows["y"][rows["group"] == group]
        terms = -np.logaddexp(0, np.outer(1 - 2 * y, alpha)).sum(axis=0)
        terms += np.asarray(log_normal(alpha, mean, spread))
        expected = np.log(np.sum(np.exp(terms)) * step)
        assert float(values[group]) == pytest.approx(expected, abs=2e-4)


def test_the_score_is_the_derivative_of_the_value():
    """Up to the error of the quadrature, which the frozen proposal hides from the score."""
    rows = simulated(sizes=np.array([2, 5, 20]))
    rows["y"] = (rows["y"] > 0.5).astype(float)
    shard = shard_of(rows).load(0)
    model = binary_model(vcmc.GaussHermite(15))
    point, step = np.array([0.4, 0.2]), 1e-5
    score = jax.grad(lambda point: model.log_likelihood_at(point, shard))(jnp.asarray(point))
    for index, offset in enumerate(step * np.eye(2)):
        above, below = (
            float(model.log_likelihood_at(jnp.asarray(end), shard))
            for end in (point + offset, point - offset)
        )
        assert float(score[index]) == pytest.approx((above - below) / (2 * step), abs=1e-3)


def test_shards_of_whole_groups_add_up():
    model = normal_model(vcmc.ExactGaussian())
    rows = simulated(sizes=np.arange(1, 20))
    point = jnp.array([0.3, -0.4, 0.2])
    whole = model.log_likelihood_at(point, shard_of(rows).load(0))
    partition = shard_of(rows, 4)
    parts = [model.log_likelihood_at(point, partition.load(shard)) for shard in range(4)]
    assert float(sum(parts)) == pytest.approx(float(whole), abs=1e-9)


def test_gaussian_groups_are_recognised():
    shard = shard_of(simulated()).load(0)
    fitted = normal_model().fitted([shard])
    assert isinstance(fitted.local.quadrature, vcmc.ExactGaussian)
    rows = simulated()
    rows["y"] = (rows["y"] > 0.5).astype(float)
    fitted = binary_model().fitted([shard_of(rows).load(0)])
    assert fitted.local.quadrature == default_quadrature(1)


def test_a_group_that_is_raised_to_a_power_counts_as_often():
    shard = shard_of(simulated()).load(0)
    model = binary_model(vcmc.GaussHermite(9))
    point = jnp.array([0.4, 0.2])
    once, thrice = (
        float(model.log_likelihood_at(point, part)) for part in (shard, shard.powered(3.0))
    )
    assert thrice == pytest.approx(3 * once, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": None}, "needs log_local_prior"),
        ({"quadrature": 7}, r"quadrature must be .* vcmc.GaussHermite\(9\); got 7"),
        ({"local_space": {"mean": vcmc.Real()}}, r"must be global or local; \['mean'\]"),
        ({"local_space": None}, "needs local_space"),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments, message):
    settings = {
        "space": {"mean": vcmc.Real()},
        "local_space": {"alpha": vcmc.Real()},
        "log_prior": lambda params: 0.0,
        "log_local_prior": lambda params, local, group: local["alpha"],
        "log_likelihood": lambda params, local, rows: rows["y"],
        "groups": "group",
    }
    with pytest.raises((ValueError, TypeError), match=message):
        vcmc.Model(**settings | arguments)
