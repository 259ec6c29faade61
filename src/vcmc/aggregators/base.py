"""What an aggregator is: a map from one point per shard to one point, that weights decide.

To write one, subclass `AbstractAggregator`. Its weights are fields of a kind from `weights.py`: they are
what a variational method changes. What does not depend on weights (a decomposition, a relabelling) belongs
into `prepare`, which is done once for every draw. `vcmc.testing.check_aggregator` has the
laws that it must keep, and `docs/extending.md` an example; ours are in the registry of `tests/aggregators/test_laws.py`.

A family is a set of aggregators that differ in their weights: `AbstractFamily` finds the member to start from.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..space import Point, Product, Scalar
from .weights import AbstractStart


class AbstractAggregator(eqx.Module):
    """A map from one point per shard to one point: what is prepared shard by shard is merged."""

    def prepare(self, points: Float[Array, "shard dim"]) -> Any:
        """What `merge` needs of the shards' points, whatever the weights: by default the points."""
        return points

    @abc.abstractmethod
    def merge(self, prepared: Any) -> Point:
        """The point that stands for one point of every shard."""

    def merge_all(self, prepared: Any) -> Float[Array, "draw dim"]:
        """The points that prepared draws, axes (shard, draw, …), merge to."""
        return jax.vmap(self.merge, in_axes=1)(prepared)

    @abc.abstractmethod
    def log_dets(self, prepared: Any) -> Float[Array, " shard"]:
        r"""How much every shard's part $F_k$ of a sum $F = \sum_k F_k$ spreads volume: $\log |\det J(F_k)|$.

        Volumes are those of real coordinates, so that an entropy of points plus these is one of points.
        """

    def moments(self, prepared: Any) -> Any:
        """What `precision` and `expected_square` need of all prepared draws, axes (shard, draw, …)."""
        del prepared

    def precision(self, moments: Any) -> Float[np.ndarray, "dim dim"] | None:
        """A first idea of the posterior's precision, where `expected_square` is known; else nothing."""
        del moments
        return None

    def covariance(self, moments: Any) -> Float[Array, "dim dim"] | Float[Array, " dim"] | None:
        """The covariance of points merged of independent draws (or their variances, where only those are kept).

        Where there is no closed form, nothing.
        """
        del moments
        return None

    def expected_square(
        self, moments: Any, centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        r"""$\mathbb E (F - c)^\top P (F - c)$ over draws of the shards, independent of each other.

        It makes the objective's estimate less noisy. Where there is no closed form, zero, and no `precision`.
        """
        del moments, centre, precision
        return jnp.zeros(())

    def realigned(self, draws: Float[Array, "shard draw dim"]) -> "AbstractAggregator":
        """The aggregator with what is discrete in it fitted again, given its weights: by default there is nothing."""
        del draws
        return self

    @abc.abstractmethod
    def shard_weights(self) -> Float[Array, "shard dim"]:
        """A weight of every shard for every coordinate, to look at: of matrices, the diagonals."""

    def __call__(self, points: Float[Array, "shard dim"]) -> Point:
        return self.merge(self.prepare(points))


class AbstractFamily(eqx.Module):
    """A set of aggregators that differ in their weights."""

    def check(self, space: Product) -> None:
        """Raise an error if the family is not for this space."""
        del space

    @abc.abstractmethod
    def fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> AbstractAggregator:
        """The member of the family that a rule of thumb picks for the shards' draws."""


def aggregate(
    aggregator: AbstractAggregator, draws: Float[Array, "shard draw dim"]
) -> Float[Array, "draw dim"]:
    """Apply an aggregator to the first draws of all shards, to the second draws, and so on."""
    return merge_all(aggregator, prepare_all(aggregator, draws))


def prepare_all(aggregator: AbstractAggregator, draws: Float[Array, "shard draw dim"]) -> Any:
    """What merging needs of all draws, with axes (shard, draw, …)."""
    num_shards, _, dim = draws.shape
    nothing: list[bool] = []
    jax.eval_shape(
        lambda first: nothing.append(aggregator.prepare(first) is first),
        jax.ShapeDtypeStruct((num_shards, dim), draws.dtype),
    )
    # if there is nothing to prepare, a copy would take as long as merging
    return draws if nothing[0] else _prepare(aggregator, draws)


@eqx.filter_jit
def _prepare(aggregator: AbstractAggregator, draws: Float[Array, "shard draw dim"]) -> Any:
    return jax.vmap(aggregator.prepare, in_axes=1, out_axes=1)(draws)


@eqx.filter_jit
def merge_all(aggregator: AbstractAggregator, prepared: Any) -> Float[Array, "draw dim"]:
    """The points that prepared draws merge to."""
    return aggregator.merge_all(prepared)
