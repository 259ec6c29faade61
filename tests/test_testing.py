"""The checks of vcmc.testing find planted faults, and say which law is broken. That ours keep the laws is tested menu by menu."""

import itertools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc import combiners
from vcmc.aggregators import AbstractAggregator
from vcmc.combiners import AbstractCombiner, Combined, Needs
from vcmc.executors import Local
from vcmc.executors.base import Outcome
from vcmc.linalg.operators import DiagonalOperator
from vcmc.samplers import AbstractSampler
from vcmc.testing import (
    LawError,
    check_aggregator,
    check_combiner,
    check_executor,
    check_model,
    check_sampler,
)

MESSAGE = r"breaks a law: .*\. Expected .*; got .*\. Try this: .*\.$"


def broken(law):
    """Something breaks this law, and the message says what was expected, what was got and what to try."""
    return pytest.raises(LawError, match=rf"(?s)^(?=\S+.* {MESSAGE}).*{law}")


# Models

ROWS = {
    "x": np.random.default_rng(0).normal(size=40),
    "y": np.random.default_rng(1).normal(size=40),
}


def log_prior(params):
    return -0.5 * params["slope"] ** 2


def log_likelihood(params, rows):
    return -0.5 * (rows["y"] - params["slope"] * rows["x"]) ** 2


def log_density(params, rows):
    slope, rows = float(params["slope"]), {name: np.asarray(array) for name, array in rows.items()}
    return -0.5 * slope**2 - 0.5 * np.sum((rows["y"] - slope * rows["x"]) ** 2)


def model(log_likelihood=log_likelihood, log_prior=log_prior):
    return vcmc.Model({"slope": vcmc.Real()}, log_prior, log_likelihood)


def summed(params, rows):
    return jnp.sum(log_likelihood(params, rows))


def branching(params, rows):
    return log_likelihood(params, rows) if params["slope"] > -9 else jnp.zeros(len(rows["y"]))


def shortcut(params, rows):
    """Something is added where all rows are at hand."""
    return log_likelihood(params, rows) + (len(rows["y"]) == 39)


def flat(params, rows):
    return log_likelihood(jax.lax.stop_gradient(params), rows)


def misnamed(params, rows):
    return log_likelihood(params, {"x": rows["covariate"], "y": rows["y"]})


def underflowing(params, rows):
    return jnp.log(jax.scipy.stats.norm.cdf(50 * log_likelihood(params, rows)))


counter = itertools.count()


def counting(params, rows):
    return log_likelihood(params, rows) + next(counter)


FAULTS = {
    "summed over rows": (
        summed,
        r"log_likelihood returns one value per row. Expected shape \(39,\); got shape \(\)",
    ),
    "an if on values": (branching, r"jax.jit and jax.vmap.*got TracerBoolConversionError"),
    "otherwise for all rows": (
        shortcut,
        r"the log densities of 4 shards.* 1/4, add up to that of all rows",
    ),
    "no gradient": (flat, "scores are gradients, by finite differences"),
    "a name that rows do not have": (misnamed, "can be called.*KeyError: 'covariate'"),
    "underflow": (underflowing, "log density and score are finite"),
    "a state": (counting, "two calls give the same values"),
}


@pytest.mark.parametrize(("fault", "law"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_of_a_likelihood_are_found(fault, law):
    with broken(law):
        check_model(model(fault), ROWS)


def test_a_right_model_passes():
    check_model(model(), ROWS, log_density=log_density)


def test_a_prior_in_every_row_is_found():
    """Each row has its share of the prior, which is one of the ways to temper it by hand."""
    shares = lambda params, rows: log_likelihood(params, rows) + log_prior(params) / len(rows["y"])  # noqa: E731
    with pytest.raises(
        LawError,
        match=r"breaks a law: it may be sharded. the shards' log likelihoods must add up to the full one, but they do not",
    ):
        check_model(model(shares), ROWS)


def test_a_prior_tempered_by_hand_is_found():
    """Only what the model is meant to be can tell."""
    tempered = model(log_prior=lambda params: log_prior(params) / 4)
    check_model(tempered, ROWS)
    with broken("prior times likelihood is the density that it stands for"):
        check_model(tempered, ROWS, log_density=log_density)


def test_a_prior_of_many_numbers_is_found():
    with broken(r"log_prior returns a single number. Expected shape \(\); got shape \(1,\)"):
        check_model(model(log_prior=lambda params: log_prior(params)[None]), ROWS)


def test_points_must_be_points():
    with pytest.raises(
        ValueError, match=r"points must be two or more, of 1 coordinates; got shape \(3, 2\)"
    ):
        check_model(model(), ROWS, points=jnp.zeros((3, 2)))


# Aggregators


class Averages(AbstractAggregator):
    """Weighted averages, with a fault that is chosen."""

    weights: Any
    fault: str = eqx.field(static=True, default="")

    def merge(self, points):
        merged = jnp.sum(self.weights[:, None] * points, axis=0)
        if self.fault == "K = 1" and len(points) == 1:
            return merged + 1.0
        if self.fault == "support":
            return jnp.where(jnp.ptp(points, axis=0) > 1e-9, jnp.nan, merged)
        return merged

    def merge_all(self, points):
        merged = super().merge_all(points)
        return merged[::-1] if self.fault == "merge_all" and len(points) > 1 else merged

    def log_dets(self, points):
        log_weights = jnp.log(self.weights)
        return (1 if self.fault == "log_dets" else points.shape[1]) * log_weights

    def moments(self, points):
        return points

    def covariance(self, moments):
        if self.fault != "covariance":
            return None
        # weights are not squared
        variances = jnp.sum(self.weights[:, None] * moments.var(axis=1), axis=0)
        return DiagonalOperator(variances)

    def shard_weights(self):
        return jnp.tile(self.weights[:, None], (1, 3))


def uniform(draws, fault=""):
    return Averages(jnp.full(len(draws), 1 / len(draws)), fault)


def by_number(draws):
    weights = jnp.arange(1.0, len(draws) + 1)
    return Averages(weights / weights.sum())


def inflated(draws):
    return Averages(jnp.full(len(draws), 1.0 if len(draws) == 1 else 1.1 / len(draws)))


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("K = 1", r"one shard is left alone. Expected .*within"),
        ("support", "the support is kept. Expected merged points that are finite; got 600 of 600"),
        ("merge_all", "merging all draws is merging each"),
        ("log_dets", "log_dets are those of the shards' parts"),
        ("covariance", "covariance is that of independent draws"),
    ],
)
def test_faults_of_an_aggregator_are_found(fault, law):
    with broken(law):
        check_aggregator(lambda draws: uniform(draws, fault))


def test_a_right_aggregator_passes():
    check_aggregator(uniform)


def test_weights_by_the_number_of_a_shard_are_found():
    with broken(
        "by_number breaks a law: relabelling shards together with their weights changes nothing"
    ):
        check_aggregator(by_number)


def test_what_moves_agreed_points_must_say_why():
    with broken(r"shards that agree are left alone"):
        check_aggregator(inflated)
    check_aggregator(inflated, why_moved="draws are spread out, as averages are too narrow")


def test_what_is_no_aggregator_is_refused():
    with pytest.raises(
        TypeError, match="must be a family, or a function from draws to an AbstractAggregator"
    ):
        check_aggregator(lambda draws: draws)


# Combiners


class Averaged(AbstractCombiner):
    """Averages of draws, with noise and faults that are chosen."""

    fault: str = ""
    needs: ClassVar[Needs] = Needs(streams=True)

    def combine(self, shards):
        if self.fault == "holds all":
            kept = list(shards)
            return Combined(jnp.asarray(np.mean(kept, axis=0)))
        if self.fault.startswith("refuses") and len(set(shards.counts)) > 1:
            raise {"refuses": ValueError, "refuses, oddly": KeyError}[self.fault](
                "draws differ in number"
            )
        merged = combiners.Average().combine(shards).draws
        sds = np.std(merged, axis=0)
        noise = {"unseeded": None, "fixed": 0}
        if self.fault in noise:
            return Combined(
                merged + 1e-9 * np.random.default_rng(noise[self.fault]).normal(size=merged.shape)
            )
        if self.fault == "wide":
            return Combined(merged.mean(axis=0) + 1.1 * (merged - merged.mean(axis=0)))
        return Combined(merged + (0.1 * sds if self.fault == "biased" else 0.0))


class Overridden(combiners.Average):
    def __call__(self, shards):
        return Combined(combiners.Average.__call__(self, shards).draws[::-1])


@pytest.mark.parametrize(
    ("combiner", "settings", "law"),
    [
        (Overridden(), {}, "one shard is left alone"),
        (
            Averaged("unseeded"),
            {},
            "the same seed gives the same draws. Expected .* to the last bit",
        ),
        (Averaged("fixed"), {"uses_seed": True}, "another seed gives other draws"),
        (Averaged("biased"), {}, "exact on 6 equal Gaussian shards of dimension 1"),
        (Averaged("wide"), {}, "exact on 6 equal Gaussian shards of dimension 1"),
        (
            Averaged("biased"),
            {"smooths": 0.03},
            "right on average on 6 Gaussian shards of dimension 4",
        ),
        (
            Averaged("refuses, oddly"),
            {},
            "unequal numbers of draws.*Expected draws or a ValueError; got KeyError",
        ),
        (
            Averaged("refuses"),
            {"may_refuse": False},
            "unequal numbers of draws.*Expected draws; got ValueError",
        ),
        (
            Averaged("holds all"),
            {},
            "holds one shard at a time. Expected the draws of two shards in memory at most; got those of 8",
        ),
    ],
)
def test_faults_of_a_combiner_are_found(combiner, settings, law):
    with broken(law):
        check_combiner(combiner, **settings)


def test_draws_of_unequal_number_may_be_refused():
    check_combiner(Averaged("refuses"))


# Samplers


class Exact(AbstractSampler):
    """Independent draws of the regression's posterior, in NumPy, with a fault that is chosen."""

    num_warmup: int = 10
    num_chains: int = 1
    fault: str = ""

    def setup(self, density):
        x, y, weights = (
            np.asarray(each) for each in (*density.shard.rows.values(), density.shard.weights)
        )
        if self.fault == "padding counts":
            weights = np.ones(len(weights))
        prior = np.diag([1.0, 4.0, 0.25])
        covariance = np.linalg.inv(x.T @ (weights[:, None] * x) + prior)
        return covariance @ x.T @ (weights * y), np.linalg.cholesky(covariance)

    def init(self, setup, start, key):
        return 0

    def advance(self, setup, state, key, num_steps):
        mean, root = setup
        key = () if self.fault == "no key" else tuple(np.asarray(jax.random.key_data(key)).tolist())
        if self.fault == "blocks":
            noise = np.random.default_rng((*key, state)).normal(size=(num_steps, 3))
        else:
            seeds = [(*key, step) for step in range(state, state + num_steps)]
            noise = np.array([np.random.default_rng(seed).normal(size=3) for seed in seeds])
        noise = noise.reshape(num_steps, 3) * (1.15 if self.fault == "wide" else 1.0)
        return state + num_steps, mean + noise @ root.T, {}


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        ("no key", "another key gives other draws"),
        ("blocks", "the length of blocks does not matter"),
        ("wide", "moments are those of the posterior, which is known"),
        ("padding counts", "rows of weight zero do not count"),
    ],
)
def test_faults_of_a_sampler_are_found(fault, law):
    with broken(law):
        check_sampler(Exact(fault=fault))


def test_a_right_sampler_passes():
    check_sampler(Exact())


def test_a_wide_sampler_is_found_by_scores_alone(conjugate):
    rows = {name: array[:80] for name, array in conjugate.rows.items()}
    check_sampler(Exact(), conjugate.model, rows)
    with broken("by Stein's identities"):
        check_sampler(Exact(fault="wide"), conjugate.model, rows)


def test_a_model_comes_with_its_rows(conjugate):
    with pytest.raises(ValueError, match="give both a model and its rows, or neither"):
        check_sampler(Exact(), conjugate.model)


# Executors


class Faulty(Local):
    """Threads that lose the order, or errors, or do other tasks."""

    def __init__(self, fault):
        super().__init__()
        object.__setattr__(self, "fault", fault)

    def outcomes(self, work, tasks, shard_cache, advance=lambda steps: None, one_by_one=False):
        if self.fault == "others":
            tasks = [task._replace(chain=task.chain + 1) for task in tasks]
        found = list(super().outcomes(work, tasks, shard_cache, advance))
        if self.fault == "order":
            return iter(found[::-1])
        if self.fault == "errors":
            return iter([Outcome(each.result) for each in found])
        if self.fault == "raises":
            return iter([Outcome(each.get()) for each in found])
        return iter(found)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (
            "order",
            r"outcomes come in the order of the tasks, one for each. Expected .*\[\(0, 201\).*; got \[\(4, 200\)",
        ),
        ("errors", "an error in a task is told where it belongs"),
        (
            "raises",
            "an error in a task.*Expected an outcome for each task; got RuntimeError: shard 2 is bad",
        ),
        ("others", r"draws are those of Local\(\), to the last bit"),
    ],
)
def test_faults_of_an_executor_are_found(fault, law):
    with broken(law):
        check_executor(Faulty(fault))
