r"""Weights of shards: positive, and adding up to one, coordinate by coordinate or as matrices.

$$w_{kj} > 0, \quad \sum_k w_{kj} = 1 \qquad\text{or}\qquad W_k \succ 0, \quad \sum_k W_k = I.$$

Both kinds have a *projection* (the nearest weights to any numbers, for projected gradients) and
*free* coordinates (an unconstrained parametrization, for Adam and other Optax methods). Weights
stay above a small share of the uniform weight, as the logarithm of a weight must be finite.

The nearest positive semidefinite matrices that add up to a multiple of the identity are found as
Qi and Sun (*A quadratically convergent Newton method for computing the nearest correlation matrix*,
2006) find the nearest correlation matrix.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..linalg.operators import DenseOperator, DiagonalOperator
from ..space import Scalar

MIN_WEIGHT_SHARE = 1e-3  # the smallest weight, as a share of the uniform weight
# limits of the projection of matrices, which normally ends by its tolerance
MAX_NEWTON_STEPS = 50
MAX_CG_STEPS = 200
MAX_RESIDUAL = 1e-13  # of the sum of the matrices, relative to their largest entry
CG_TOLERANCE = 1e-12  # relative residual of a Newton step
EQUAL_EIGENVALUES = 1e-14  # difference below which a divided difference is a derivative
DAMPING = 1e-10  # added to the dual's Hessian, which is singular where all eigenvalues are clipped
SUFFICIENT_DECREASE = 1e-4  # Armijo's constant, the usual choice
MIN_STEP = 1e-12  # share of a Newton step at which backtracking ends

Tree = TypeVar("Tree")


class AbstractWeights(eqx.Module):
    """The learned part of an aggregator: weights of shards, or numbers without constraints."""

    values: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def project(self) -> "AbstractWeights":
        """Return the nearest weights to these values, by least squares."""

    @abc.abstractmethod
    def free(self) -> Array:
        """Return the unconstrained coordinates of these weights."""

    @abc.abstractmethod
    def from_free(self, free: Array) -> "AbstractWeights":
        """Return the weights that have the given unconstrained coordinates."""


class Diagonal(AbstractWeights):
    """A weight for each shard and coordinate.

    >>> Diagonal(jnp.array([[0.5], [1.5]])).project().values.round(3).tolist()
    [[0.0], [1.0]]
    """

    values: Float[Array, "shard dim"]

    @property
    def operators(self) -> DiagonalOperator:
        """The weights as linear operators, one per shard."""
        return DiagonalOperator(self.values)

    def project(self) -> "Diagonal":
        # imported here: optax adds to the time of `import vcmc`
        from optax.projections import projection_simplex

        floor = MIN_WEIGHT_SHARE / len(self.values)

        def nearest(column: Float[Array, " shard"]) -> Float[Array, " shard"]:
            return floor + projection_simplex(column - floor, 1 - MIN_WEIGHT_SHARE)

        return Diagonal(jax.vmap(nearest, in_axes=1, out_axes=1)(self.values))

    def free(self) -> Float[Array, "shard dim"]:
        return jnp.log(self.values)

    def from_free(self, free: Float[Array, "shard dim"]) -> "Diagonal":
        return Diagonal(jax.nn.softmax(free, axis=0))

    def log_dets(self) -> Float[Array, " shard"]:
        """Return the log determinant of each shard's weights."""
        return jnp.sum(jnp.log(self.values), axis=1)

    def diagonals(self) -> Float[Array, "shard dim"]:
        """Return the weights of single coordinates."""
        return self.values


class Matrices(AbstractWeights):
    """A positive-definite matrix for each shard."""

    values: Float[Array, "shard dim dim"]

    @property
    def operators(self) -> DenseOperator:
        """The weights as linear operators, one per shard."""
        return DenseOperator(self.values)

    def project(self) -> "Matrices":
        num_shards, dim, _ = self.values.shape
        floor = MIN_WEIGHT_SHARE / num_shards * jnp.eye(dim)
        symmetrized = (self.values + jnp.swapaxes(self.values, 1, 2)) / 2
        return Matrices(floor + _nearest_psd_sum(symmetrized - floor, 1 - MIN_WEIGHT_SHARE))

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
        """Return the log determinant of each shard's weights."""
        roots = jnp.linalg.cholesky(self.values)
        return 2 * jnp.sum(jnp.log(jnp.diagonal(roots, axis1=1, axis2=2)), axis=1)

    def diagonals(self) -> Float[Array, "shard dim"]:
        """Return the weights of single coordinates."""
        return jnp.diagonal(self.values, axis1=1, axis2=2)


class Free(AbstractWeights):
    """Numbers without constraints, e.g. the shift of an affine map."""

    values: Array

    def project(self) -> "Free":
        return self

    def free(self) -> Array:
        return self.values

    def from_free(self, free: Array) -> "Free":
        return Free(free)


def _free_scales(dim: int) -> Float[Array, "dim dim"]:
    """Return the units of free coordinates: smaller off the diagonal, where there are more."""
    off_diagonal = jnp.full((dim, dim), 1 / dim)
    return off_diagonal + jnp.diag(jnp.full(dim, 1 - 1 / dim))


class _DualState(NamedTuple):
    """An iterate of Newton's method on the dual: the multiplier M and its eigendecompositions."""

    step: Int[Array, ""]
    multiplier: Float[Array, "dim dim"]
    eigenvalues: Float[Array, "shard dim"]
    vectors: Float[Array, "shard dim dim"]
    clipped: Float[Array, "shard dim dim"]


def _nearest_psd_sum(
    values: Float[Array, "shard dim dim"], total: float
) -> Float[Array, "shard dim dim"]:
    r"""Return the nearest positive semidefinite matrices that add up to a multiple of I.

    They are $V_k = (Y_k + M)_+$ for the symmetric $M$ that minimizes the convex dual
    $\frac 1 2 \sum_k \lVert (Y_k + M)_+ \rVert^2 - t \operatorname{tr} M$.
    """
    num_shards, dim, _ = values.shape
    goal = total * jnp.eye(dim)
    tolerance = MAX_RESIDUAL * (1 + jnp.max(jnp.abs(values)))

    def is_unfinished(state: _DualState) -> Array:
        residual = jnp.max(jnp.abs(state.clipped.sum(axis=0) - goal))
        return (state.step < MAX_NEWTON_STEPS) & (residual > tolerance)

    multiplier = (goal - values.sum(axis=0)) / num_shards
    clipped = jax.lax.while_loop(
        is_unfinished,
        lambda state: _dual_newton_step(values, goal, state),
        _dual_state(values, jnp.zeros((), int), multiplier),
    ).clipped
    # the sum is right up to rounding; a congruence makes it exact and keeps matrices positive
    root = jnp.linalg.cholesky(clipped.sum(axis=0) / total)
    half = jax.scipy.linalg.solve_triangular(root, clipped, lower=True)
    return jax.scipy.linalg.solve_triangular(root, jnp.swapaxes(half, 1, 2), lower=True)


def _dual_state(values: Float[Array, "shard dim dim"], step: Array, shift: Array) -> _DualState:
    eigenvalues, vectors = jnp.linalg.eigh(values + shift)
    clipped = jnp.einsum("kij,kj,klj->kil", vectors, jnp.maximum(eigenvalues, 0), vectors)
    return _DualState(step, shift, eigenvalues, vectors, clipped)


def _dual_newton_step(
    values: Float[Array, "shard dim dim"], goal: Float[Array, "dim dim"], state: _DualState
) -> _DualState:
    """Minimize the dual along the Newton direction, by conjugate gradients and backtracking."""

    def dual(multiplier: Array, eigenvalues: Array) -> Scalar:
        return 0.5 * jnp.sum(jnp.maximum(eigenvalues, 0) ** 2) - jnp.sum(goal * multiplier)

    residual = goal - state.clipped.sum(axis=0)
    direction, _ = jax.scipy.sparse.linalg.cg(
        _clip_derivative(state), residual, maxiter=MAX_CG_STEPS, tol=CG_TOLERANCE
    )
    direction = (direction + direction.T) / 2
    current, fall = dual(state.multiplier, state.eigenvalues), jnp.sum(residual * direction)

    def is_too_long(length: Array) -> Array:
        multiplier = state.multiplier + length * direction
        rounding = 1e-14 * (1 + jnp.abs(current))
        is_higher = (
            dual(multiplier, jnp.linalg.eigvalsh(values + multiplier))
            > current - SUFFICIENT_DECREASE * length * fall + rounding
        )
        return is_higher & (length > MIN_STEP)

    length = jax.lax.while_loop(is_too_long, lambda length: length / 2, jnp.ones(()))
    return _dual_state(values, state.step + 1, state.multiplier + length * direction)


def _clip_derivative(state: _DualState) -> Callable[[Array], Array]:
    """Return the derivative of Σ (Y_k + M)_+ as a function of the direction H.

    For one matrix it is Q (C ∘ Qᵀ H Q) Qᵀ, with divided differences in C.
    """
    eigenvalues, vectors = state.eigenvalues, state.vectors
    clipped = jnp.maximum(eigenvalues, 0)
    difference = eigenvalues[:, :, None] - eigenvalues[:, None, :]
    same = jnp.abs(difference) < EQUAL_EIGENVALUES
    slopes = jnp.where(
        same,
        (eigenvalues > 0)[:, :, None],
        (clipped[:, :, None] - clipped[:, None, :]) / jnp.where(same, 1.0, difference),
    )

    def derivative(direction: Array) -> Array:
        rotated = jnp.einsum("kji,jl,klm->kim", vectors, direction, vectors)
        changes = jnp.einsum("kij,kjl,kml->im", vectors, slopes * rotated, vectors)
        return changes + DAMPING * direction

    return derivative


def weights_of(tree: Any) -> list[AbstractWeights]:
    """Return all weights in an aggregator."""
    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=_is_weights) if _is_weights(leaf)]


def with_weights(tree: Tree, weights: list[AbstractWeights]) -> Tree:
    """Return the same aggregator with other weights, in the order of `weights_of`."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_weights)
    replacements = iter(weights)
    return jax.tree.unflatten(
        structure, [next(replacements) if _is_weights(leaf) else leaf for leaf in leaves]
    )


def _is_weights(leaf: Any) -> bool:
    return isinstance(leaf, AbstractWeights)


class AbstractStart(eqx.Module):
    """A rule for initial weights, from which a variational method starts."""

    @abc.abstractmethod
    def diagonal(self, draws: Float[Array, "shard draw dim"]) -> Diagonal:
        """Return a weight for each shard and coordinate."""

    @abc.abstractmethod
    def matrices(
        self, precisions: Float[np.ndarray, "shard dim dim"]
    ) -> Float[np.ndarray, "shard dim dim"]:
        """Return a matrix for each shard, given the shards' precisions.

        The matrices add up to the identity, but need not be symmetric.
        """


class Uniform(AbstractStart):
    """The same weight for each shard."""

    def diagonal(self, draws: Float[Array, "shard draw dim"]) -> Diagonal:
        return Diagonal(jnp.full((draws.shape[0], draws.shape[2]), 1 / draws.shape[0]))

    def matrices(
        self, precisions: Float[np.ndarray, "shard dim dim"]
    ) -> Float[np.ndarray, "shard dim dim"]:
        return np.broadcast_to(np.eye(precisions.shape[1]) / len(precisions), precisions.shape)


class Precision(AbstractStart):
    """Weights proportional to the shards' precisions, as in consensus Monte Carlo."""

    def diagonal(self, draws: Float[Array, "shard draw dim"]) -> Diagonal:
        precisions = 1 / np.asarray(draws).var(axis=1, ddof=1)
        return Diagonal(jnp.asarray(precisions / precisions.sum(axis=0)))

    def matrices(
        self, precisions: Float[np.ndarray, "shard dim dim"]
    ) -> Float[np.ndarray, "shard dim dim"]:
        # a solve would factorize the sum for each shard
        return np.linalg.inv(precisions.sum(axis=0)) @ precisions
