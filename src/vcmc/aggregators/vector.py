r"""Aggregate vectors by weighted averages.

$$F(\theta_1, \ldots, \theta_K) = \sum_k W_k \theta_k, \qquad W_k \succ 0, \quad \sum_k W_k = I.$$

With diagonal $W_k$ every coordinate is averaged by itself. With matrices, *symmetric* means something
only relative to coordinates: the precision weights $(\sum_j \Sigma_j^{-1})^{-1} \Sigma_k^{-1}$ of consensus Monte
Carlo are not symmetric, but they are in coordinates $z = B^{-1} \theta$ that make $\sum_j \Sigma_j^{-1}$ the identity.
So the matrices weigh points in a *frame* $B$, $F = B \sum_k W_k B^{-1} \theta_k$, and consensus is a member.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.shrinkage import means_and_covariances, shrunk, shrunk_covariances
from ..space import Point, Product, Scalar
from .base import AbstractAggregator, AbstractFamily
from .weights import AbstractStart, Diagonal, Matrices

FEW = 10  # coordinates: K matrices of this size are cheap to learn
MANY = 100  # coordinates: above, covariances take too long where only variances are weighed


class Moments(NamedTuple):
    """Means of the shards' draws, their covariances or variances, and how many draws there are."""

    means: Float[Array, "shard dim"]
    spreads: Float[Array, "shard dim dim"] | Float[Array, "shard dim"]
    num_draws: int


class Vector(AbstractAggregator):
    """Weighted averages of points, with a weight per coordinate or a matrix per shard.

    >>> half = Diagonal(jnp.full((2, 3), 0.5))
    >>> Vector(half)(jnp.array([[0.0, 0.0, 0.0], [2.0, 4.0, 6.0]])).tolist()
    [1.0, 2.0, 3.0]
    """

    weights: Diagonal | Matrices
    frame: Float[Array, "dim dim"] | None = None

    def prepare(self, points: Float[Array, "shard dim"]) -> Float[Array, "shard dim"]:
        return points if self.frame is None else jnp.linalg.solve(self.frame, points.T).T

    def merge(self, prepared: Float[Array, "shard dim"]) -> Point:
        if isinstance(self.weights, Diagonal):
            merged = jnp.sum(self.weights.values * prepared, axis=0)
        else:
            merged = jnp.einsum("kij,kj->i", self.weights.values, prepared)
        return merged if self.frame is None else self.frame @ merged

    def merge_all(self, prepared: Float[Array, "shard draw dim"]) -> Float[Array, "draw dim"]:
        if not isinstance(self.weights, Diagonal):
            return super().merge_all(prepared)

        def add(total: Array, shard: tuple[Array, Array]) -> tuple[Array, None]:
            return total + shard[0] * shard[1], None

        # shard by shard, so that memory is read in its order: a twentieth of the time
        return jax.lax.scan(add, jnp.zeros(prepared.shape[1:]), (self.weights.values, prepared))[0]

    def log_dets(self, prepared: Float[Array, "shard dim"]) -> Float[Array, " shard"]:
        del prepared
        return self.weights.log_dets()

    def moments(self, prepared: Float[Array, "shard draw dim"]) -> Moments:
        if isinstance(self.weights, Diagonal) and prepared.shape[2] > MANY:
            return Moments(prepared.mean(axis=1), prepared.var(axis=1), prepared.shape[1])
        means, covariances = means_and_covariances(prepared)
        return Moments(jnp.asarray(means), jnp.asarray(covariances), prepared.shape[1])

    def precision(self, moments: Moments) -> Float[np.ndarray, "dim dim"]:
        spreads = np.asarray(moments.spreads)
        if spreads.ndim == 2:
            return np.diag(np.sum(1 / spreads, axis=0))
        inside = np.linalg.inv(shrunk(spreads, moments.num_draws)).sum(axis=0)
        if self.frame is None:
            return inside
        inverse = np.linalg.inv(np.asarray(self.frame))
        return inverse.T @ inside @ inverse

    def covariance(self, moments: Moments) -> Float[Array, "dim dim"] | Float[Array, " dim"]:
        inside = self._covariance(moments)
        return inside if self.frame is None else self.frame @ inside @ self.frame.T

    def _covariance(self, moments: Moments) -> Float[Array, "dim dim"] | Float[Array, " dim"]:
        """The covariance inside the frame."""
        weights, spreads = self.weights.values, moments.spreads
        if isinstance(self.weights, Matrices):
            return jnp.einsum("kij,kjl,kml->im", weights, spreads, weights)
        if spreads.ndim == 2:
            return jnp.sum(weights**2 * spreads, axis=0)
        return jnp.einsum("ki,kij,kj->ij", weights, spreads, weights)

    def expected_square(
        self, moments: Moments, centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        bias = self.merge(moments.means) - centre
        inside = precision if self.frame is None else self.frame.T @ precision @ self.frame
        weights, spreads = self.weights.values, moments.spreads
        if isinstance(self.weights, Matrices):
            square = jnp.sum(jnp.einsum("ij,kjl->kil", inside, weights) * (weights @ spreads))
        elif spreads.ndim == 2:
            square = jnp.sum(jnp.diag(inside) * weights**2 * spreads)
        else:
            square = jnp.sum(weights * jnp.einsum("kij,kj->ki", inside * spreads, weights))
        return bias @ precision @ bias + square

    def shard_weights(self) -> Float[Array, "shard dim"]:
        if self.frame is None:
            return self.weights.diagonals()
        weights = self.frame @ self.weights.values @ jnp.linalg.inv(self.frame)
        return jnp.diagonal(weights, axis1=1, axis2=2)


class VectorFamily(AbstractFamily):
    """Weighted averages of points.

    Args:
        full: weigh by matrices, not coordinate by coordinate; by default where there are at most ten coordinates.
        framed: let the matrices be symmetric in coordinates that the shards' joint precision whitens, so
            that consensus Monte Carlo is in the family. The paper's family has them symmetric as they stand.
    """

    full: bool | None = None
    framed: bool = True

    def fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> Vector:
        full = space.dim <= FEW if self.full is None else self.full
        if not full:
            return Vector(start.diagonal(draws))
        precisions = np.linalg.inv(shrunk_covariances(draws))
        weights = start.matrices(precisions)
        if not self.framed:
            return Vector(Matrices(jnp.asarray(weights)).project())
        frame = np.linalg.inv(np.linalg.cholesky(precisions.sum(axis=0))).T
        inside = np.linalg.solve(frame, weights @ frame)
        return Vector(
            Matrices(jnp.asarray((inside + inside.transpose(0, 2, 1)) / 2)), jnp.asarray(frame)
        )
