"""Draws of bent posteriors: right quantiles, and no claim where a part of the mass is missed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy.stats import beta

import vcmc
from vcmc.combiners.base import Subposteriors
from vcmc.combiners.shapes import MAX_BENT_BYTES, shaped
from vcmc.executors import Local
from vcmc.target import Target

NUM_SHARDS = 4
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])

RIDGE = vcmc.Model(
    {"theta": vcmc.Real(2)},
    lambda params: jnp.sum(norm.logpdf(params["theta"])),
    lambda params, rows: norm.logpdf(rows["y"], params["theta"][0] + params["theta"][1] ** 2),
)


def shards_of(model, rows, draws):
    """The same draws in every shard, and the target of all rows."""
    target = Target(model, vcmc.split(rows, NUM_SHARDS), Local())
    return Subposteriors(jnp.asarray(np.stack([draws] * NUM_SHARDS)), target.model.space, target)


def rows_of(num_rows):
    y = np.random.default_rng(0).normal(size=num_rows)
    return {"y": y - y.mean() + 0.5}


def ridge_quantiles(num_rows):
    """Quantiles of the ridge, by a grid of θ₂ and of θ₁ + θ₂², whose mean is 0.5."""
    location, second = np.linspace(-1, 2, 1201)[:, None], np.linspace(-4, 4, 1601)
    first = location - second**2
    logs = -0.5 * num_rows * (location - 0.5) ** 2 - 0.5 * first**2 - 0.5 * second**2
    density = np.exp(logs - logs.max())
    order = np.argsort(first.ravel())
    pairs = (first.ravel()[order], density.ravel()[order]), (second, density.sum(axis=0))
    return np.stack(
        [
            np.interp(LEVELS, (np.cumsum(part) - part / 2) / part.sum(), values)
            for values, part in pairs
        ]
    )


def assert_quantiles(draws, quantiles):
    """Levels of the draws' quantiles are right, to the error of independent draws."""
    for values, expected in zip(draws.T, quantiles, strict=True):
        levels = np.mean(values[:, None] < expected, axis=0)
        error = np.sqrt(LEVELS * (1 - LEVELS) / len(draws))
        assert (np.abs(levels - LEVELS) < 4 * error).all()


def test_a_thin_bent_ridge_comes_out_right():
    generator = np.random.default_rng(1)
    draws = np.array([0.3, 0.1]) + 0.2 * generator.normal(size=(4000, 2))
    shards = shards_of(RIDGE, rows_of(200), draws)
    scores = np.asarray(shards.target(jnp.asarray(draws[:200]))[1])
    result = shaped(draws, shards, (draws[:200], scores))
    assert "proposals of a bent map" in result.exact
    assert result.settings["bent_pareto_k"] < 0.7
    assert result.settings["bent_ess"] > 1000
    assert_quantiles(result.draws, ridge_quantiles(200))


def test_a_spike_at_zero_comes_out_right():
    counts = np.array([1.0, 0.0, 199.0])
    model = vcmc.Model(
        {"share": vcmc.Simplex(3)},
        lambda params: -2 / 3 * jnp.sum(jnp.log(params["share"])),
        lambda params, rows: jnp.log(params["share"])[rows["category"]],
    )
    rows = {"category": np.repeat(np.arange(3), counts.astype(int))}
    draws = np.array([-5.0, -7.0]) + 2.0 * np.random.default_rng(2).normal(size=(4000, 2))
    shards = shards_of(model, rows, draws)
    result = shaped(draws, shards, None)
    assert result.exact
    shares = np.asarray(jax.vmap(shards.space.constrain)(jnp.asarray(result.draws))["share"])
    total = counts.sum() + 1
    expected = [beta.ppf(LEVELS, count + 1 / 3, total - count - 1 / 3) for count in counts]
    assert_quantiles(shares, np.stack(expected))


def test_draws_that_lack_nothing_are_kept():
    model = vcmc.models.Logistic(2)
    generator = np.random.default_rng(3)
    x = generator.normal(size=(4000, 2))
    rows = {"x": x, "y": (generator.random(4000) < 0.5).astype(float)}
    tree = vcmc.infer(model, rows, num_shards=NUM_SHARDS, progress=False)
    assert "bent_pareto_k" not in tree.attrs
    assert tree.attrs["exact"] == ""


def slab(weight):
    """A location with a spike and a slab twenty times as wide."""
    return vcmc.Model(
        {"theta": vcmc.Real()},
        lambda params: jnp.logaddexp(
            jnp.log(1 - weight) + norm.logpdf(params["theta"], scale=0.05),
            jnp.log(weight) + norm.logpdf(params["theta"], 3.0, 0.5),
        ),
        lambda params, rows: 0.0 * rows["y"] * params["theta"],
    )


@pytest.mark.parametrize("where", ["shards", "lines"])
def test_a_map_of_one_part_is_not_taken_for_the_whole(where):
    generator = np.random.default_rng(4)
    near = 0.05 * generator.normal(size=(2000, 1))
    seen = near if where == "lines" else np.concatenate([near, 3 + near])
    shards = shards_of(slab(0.1), rows_of(40), seen)
    result = shaped(near + near**2 * 8, shards, None)
    assert not result.exact


def test_many_rows_are_not_evaluated_more_often():
    draws = 0.3 * np.random.default_rng(5).normal(size=(500, 2))
    shards = shards_of(RIDGE, rows_of(MAX_BENT_BYTES // 16 + 4), draws)
    result = shaped(draws, shards, None)
    assert result.draws is draws


def test_degenerate_draws_are_kept():
    draws = np.ones((500, 2)) * np.random.default_rng(6).normal(size=(500, 1))
    result = shaped(draws, shards_of(RIDGE, rows_of(40), draws), None)
    assert not result.exact
    assert np.isfinite(result.draws).all()
