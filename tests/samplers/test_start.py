from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.density import evaluate
from vcmc.executors import Local
from vcmc.samplers.start import climb, common_start, random_starts
from vcmc.target import Target


def target_of(model, rows, num_shards=3):
    partition = vcmc.split(rows, num_shards)
    return Target(model, [partition.load(k) for k in range(num_shards)], Local())


def test_the_start_is_the_full_posterior_mode(conjugate):
    target = target_of(conjugate.model, conjugate.rows)
    start = common_start(target, random_starts(target.pilot, jax.random.key(0)))
    np.testing.assert_allclose(start, conjugate.posterior()[0], atol=1e-4)


def test_the_higher_of_two_modes_is_taken():
    model = vcmc.Model(
        {"mean": vcmc.Real()},
        log_prior=lambda params: -0.5 * (params["mean"] / 3) ** 2,
        log_likelihood=lambda params, rows: jnp.logaddexp(
            -2 * (rows["y"] - params["mean"]) ** 2, -1 - 2 * (rows["y"] + params["mean"]) ** 2
        ),
    )
    target = target_of(model, {"y": np.random.default_rng(0).normal(1.5, 0.1, size=60)})
    for seed in range(5):
        start = common_start(target, random_starts(target.pilot, jax.random.key(seed)))
        assert abs(start[0] - 1.5) < 0.1


@pytest.mark.parametrize(
    ("log_prior", "log_likelihood", "message"),
    [
        (
            lambda params: -jnp.inf,
            lambda params, rows: rows["y"] * params["mean"],
            "the log prior is -inf",
        ),
        (
            lambda params: -(params["mean"] ** 2),
            lambda params, rows: jnp.where(rows["y"] > 0.5, -jnp.inf, params["mean"]),
            r"the log likelihood is -inf in \d+ of 20 rows of shard 0",
        ),
        (
            lambda params: -(params["mean"] ** 2),
            lambda params, rows: jnp.log(params["mean"] - 10 - rows["y"]),
            "the log likelihood is nan",
        ),
    ],
)
def test_a_model_that_is_nowhere_finite_is_refused(log_prior, log_likelihood, message):
    model = vcmc.Model({"mean": vcmc.Real()}, log_prior, log_likelihood)
    rows = {"y": np.random.default_rng(0).uniform(size=60)}
    with pytest.raises(ValueError, match=f"must be finite somewhere .*{message}"):
        vcmc.infer(model, rows, num_shards=3)


def test_a_scale_that_diverges_to_zero_is_fixed():
    """A centred hierarchical model has an unbounded density as its scale vanishes."""
    generator = np.random.default_rng(0)
    group = np.arange(160) % 8
    rows = {"group": group, "y": generator.normal(size=8)[group] * 0.6 + generator.normal(size=160)}

    def hierarchical(group, y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        effects = numpyro.sample("effects", dist.Normal(0, scale).expand([8]).to_event(1))
        numpyro.sample("y", dist.Normal(effects[group], 1.0), obs=y)

    model = vcmc.from_numpyro(hierarchical, rows)
    target = target_of(model, rows, 1)
    start = common_start(target, random_starts(target.pilot, jax.random.key(0)))
    assert float(model.space.constrain(start)["scale"]) > 0.05
    scores = np.asarray(target(start[None])[1][0])
    np.testing.assert_array_less(np.abs(scores[1:]), 0.1)  # the other coordinates are at a maximum


class CountingTarget(Target):
    """A target that counts the points at which all rows are evaluated."""

    num_points = 0

    def __call__(self, points, only=None):
        self.num_points += len(points)
        return super().__call__(points, only)


def logistic(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


@pytest.fixture(scope="module")
def logistic_target():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(4000, 6))
    y = (generator.random(4000) < 1 / (1 + np.exp(-x @ np.linspace(-1, 1, 6)))).astype(float)
    rows = {"x": x, "y": y}
    partition = vcmc.split(rows, 4)
    model = vcmc.from_numpyro(logistic, rows)
    return CountingTarget(model, [partition.load(k) for k in range(4)], Local())


def test_the_mode_is_found_in_few_passes_over_all_rows(logistic_target):
    """With L-BFGS on all rows there were about twenty."""
    starts = random_starts(logistic_target.pilot, jax.random.key(0))
    logistic_target.num_points = 0
    start = common_start(logistic_target, starts)
    assert logistic_target.num_points <= 8
    score = np.asarray(logistic_target(start[None])[1][0])
    hessian = -np.asarray(logistic_target.hessian_products(start, np.eye(6)))
    assert score @ np.linalg.solve(hessian, score) < 1e-5  # within 0.003 sds


def test_a_search_from_the_first_start_moves(logistic_target):
    """At the origin itself the derivative of NumPyro's density is wrong, and no step is uphill."""
    density = partial(evaluate, logistic_target.pilot)
    first = random_starts(logistic_target.pilot, jax.random.key(1))[0]
    mode = climb(density, first, np.zeros(6, bool))
    assert np.abs(density(mode[None])[1]).max() < 0.5
    assert np.abs(mode).max() > 0.5


def test_a_wrong_curvature_leads_to_the_same_mode(logistic_target):
    """One that is far too small, one that is not positive, and one that is unknown."""
    free = np.zeros(6, bool)
    mode = climb(logistic_target, np.zeros(6) + 0.1, free)
    for curvature in (np.eye(6), 1e6 * np.eye(6), -np.eye(6), np.full((1, 1), np.nan)):
        again = climb(logistic_target, np.zeros(6) + 0.1, free, curvature)
        np.testing.assert_allclose(again, mode, atol=1e-3)


@pytest.mark.parametrize("curvature", ["known", "unknown", "wrong"])
@pytest.mark.parametrize("units", [[1e-6, 1.0, 1.0], [1e-4, 1.0, 1e6]])
def test_a_mode_is_found_whatever_the_scales_of_coordinates(units, curvature):
    """L-BFGS in raw coordinates ends up to 8 sds from it."""
    units = np.array(units)
    covariance = (np.full((3, 3), 0.5) + 0.5 * np.eye(3)) * np.outer(units, units)
    precision = np.linalg.inv(covariance)

    def normal(points):
        steps = points - units
        return -0.5 * np.einsum("pi,ij,pj->p", steps, precision, steps), -steps @ precision

    given = {"known": precision, "unknown": None, "wrong": -precision}[curvature]
    for start in ([-3.0, 4.0, 3.0], [20.0, -30.0, 10.0]):
        mode = climb(normal, units * start, np.zeros(3, bool), given, 2 * units)
        np.testing.assert_allclose(mode / units, np.ones(3), atol=1e-3)


def test_the_start_is_the_mode_whatever_the_scales_of_coordinates():
    """Two columns of a regression in units that make coefficients 10⁷ times apart."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 2)) * [1e4, 1e-3]
    y = x @ [2e-4, 500.0] + generator.normal(size=300)
    model = vcmc.Model(
        {"beta": vcmc.Real(2)},
        lambda params: 0.0 * params["beta"].sum(),
        lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
    )
    target = target_of(model, {"x": x, "y": y})
    start = common_start(target, random_starts(target.pilot, jax.random.key(0)))
    sds = np.sqrt(np.diag(np.linalg.inv(x.T @ x)))
    exact = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(start / sds, exact / sds, atol=0.01)
