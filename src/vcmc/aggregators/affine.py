r"""Aggregate points by affine maps: a shift, and a scale without constraints.

$$F(\theta_1, \ldots, \theta_K) = b + \sum_k W_k (\theta_k - \bar\theta_k).$$

Weighted averages cannot leave the convex hull of the shards' means $\bar\theta_k$, and small
shards are all biased in the same direction. Here the weights need not add up to one, and the mean
is free. The map is written in coordinates with centre $c$ and root $B$ that initial weights $S_k$
determine: with $y_k = B^{-1} S_k (\theta_k - \bar\theta_k)$, whose sum has covariance $I$,

$$F = c + B \bigl(a + \sum_k V_k y_k\bigr),$$

so that $a = 0$, $V_k = I$ are the averages with the initial weights, and all learned numbers are of
order one. With one $V$ for all shards, the family is a map on top of consensus draws; it keeps
their share of the posterior's skewness.
"""

from typing import NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..linalg.operators import (
    MAX_DENSE_DIM,
    AbstractMatrix,
    DenseOperator,
    DiagonalOperator,
)
from ..linalg.pairing import sum_pairs
from ..linalg.shrinkage import covariance_root, means_and_covariances, shrunk
from ..linalg.whitening import Whitening
from ..space import Point, Product, Scalar
from .base import AbstractAggregator, AbstractFamily
from .combinatorial import Combinatorial, common_labels, relabel
from .weights import AbstractStart, Free

# With fewer draws per shard, the covariance of the sum is computed as if shards were independent.
MIN_DRAWS_PER_DIM = 5
MIN_POOLED_DRAWS_PER_DIM = 2  # with fewer draws of all shards, covariances cannot be estimated


class AffineMoments(NamedTuple):
    """Means of the shards' prepared draws, and the covariance of each, or of their sum."""

    means: Float[Array, "shard dim"]
    covariance: AbstractMatrix


class Affine(AbstractAggregator):
    """A shift, and a scale for all shards or for each.

    `whitening` is $c$ and $B$, `transforms` are $B^{-1} S_k$. The scale is an operator of the same
    kind as $B$: dense or diagonal.
    """

    shift: Free
    scale: Free
    whitening: Whitening
    means: Float[Array, "shard dim"]
    transforms: AbstractMatrix
    per_shard: bool = eqx.field(static=True)

    @property
    def root(self) -> AbstractMatrix:
        """The root $B$ of the covariance of averages."""
        return cast(AbstractMatrix, self.whitening.root)

    @property
    def scale_operator(self) -> AbstractMatrix:
        """The learned scale, as an operator: one, or a batch with one per shard."""
        return type(self.root)(self.scale.values)

    def prepare(self, points: Float[Array, "shard dim"]) -> Float[Array, "shard dim"]:
        return self.transforms @ (points - self.means)

    def merge(self, prepared: Float[Array, "shard dim"]) -> Point:
        return self.whitening.unwhiten(self.shift.values + self._scaled(prepared))

    def _scaled(self, prepared: Float[Array, "shard dim"]) -> Float[Array, " dim"]:
        if self.per_shard:
            return self.scale_operator.contract(prepared)
        # XLA's own sum over the first axis takes twenty times as long
        return self.scale_operator @ (jnp.ones(len(prepared)) @ prepared)

    def merge_pairs(
        self, prepared: Float[Array, "shard draw dim"], pairs: Int[np.ndarray, "shard draw"]
    ) -> Float[Array, "draw dim"]:
        # The map is linear: each shard's draws are scaled once, and added up as paired.
        scale, parts = self.scale_operator.numpy(), np.asarray(prepared)
        if self.per_shard:
            scales = (type(scale)(values) for values in scale.values)
            scaled = (part @ scale.T for part, scale in zip(parts, scales, strict=True))
            white = sum_pairs(scaled, pairs)
        else:
            white = sum_pairs(parts, pairs) @ scale.T
        whitening = Whitening(np.asarray(self.whitening.centre), self.root.numpy())
        return jnp.asarray(whitening.unwhiten(np.asarray(self.shift.values) + white))

    def log_dets(self, prepared: Float[Array, "shard dim"]) -> Float[Array, " shard"]:
        del prepared
        scales = jnp.broadcast_to(self.scale_operator.log_det(), len(self.means))
        return scales + self.transforms.log_det() + self.root.log_det()

    def moments(self, prepared: Float[Array, "shard draw dim"]) -> AffineMoments:
        values = self.root.covariances(prepared).values
        if not self.per_shard:
            values = values.sum(axis=0)
        return AffineMoments(prepared.mean(axis=1), type(self.root)(jnp.asarray(values)))

    def precision(self, moments: AffineMoments) -> Float[np.ndarray, "dim dim"] | None:
        covariance = moments.covariance.numpy()
        if self.per_shard:
            covariance = type(covariance)(covariance.values.sum(axis=0))
        return self.root.numpy().congruence(covariance).inverse().dense()

    def covariance(self, moments: AffineMoments) -> AbstractMatrix:
        scale = self.scale_operator
        if self.per_shard:
            return self.root.congruence(scale.sum_congruences(moments.covariance))
        return self.root.congruence(scale.congruence(moments.covariance))

    def expected_square(
        self, moments: AffineMoments, centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        bias = self.merge(moments.means) - centre
        return bias @ precision @ bias + self.covariance(moments).trace_product(precision)

    def shard_weights(self) -> Float[Array, "shard dim"]:
        # once in a run, in NumPy: JAX would take longer to compile it than NumPy to run it
        scales = self.root.numpy().compose(self.scale_operator.numpy())
        return jnp.asarray(scales.product_diagonals(self.transforms.numpy()))


class AffineFamily(AbstractFamily):
    """Affine maps of the shards' points.

    Exchangeable components are given common labels first.

    Args:
        full: scale by matrices, not coordinate by coordinate; by default if there are at most 600
            coordinates, and enough draws to estimate covariances.
        per_shard: learn a scale for each shard, in place of one on top of averages.
    """

    full: bool | None = None
    per_shard: bool = False

    def fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> AbstractAggregator:
        alignments = common_labels(space, draws)
        for alignment in alignments:
            draws = relabel(space, draws, alignment)
        fitted: AbstractAggregator = self._fit(draws, start)
        for alignment in reversed(alignments):
            fitted = Combinatorial(fitted, alignment, space, alternating=False)
        return fitted

    def _fit(self, draws: Float[Array, "shard draw dim"], start: AbstractStart) -> Affine:
        num_shards, num_draws, dim = draws.shape
        pooled_draws = num_shards * (num_draws - 1)
        enough = dim <= MAX_DENSE_DIM and pooled_draws > MIN_POOLED_DRAWS_PER_DIM * dim
        full = enough if self.full is None else self.full
        averages = (_dense_averages if full else _diagonal_averages)(draws, start)
        scale = averages.root.identity(dim).values
        if self.per_shard:
            scale = np.broadcast_to(scale, (num_shards, *scale.shape))
        operator = type(averages.root)
        return Affine(
            Free(jnp.asarray(np.zeros(dim))),
            Free(jnp.asarray(scale)),
            Whitening(jnp.asarray(averages.centre), operator(jnp.asarray(averages.root.values))),
            jnp.asarray(averages.means),
            operator(jnp.asarray(averages.transforms)),
            self.per_shard,
        )


class _Averages(NamedTuple):
    """Weighted averages of the shards' draws: centre, root of their covariance, and B⁻¹ S_k."""

    means: Float[np.ndarray, "shard dim"]
    centre: Float[np.ndarray, " dim"]
    root: AbstractMatrix
    transforms: np.ndarray


def _dense_averages(draws: Float[Array, "shard draw dim"], start: AbstractStart) -> _Averages:
    """Average with a matrix for each shard."""
    num_draws, dim = draws.shape[1:]
    values = np.asarray(draws)
    means = values.mean(axis=1)
    _, covariances = means_and_covariances(draws)
    weights = start.matrices(np.linalg.inv(shrunk(covariances, num_draws)))
    centre = np.einsum("kij,kj->i", weights, means)
    if num_draws > MIN_DRAWS_PER_DIM * dim:
        averages = np.einsum("kij,knj->ni", weights, values - means[:, None], optimize=True)
        covariance = averages.T @ averages / num_draws
    else:
        covariance = np.einsum("kij,kjl,kml->im", weights, covariances, weights, optimize=True)
    root = covariance_root(covariance)
    return _Averages(means, centre, DenseOperator(root), np.linalg.inv(root) @ weights)


def _diagonal_averages(draws: Float[Array, "shard draw dim"], start: AbstractStart) -> _Averages:
    """Average with a weight for each shard and coordinate."""
    values = np.asarray(draws)
    means = values.mean(axis=1)
    weights = np.asarray(start.diagonal(draws).values)
    centre = np.sum(weights * means, axis=0)
    sds = np.einsum("kj,knj->nj", weights, values - means[:, None]).std(axis=0)
    return _Averages(means, centre, DiagonalOperator(sds), weights / sds)
