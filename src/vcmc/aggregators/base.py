"""The interface of aggregators: maps from one point per shard to one point, given weights.

To write one, subclass `AbstractAggregator`. Its weights are fields of a kind from `weights.py`: a
variational method learns them. Work that does not depend on the weights (a decomposition, a
relabelling) belongs in `prepare`, which runs once for each draw.
`vcmc.testing.check_aggregator` checks the laws of aggregators, and `docs/extending.md` has an
example; the built-in ones are in the registry of `tests/aggregators/test_laws.py`.

A family is a set of aggregators that differ in their weights; `AbstractFamily.fit` returns the
member to start from.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..linalg.operators import AbstractMatrix
from ..space import Point, Product, Scalar
from .weights import AbstractStart

PAIRS_PER_CALL = 1000  # combined draws that are merged at once, to limit memory


class AbstractAggregator(eqx.Module):
    """A map from one point per shard to one point, in two stages: `prepare` and `merge`."""

    def prepare(self, points: Float[Array, "shard dim"]) -> Any:
        """Return the input of `merge`, which must not depend on weights: by default the points."""
        return points

    @abc.abstractmethod
    def merge(self, prepared: Any) -> Point:
        """Return one point for the prepared points of all shards."""

    def merge_all(self, prepared: Any) -> Float[Array, "draw dim"]:
        """Merge all prepared draws, which have axes (shard, draw, …)."""
        return jax.vmap(self.merge, in_axes=1)(prepared)

    def merge_pairs(
        self, prepared: Any, pairs: Int[np.ndarray, "shard draw"]
    ) -> Float[Array, "draw dim"]:
        """Merge one prepared draw of each shard for every combined draw.

        Args:
            prepared: prepared draws, axes (shard, draw, …).
            pairs: which draw of each shard goes into each combined draw.
        """
        num_draws = pairs.shape[1]
        size = min(num_draws, PAIRS_PER_CALL)
        padded = np.pad(pairs, ((0, 0), (0, -num_draws % size)), mode="edge")
        parts = [
            _merge_pairs(self, prepared, jnp.asarray(padded[:, first : first + size]))
            for first in range(0, num_draws, size)
        ]
        return jnp.asarray(np.concatenate(parts)[:num_draws])

    @abc.abstractmethod
    def log_dets(self, prepared: Any) -> Float[Array, " shard"]:
        r"""Return $\log |\det J(F_k)|$ for each shard's part $F_k$ of a sum $F = \sum_k F_k$.

        Jacobians are those in real coordinates: added to the entropy of a shard's points they give
        the entropy of its part.
        """

    def moments(self, prepared: Any) -> Any:
        """Return the moments of prepared draws that the closed forms below need."""
        del prepared

    def precision(self, moments: Any) -> Float[np.ndarray, "dim dim"] | None:
        """Return a first estimate of the posterior's precision; None without `expected_square`."""
        del moments
        return None

    def covariance(self, moments: Any) -> AbstractMatrix | None:
        """Return the covariance of points merged from independent draws, or None.

        It is a `DenseOperator`, or a `DiagonalOperator` of the variances. None stands for a family
        without a closed form.
        """
        del moments
        return None

    def expected_square(
        self, moments: Any, centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        r"""Return $\mathbb E (F - c)^\top P (F - c)$ over independent draws of the shards.

        It reduces the variance of the objective's estimate. A family without a closed form returns
        zero, and None from `precision`.
        """
        del moments, centre, precision
        return jnp.zeros(())

    def realigned(self, draws: Float[Array, "shard draw dim"]) -> "AbstractAggregator":
        """Return the aggregator with its discrete parts fitted again, given its weights."""
        del draws
        return self

    @abc.abstractmethod
    def shard_weights(self) -> Float[Array, "shard dim"]:
        """Return a weight for each shard and coordinate, for reports; of matrices the diagonals."""

    def __call__(self, points: Float[Array, "shard dim"]) -> Point:
        return self.merge(self.prepare(points))


class AbstractFamily(eqx.Module):
    """A set of aggregators that differ in their weights."""

    def check(self, space: Product) -> None:
        """Raise an error if the family cannot aggregate points of this space."""
        del space

    @abc.abstractmethod
    def fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> AbstractAggregator:
        """Return the member of the family with the initial weights of `start`."""


def aggregate(
    aggregator: AbstractAggregator,
    draws: Float[Array, "shard draw dim"],
    pairs: Int[np.ndarray, "shard draw"] | None = None,
) -> Float[Array, "draw dim"]:
    """Apply an aggregator to one draw of each shard, as paired.

    By default, these are the first draws of all shards, the second draws, and so on.
    """
    prepared = prepare_all(aggregator, draws)
    if pairs is None:
        return merge_all(aggregator, prepared)
    return aggregator.merge_pairs(prepared, pairs)


def prepare_all(aggregator: AbstractAggregator, draws: Float[Array, "shard draw dim"]) -> Any:
    """Prepare all draws; the result has axes (shard, draw, …)."""
    num_shards, _, dim = draws.shape
    points = jax.ShapeDtypeStruct((num_shards, dim), draws.dtype)
    # where there is nothing to prepare, a copy would take as long as merging
    return draws if _is_identity(aggregator.prepare, points) else _prepare(aggregator, draws)


def _is_identity(function: Callable[[Array], Any], argument: jax.ShapeDtypeStruct) -> bool:
    """Return whether a function returns its argument."""
    program, output = jax.make_jaxpr(function, return_shape=True)(argument)
    is_array = isinstance(output, jax.ShapeDtypeStruct)
    return is_array and program.jaxpr.outvars == program.jaxpr.invars


@eqx.filter_jit
def _prepare(aggregator: AbstractAggregator, draws: Float[Array, "shard draw dim"]) -> Any:
    return jax.vmap(aggregator.prepare, in_axes=1, out_axes=1)(draws)


@eqx.filter_jit
def _merge_pairs(
    aggregator: AbstractAggregator, prepared: Any, pairs: Int[Array, "shard draw"]
) -> Float[Array, "draw dim"]:
    shards = jnp.arange(len(pairs))[:, None]
    return aggregator.merge_all(jax.tree.map(lambda leaf: leaf[shards, pairs], prepared))


@eqx.filter_jit
def merge_all(aggregator: AbstractAggregator, prepared: Any) -> Float[Array, "draw dim"]:
    """Merge all prepared draws."""
    return aggregator.merge_all(prepared)
