"""check_aggregator finds planted faults and names the broken law."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import pytest

from vcmc.aggregators import AbstractAggregator
from vcmc.linalg.operators import DiagonalOperator
from vcmc.testing import check_aggregator


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
        ("K = 1", r"a single shard is returned unchanged. Expected .*within"),
        ("support", "the support is kept. Expected merged points that are finite; got 600 of 600"),
        ("merge_all", "merge_all equals merge of every draw"),
        ("log_dets", "log_dets are those of the Jacobians"),
        ("covariance", "covariance is that of independent draws"),
    ],
)
def test_faults_of_an_aggregator_are_found(fault, law, broken):
    with broken(law):
        check_aggregator(lambda draws: uniform(draws, fault))


def test_a_right_aggregator_passes():
    check_aggregator(uniform)


def test_weights_by_the_number_of_a_shard_are_found(broken):
    with broken(
        "by_number breaks a law: permuting shards together with their weights changes nothing"
    ):
        check_aggregator(by_number)


def test_what_moves_agreed_points_must_say_why(broken):
    with broken(r"equal points are a fixed point"):
        check_aggregator(inflated)
    check_aggregator(inflated, why_moved="draws are spread out, as averages are too narrow")


def test_what_is_no_aggregator_is_refused():
    with pytest.raises(
        TypeError, match="must be a family, or a function from draws to an AbstractAggregator"
    ):
        check_aggregator(lambda draws: draws)
