r"""Weights of shards: positive, and adding up to one, coordinate by coordinate or as matrices.

$$w_{kj} > 0, \quad \sum_k w_{kj} = 1 \qquad\text{or}\qquad W_k \succ 0, \quad \sum_k W_k = I.$$

Both kinds can be *projected* onto (the nearest weights to any numbers, as projected gradients need) and
both have *free* coordinates (real numbers that always stand for weights, as Adam and its kin need).
Weights stay above a small share of the uniform weight, as the log of a weight must be finite.
"""

import abc
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..space import Scalar

FLOOR = 1e-3  # the smallest weight, as a share of the uniform weight
NEWTON_STEPS, CG_STEPS, TOLERANCE = 50, 200, 1e-13

Tree = TypeVar("Tree")
State = tuple[Array, Array, Array, Array, Array]


class AbstractWeights(eqx.Module):
    """What is learned of an aggregator: weights of shards, or numbers that are free."""

    values: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def project(self) -> "AbstractWeights":
        """The nearest weights to these values, which need not be weights: least squares."""

    @abc.abstractmethod
    def free(self) -> Array:
        """Real numbers that stand for these weights."""

    @abc.abstractmethod
    def from_free(self, free: Array) -> "AbstractWeights":
        """The weights that real numbers stand for."""


class Diagonal(AbstractWeights):
    """A weight for every shard and coordinate.

    >>> Diagonal(jnp.array([[0.5], [1.5]])).project().values.round(3).tolist()
    [[0.0], [1.0]]
    """

    values: Float[Array, "shard dim"]

    def project(self) -> "Diagonal":
        # here, not above: it adds to the time of `import vcmc`
        from optax.projections import projection_simplex

        floor = FLOOR / len(self.values)

        def nearest(column: Float[Array, " shard"]) -> Float[Array, " shard"]:
            return floor + projection_simplex(column - floor, 1 - FLOOR)

        return Diagonal(jax.vmap(nearest, in_axes=1, out_axes=1)(self.values))

    def free(self) -> Float[Array, "shard dim"]:
        return jnp.log(self.values)

    def from_free(self, free: Float[Array, "shard dim"]) -> "Diagonal":
        return Diagonal(jax.nn.softmax(free, axis=0))

    def log_dets(self) -> Float[Array, " shard"]:
        """The log determinant of every shard's weights."""
        return jnp.sum(jnp.log(self.values), axis=1)

    def diagonals(self) -> Float[Array, "shard dim"]:
        """The weights of single coordinates."""
        return self.values


class Matrices(AbstractWeights):
    """A positive-definite matrix for every shard."""

    values: Float[Array, "shard dim dim"]

    def project(self) -> "Matrices":
        num_shards, dim, _ = self.values.shape
        floor = FLOOR / num_shards * jnp.eye(dim)
        symmetric = (self.values + jnp.swapaxes(self.values, 1, 2)) / 2
        return Matrices(floor + _nearest_psd_sum(symmetric - floor, 1 - FLOOR))

    def free(self) -> Float[Array, "shard dim dim"]:
        roots = jnp.linalg.cholesky(len(self.values) * self.values)
        return roots / _free_scales(self.values.shape[1])

    def from_free(self, free: Float[Array, "shard dim dim"]) -> "Matrices":
        roots = jnp.tril(free) * _free_scales(free.shape[1])
        common = jnp.linalg.cholesky(jnp.einsum("kij,klj->il", roots, roots))
        parts = jax.vmap(lambda root: jax.scipy.linalg.solve_triangular(common, root, lower=True))(
            roots
        )
        return Matrices(jnp.einsum("kij,klj->kil", parts, parts))

    def log_dets(self) -> Float[Array, " shard"]:
        """The log determinant of every shard's weights."""
        roots = jnp.linalg.cholesky(self.values)
        return 2 * jnp.sum(jnp.log(jnp.diagonal(roots, axis1=1, axis2=2)), axis=1)

    def diagonals(self) -> Float[Array, "shard dim"]:
        """The weights of single coordinates."""
        return jnp.diagonal(self.values, axis1=1, axis2=2)


class Free(AbstractWeights):
    """Numbers that are free: they need neither be positive nor add up to anything."""

    values: Array

    def project(self) -> "Free":
        return self

    def free(self) -> Array:
        return self.values

    def from_free(self, free: Array) -> "Free":
        return Free(free)


def _free_scales(dim: int) -> Float[Array, "dim dim"]:
    """What a free coordinate of one counts for: less off the diagonal, where there are so many."""
    off = jnp.full((dim, dim), 1 / dim)
    return off + jnp.diag(jnp.full(dim, 1 - 1 / dim))


def _nearest_psd_sum(
    values: Float[Array, "shard dim dim"], total: float
) -> Float[Array, "shard dim dim"]:
    r"""The positive semidefinite matrices nearest to symmetric ones that add up to a multiple of I.

    They are $V_k = (Y_k + M)_+$ for the symmetric $M$ that minimises the dual $\frac 1 2 \sum_k \lVert (Y_k + M)_+ \rVert^2 - t
    \operatorname{tr} M$: convex, and solved by Newton's method with conjugate gradients (as Qi and Sun did for the nearest
    correlation matrix).
    """
    num_shards, dim, _ = values.shape
    goal = total * jnp.eye(dim)
    tolerance = TOLERANCE * (1 + jnp.max(jnp.abs(values)))

    def split(shift: Array) -> tuple[Array, Array, Array]:
        roots, vectors = jnp.linalg.eigh(values + shift)
        return (
            roots,
            vectors,
            jnp.einsum("kij,kj,klj->kil", vectors, jnp.maximum(roots, 0), vectors),
        )

    def dual(shift: Array, roots: Array) -> Scalar:
        return 0.5 * jnp.sum(jnp.maximum(roots, 0) ** 2) - jnp.sum(goal * shift)

    def newton(state: State) -> State:
        step, shift, roots, vectors, kept = state
        # the derivative of (Y)_+ in direction H is Q (C ∘ Qᵀ H Q) Qᵀ with C of divided differences
        clipped = jnp.maximum(roots, 0)
        difference = roots[:, :, None] - roots[:, None, :]
        same = jnp.abs(difference) < 1e-14
        slopes = jnp.where(
            same,
            (roots > 0)[:, :, None],
            (clipped[:, :, None] - clipped[:, None, :]) / jnp.where(same, 1.0, difference),
        )

        def derivative(direction: Array) -> Array:
            rotated = jnp.einsum("kji,jl,klm->kim", vectors, direction, vectors)
            return (
                jnp.einsum("kij,kjl,kml->im", vectors, slopes * rotated, vectors)
                + 1e-10 * direction
            )

        residual = goal - kept.sum(axis=0)
        direction, _ = jax.scipy.sparse.linalg.cg(derivative, residual, maxiter=CG_STEPS, tol=1e-12)
        direction = (direction + direction.T) / 2
        here, fall = dual(shift, roots), jnp.sum(residual * direction)

        def too_long(length: Array) -> Array:
            there = shift + length * direction
            rounding = 1e-14 * (1 + jnp.abs(here))
            higher = (
                dual(there, jnp.linalg.eigvalsh(values + there))
                > here - 1e-4 * length * fall + rounding
            )
            return higher & (length > 1e-12)

        length = jax.lax.while_loop(too_long, lambda length: length / 2, jnp.ones(()))
        shift = shift + length * direction
        return step + 1, shift, *split(shift)

    def unfinished(state: State) -> Array:
        return (state[0] < NEWTON_STEPS) & (
            jnp.max(jnp.abs(state[4].sum(axis=0) - goal)) > tolerance
        )

    shift = (goal - values.sum(axis=0)) / num_shards
    kept = jax.lax.while_loop(unfinished, newton, (jnp.zeros((), int), shift, *split(shift)))[4]
    # the sum is right up to rounding; a congruence makes it exact and keeps matrices positive
    root = jnp.linalg.cholesky(kept.sum(axis=0) / total)
    half = jax.scipy.linalg.solve_triangular(root, kept, lower=True)
    return jax.scipy.linalg.solve_triangular(root, jnp.swapaxes(half, 1, 2), lower=True)


def weights_of(tree: Any) -> list[AbstractWeights]:
    """All weights inside an aggregator."""
    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=_is_weights) if _is_weights(leaf)]


def with_weights(tree: Tree, weights: list[AbstractWeights]) -> Tree:
    """The same aggregator with other weights, in the order of `weights_of`."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_weights)
    rest = iter(weights)
    return jax.tree.unflatten(
        structure, [next(rest) if _is_weights(leaf) else leaf for leaf in leaves]
    )


def _is_weights(leaf: Any) -> bool:
    return isinstance(leaf, AbstractWeights)


class AbstractStart(eqx.Module):
    """A rule of thumb for the weights: what a variational method starts from."""

    @abc.abstractmethod
    def diagonal(self, draws: Float[Array, "shard draw dim"]) -> Diagonal:
        """A weight for every shard and coordinate."""

    @abc.abstractmethod
    def matrices(
        self, precisions: Float[np.ndarray, "shard dim dim"]
    ) -> Float[np.ndarray, "shard dim dim"]:
        """A matrix for every shard, given its precision; they add up to the identity, but need not be symmetric."""


class Uniform(AbstractStart):
    """Every shard counts the same."""

    def diagonal(self, draws: Float[Array, "shard draw dim"]) -> Diagonal:
        return Diagonal(jnp.full((draws.shape[0], draws.shape[2]), 1 / draws.shape[0]))

    def matrices(
        self, precisions: Float[np.ndarray, "shard dim dim"]
    ) -> Float[np.ndarray, "shard dim dim"]:
        return np.broadcast_to(np.eye(precisions.shape[1]) / len(precisions), precisions.shape)


class Precision(AbstractStart):
    """Every shard counts by its precision, as in consensus Monte Carlo."""

    def diagonal(self, draws: Float[Array, "shard draw dim"]) -> Diagonal:
        precisions = 1 / np.asarray(draws).var(axis=1, ddof=1)
        return Diagonal(jnp.asarray(precisions / precisions.sum(axis=0)))

    def matrices(
        self, precisions: Float[np.ndarray, "shard dim dim"]
    ) -> Float[np.ndarray, "shard dim dim"]:
        return (
            np.linalg.inv(precisions.sum(axis=0)) @ precisions
        )  # a solve would factorise the sum for every shard
