r"""Linear operators with one interface: dense matrices, diagonal matrices and the identity.

An operator $A$ behaves like the matrix that it stands for: `A @ vector`, `rows @ A` (each row $v$
becomes $v^\top A$), `A.T`, `A.solve(rows)`, `A.log_det()`. Its `values` are NumPy or JAX arrays;
leading axes are a batch of operators, e.g. one per shard. Callers choose the kind of an operator
once, when they build it, and never ask for it again.
"""

import abc
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from .shrinkage import means_and_covariances

MAX_DENSE_DIM = 600  # coordinates; a matrix of more for each shard takes too long

Values = Any  # a NumPy or JAX array; jaxtyping's Array is JAX's alone


class AbstractOperator(eqx.Module):
    """A linear map of R^n."""

    __array_ufunc__ = None  # NumPy arrays leave `rows @ operator` to `__rmatmul__`

    @property
    @abc.abstractmethod
    def T(self) -> "AbstractOperator":  # noqa: N802  (the name that arrays have)
        """The transpose."""

    @abc.abstractmethod
    def __matmul__(self, vectors: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        """Apply to one vector, or a batch of operators to a vector each."""

    @abc.abstractmethod
    def __rmatmul__(self, rows: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        """Multiply rows from the right."""

    @abc.abstractmethod
    def solve(self, rows: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        """Return the vectors that this operator maps to the given ones."""

    @abc.abstractmethod
    def inverse(self) -> "AbstractOperator":
        """Return the inverse."""

    @abc.abstractmethod
    def congruence(self, inner: "AbstractMatrix") -> "AbstractMatrix":
        r"""Return $A C A^\top$."""

    @abc.abstractmethod
    def similarity(self, inner: "AbstractMatrix") -> "AbstractMatrix":
        r"""Return $A C A^{-1}$, or $A C_k A^{-1}$ for a batch."""

    def numpy(self) -> Self:
        """Return the same operator on NumPy arrays."""
        return jax.tree.map(np.asarray, self)


class IdentityOperator(AbstractOperator):
    """The identity, which computes and copies nothing.

    >>> IdentityOperator() @ 3.0
    3.0
    """

    @property
    def T(self) -> "IdentityOperator":  # noqa: N802
        return self

    def __matmul__(self, vectors: Values) -> Values:
        return vectors

    def __rmatmul__(self, rows: Values) -> Values:
        return rows

    def solve(self, rows: Values) -> Values:
        return rows

    def inverse(self) -> "IdentityOperator":
        return self

    def congruence(self, inner: "AbstractMatrix") -> "AbstractMatrix":
        return inner

    def similarity(self, inner: "AbstractMatrix") -> "AbstractMatrix":
        return inner


class AbstractMatrix(AbstractOperator):
    """An operator given by numbers: a matrix or its diagonal, or a batch of either."""

    values: eqx.AbstractVar[Values]

    @classmethod
    @abc.abstractmethod
    def identity(cls, dim: int) -> Self:
        """Return the identity on R^dim, in NumPy."""

    @classmethod
    @abc.abstractmethod
    def covariances(cls, draws: Float[Values, "shard draw dim"]) -> Self:
        """Return each shard's covariance, as far as this kind of operator can hold it."""

    @classmethod
    @abc.abstractmethod
    def second_moment(cls, draws: Float[np.ndarray, "draw dim"]) -> Self:
        """Return the second moment of draws, as far as this kind of operator can hold it."""

    @classmethod
    @abc.abstractmethod
    def from_dense(cls, matrix: Float[Values, "dim dim"]) -> Self:
        """Return the operator with the entries of a matrix, as far as this kind can hold them."""

    @abc.abstractmethod
    def dense(self) -> Float[np.ndarray, "dim dim"]:
        """Return the matrix, in NumPy."""

    @abc.abstractmethod
    def diagonals(self) -> Float[Values, "*batch dim"]:
        """Return the diagonal of each operator."""

    @abc.abstractmethod
    def inverse(self) -> "AbstractMatrix":
        """Return the inverse."""

    @abc.abstractmethod
    def log_det(self) -> Float[Values, "*batch"]:
        """Return the logarithm of the absolute determinant."""

    @abc.abstractmethod
    def log_det_spd(self) -> Float[Values, ""]:
        """Return the log determinant of a symmetric positive-definite operator."""

    @abc.abstractmethod
    def compose(self, other: "AbstractMatrix") -> "AbstractMatrix":
        """Return the product with another operator of the same kind."""

    @abc.abstractmethod
    def product_diagonals(self, other: "AbstractMatrix") -> Float[Values, "shard dim"]:
        r"""Return the diagonals of $A B_k$, or of $A_k B_k$."""

    @abc.abstractmethod
    def trace_product(self, matrix: Float[Values, "dim dim"]) -> Float[Values, ""]:
        r"""Return $\operatorname{tr}(A M)$ for a symmetric matrix $M$."""

    @abc.abstractmethod
    def contract(self, vectors: Float[Values, "shard dim"]) -> Float[Values, " dim"]:
        r"""Return $\sum_k A_k v_k$ over a batch of operators and a vector for each."""

    @abc.abstractmethod
    def sum_congruences(self, inner: "AbstractMatrix") -> "AbstractMatrix":
        r"""Return $\sum_k A_k C_k A_k^\top$ over a batch."""

    @abc.abstractmethod
    def sum_congruences_trace(
        self, inner: "AbstractMatrix", matrix: Float[Values, "dim dim"]
    ) -> Float[Values, ""]:
        r"""Return $\operatorname{tr}(M \sum_k A_k C_k A_k^\top)$ without forming the sum."""

    @abc.abstractmethod
    def sum_scaled(self, scales: Float[Values, "shard dim"]) -> "AbstractMatrix":
        r"""Return $\sum_k S_k C_k S_k$ for diagonal matrices $S_k$."""

    @abc.abstractmethod
    def sum_scaled_trace(
        self, scales: Float[Values, "shard dim"], matrix: Float[Values, "dim dim"]
    ) -> Float[Values, ""]:
        r"""Return $\operatorname{tr}(M \sum_k S_k C_k S_k)$ for diagonal matrices $S_k$."""

    def interpolate(self, other: Self, share: float) -> Self:
        """Return the operator that is some share of the way to another."""
        return type(self)(self.values + share * (other.values - self.values))


class DenseOperator(AbstractMatrix):
    """A matrix, or a batch of them.

    >>> operator = DenseOperator(np.array([[2.0, 1.0], [0.0, 4.0]]))
    >>> (operator @ np.ones(2)).tolist(), (np.ones(2) @ operator).tolist()
    ([3.0, 4.0], [2.0, 5.0])
    """

    values: Float[Values, "*batch dim dim"]

    @classmethod
    def identity(cls, dim: int) -> Self:
        return cls(np.eye(dim))

    @classmethod
    def covariances(cls, draws: Float[Values, "shard draw dim"]) -> Self:
        return cls(means_and_covariances(draws)[1])

    @classmethod
    def second_moment(cls, draws: Float[np.ndarray, "draw dim"]) -> Self:
        return cls(draws.T @ draws / len(draws))

    @classmethod
    def from_dense(cls, matrix: Float[Values, "dim dim"]) -> Self:
        return cls(matrix)

    def dense(self) -> Float[np.ndarray, "dim dim"]:
        return np.asarray(self.values)

    def diagonals(self) -> Float[Values, "*batch dim"]:
        return _namespace(self.values).diagonal(self.values, axis1=-2, axis2=-1)

    @property
    def T(self) -> "DenseOperator":  # noqa: N802
        return DenseOperator(self.values.swapaxes(-1, -2))

    def __matmul__(self, vectors: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        if self.values.ndim == 2:
            return self.values @ vectors
        return _namespace(self.values).einsum("kij,kj->ki", self.values, vectors)

    def __rmatmul__(self, rows: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        return rows @ self.values

    def solve(self, rows: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        return _namespace(self.values).linalg.solve(self.values, rows.T).T

    def inverse(self) -> Self:
        return type(self)(_namespace(self.values).linalg.inv(self.values))

    def log_det(self) -> Float[Values, "*batch"]:
        return _namespace(self.values).linalg.slogdet(self.values)[1]

    def log_det_spd(self) -> Float[Values, ""]:
        xp = _namespace(self.values)
        return 2 * xp.sum(xp.log(xp.diagonal(xp.linalg.cholesky(self.values))))

    def contract(self, vectors: Float[Values, "shard dim"]) -> Float[Values, " dim"]:
        return _namespace(self.values).einsum("kij,kj->i", self.values, vectors)

    def congruence(self, inner: AbstractMatrix) -> "DenseOperator":
        return DenseOperator(self.values @ inner.values @ self.values.T)

    def similarity(self, inner: AbstractMatrix) -> "DenseOperator":
        inverse = _namespace(self.values).linalg.inv(self.values)
        return DenseOperator(self.values @ inner.values @ inverse)

    def sum_congruences(self, inner: AbstractMatrix) -> "DenseOperator":
        xp, weights = _namespace(self.values), self.values
        return DenseOperator(xp.einsum("kij,kjl,kml->im", weights, inner.values, weights))

    def sum_congruences_trace(
        self, inner: AbstractMatrix, matrix: Float[Values, "dim dim"]
    ) -> Float[Values, ""]:
        left = _namespace(self.values).einsum("ij,kjl->kil", matrix, self.values)
        return (left * (self.values @ inner.values)).sum()

    def sum_scaled(self, scales: Float[Values, "shard dim"]) -> "DenseOperator":
        xp = _namespace(self.values)
        return DenseOperator(xp.einsum("ki,kij,kj->ij", scales, self.values, scales))

    def sum_scaled_trace(
        self, scales: Float[Values, "shard dim"], matrix: Float[Values, "dim dim"]
    ) -> Float[Values, ""]:
        xp = _namespace(self.values)
        return (scales * xp.einsum("kij,kj->ki", matrix * self.values, scales)).sum()

    def trace_product(self, matrix: Float[Values, "dim dim"]) -> Float[Values, ""]:
        return (matrix * self.values).sum()

    def compose(self, other: AbstractMatrix) -> "DenseOperator":
        return DenseOperator(self.values @ other.values)

    def product_diagonals(self, other: AbstractMatrix) -> Float[Values, "shard dim"]:
        subscripts = "ij,kji->ki" if self.values.ndim == 2 else "kij,kji->ki"
        return _namespace(self.values).einsum(subscripts, self.values, other.values)


class DiagonalOperator(AbstractMatrix):
    """A diagonal matrix, or a batch of them, by its diagonal.

    >>> operator = DiagonalOperator(np.array([2.0, 4.0]))
    >>> (operator @ np.ones(2)).tolist(), float(operator.log_det().round(3))
    ([2.0, 4.0], 2.079)
    """

    values: Float[Values, "*batch dim"]

    @classmethod
    def identity(cls, dim: int) -> Self:
        return cls(np.ones(dim))

    @classmethod
    def covariances(cls, draws: Float[Values, "shard draw dim"]) -> Self:
        return cls(np.asarray(draws).var(axis=1))

    @classmethod
    def second_moment(cls, draws: Float[np.ndarray, "draw dim"]) -> Self:
        return cls(np.mean(draws**2, axis=0))

    @classmethod
    def from_dense(cls, matrix: Float[Values, "dim dim"]) -> Self:
        return cls(_namespace(matrix).diagonal(matrix))

    def dense(self) -> Float[np.ndarray, "dim dim"]:
        return np.diag(np.asarray(self.values))

    def diagonals(self) -> Float[Values, "*batch dim"]:
        return self.values

    @property
    def T(self) -> "DiagonalOperator":  # noqa: N802
        return self

    def __matmul__(self, vectors: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        return self.values * vectors

    def __rmatmul__(self, rows: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        return rows * self.values

    def solve(self, rows: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        return rows / self.values

    def inverse(self) -> Self:
        return type(self)(1 / self.values)

    def log_det(self) -> Float[Values, "*batch"]:
        xp = _namespace(self.values)
        return xp.sum(xp.log(xp.abs(self.values)), axis=-1)

    def log_det_spd(self) -> Float[Values, ""]:
        xp = _namespace(self.values)
        return xp.sum(xp.log(self.values))

    def contract(self, vectors: Float[Values, "shard dim"]) -> Float[Values, " dim"]:
        return (self.values * vectors).sum(axis=0)

    def congruence(self, inner: AbstractMatrix) -> "DiagonalOperator":
        return DiagonalOperator(self.values**2 * inner.values)

    def similarity(self, inner: AbstractMatrix) -> AbstractMatrix:
        return inner

    def sum_congruences(self, inner: AbstractMatrix) -> AbstractMatrix:
        return inner.sum_scaled(self.values)

    def sum_congruences_trace(
        self, inner: AbstractMatrix, matrix: Float[Values, "dim dim"]
    ) -> Float[Values, ""]:
        return inner.sum_scaled_trace(self.values, matrix)

    def sum_scaled(self, scales: Float[Values, "shard dim"]) -> "DiagonalOperator":
        return DiagonalOperator((scales**2 * self.values).sum(axis=0))

    def sum_scaled_trace(
        self, scales: Float[Values, "shard dim"], matrix: Float[Values, "dim dim"]
    ) -> Float[Values, ""]:
        return (_namespace(matrix).diagonal(matrix) * scales**2 * self.values).sum()

    def trace_product(self, matrix: Float[Values, "dim dim"]) -> Float[Values, ""]:
        return (_namespace(matrix).diagonal(matrix) * self.values).sum()

    def compose(self, other: AbstractMatrix) -> "DiagonalOperator":
        return DiagonalOperator(self.values * other.values)

    def product_diagonals(self, other: AbstractMatrix) -> Float[Values, "shard dim"]:
        return self.values * other.values


def _namespace(array: Values) -> Any:
    """Return `numpy` or `jax.numpy`, whichever an array belongs to."""
    return array.__array_namespace__()
