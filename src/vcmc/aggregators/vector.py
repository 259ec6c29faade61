r"""Aggregate vectors by weighted averages.

$$F(\theta_1, \ldots, \theta_K) = \sum_k W_k \theta_k, \qquad W_k \succ 0, \quad \sum_k W_k = I.$$

With diagonal $W_k$, each coordinate is averaged by itself. For matrices, symmetry depends on the
coordinates: the precision weights $(\sum_j \Sigma_j^{-1})^{-1} \Sigma_k^{-1}$ of consensus Monte
Carlo are not symmetric, but they are in coordinates $z = B^{-1} \theta$ that make
$\sum_j \Sigma_j^{-1}$ the identity. The matrices therefore weigh points in a *frame* $B$,
$F = B \sum_k W_k B^{-1} \theta_k$, and consensus is a member.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.operators import (
    AbstractMatrix,
    AbstractOperator,
    DenseOperator,
    DiagonalOperator,
    IdentityOperator,
)
from ..linalg.shrinkage import means_and_covariances, shrunk, shrunk_covariances
from ..space import Point, Product, Scalar
from .base import AbstractAggregator, AbstractFamily
from .weights import AbstractStart, Diagonal, Matrices

MAX_FULL_DIM = 10  # coordinates; K matrices of this size are cheap to learn
MAX_COVARIANCE_DIM = 100  # coordinates; diagonal weights of more are learned from variances alone


class VectorMoments(NamedTuple):
    """Means of the shards' draws, their covariances or variances, and the number of draws."""

    means: Float[Array, "shard dim"]
    covariances: AbstractMatrix
    num_draws: int


class Vector(AbstractAggregator):
    """Weighted averages of points, with a weight per coordinate or a matrix per shard.

    >>> half = Diagonal(jnp.full((2, 3), 0.5))
    >>> Vector(half)(jnp.array([[0.0, 0.0, 0.0], [2.0, 4.0, 6.0]])).tolist()
    [1.0, 2.0, 3.0]
    """

    weights: Diagonal | Matrices
    frame: AbstractOperator = eqx.field(default_factory=IdentityOperator)

    def prepare(self, points: Float[Array, "shard dim"]) -> Float[Array, "shard dim"]:
        return self.frame.solve(points)

    def merge(self, prepared: Float[Array, "shard dim"]) -> Point:
        return self.frame @ self.weights.operators.contract(prepared)

    def merge_all(self, prepared: Float[Array, "shard draw dim"]) -> Float[Array, "draw dim"]:
        if not isinstance(self.weights, Diagonal):
            return super().merge_all(prepared)

        def add(total: Array, shard: tuple[Array, Array]) -> tuple[Array, None]:
            return total + shard[0] * shard[1], None

        # shard by shard, so that memory is read in order: a twentieth of the time
        return jax.lax.scan(add, jnp.zeros(prepared.shape[1:]), (self.weights.values, prepared))[0]

    def log_dets(self, prepared: Float[Array, "shard dim"]) -> Float[Array, " shard"]:
        del prepared
        return self.weights.log_dets()

    def moments(self, prepared: Float[Array, "shard draw dim"]) -> VectorMoments:
        num_draws, dim = prepared.shape[1:]
        if isinstance(self.weights, Diagonal) and dim > MAX_COVARIANCE_DIM:
            variances = DiagonalOperator(prepared.var(axis=1))
            return VectorMoments(prepared.mean(axis=1), variances, num_draws)
        means, covariances = means_and_covariances(prepared)
        return VectorMoments(jnp.asarray(means), DenseOperator(jnp.asarray(covariances)), num_draws)

    def precision(self, moments: VectorMoments) -> Float[np.ndarray, "dim dim"]:
        total = _total_precision(moments.covariances.numpy(), moments.num_draws)
        inverse_transpose = jax.tree.map(np.asarray, self.frame).inverse().T
        return inverse_transpose.congruence(total).dense()

    def covariance(self, moments: VectorMoments) -> AbstractMatrix:
        weights = self.weights.operators
        return self.frame.congruence(weights.sum_congruences(moments.covariances))

    def expected_square(
        self, moments: VectorMoments, centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        bias = self.merge(moments.means) - centre
        inner = self.frame.T.congruence(DenseOperator(precision)).values
        weights = self.weights.operators
        square = weights.sum_congruences_trace(moments.covariances, inner)
        return bias @ precision @ bias + square

    def shard_weights(self) -> Float[Array, "shard dim"]:
        return self.frame.similarity(self.weights.operators).diagonals()


def _total_precision(covariances: AbstractMatrix, num_draws: int) -> AbstractMatrix:
    """Return the sum of the shards' precisions; dense covariances are shrunk first."""
    if isinstance(covariances, DenseOperator):
        covariances = DenseOperator(shrunk(covariances.values, num_draws))
    return type(covariances)(covariances.inverse().values.sum(axis=0))


class VectorFamily(AbstractFamily):
    """Weighted averages of points.

    Args:
        full: weigh by matrices, not coordinate by coordinate; by default if there are at most ten
            coordinates.
        framed: let the matrices be symmetric in coordinates that the shards' joint precision
            whitens, so that consensus Monte Carlo is in the family. In the paper's family they are
            symmetric in the original coordinates.
    """

    full: bool | None = None
    framed: bool = True

    def fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> Vector:
        full = space.dim <= MAX_FULL_DIM if self.full is None else self.full
        if not full:
            return Vector(start.diagonal(draws))
        precisions = np.linalg.inv(shrunk_covariances(draws))
        weights = start.matrices(precisions)
        if not self.framed:
            return Vector(Matrices(jnp.asarray(weights)).project())
        frame = np.linalg.inv(np.linalg.cholesky(precisions.sum(axis=0))).T
        matrices = np.linalg.solve(frame, weights @ frame)
        matrices = (matrices + matrices.transpose(0, 2, 1)) / 2  # symmetric up to rounding
        return Vector(Matrices(jnp.asarray(matrices)), DenseOperator(jnp.asarray(frame)))
