r"""Aggregate positive-definite matrices by weighing their eigenvalues.

$$F(\Lambda_1, \ldots, \Lambda_K) = \sum_k R_k^\top D_k^{1/2} W_k D_k^{1/2} R_k, \qquad
\Lambda_k = R_k^\top D_k R_k, \quad W_k \succ 0, \quad \sum_k W_k = I,$$

with eigenvalues in decreasing order. For diagonal $W_k$ this is the paper's
$\sum_k R_k^\top [W_k D_k] R_k$; for other $W_k$ the paper's matrix is not symmetric, and this one
is positive definite.

The entropy is a heuristic, as in the paper. Where eigenvalues cross, a part $F_k$ is not a
bijection, and its exact Jacobian depends on gaps between eigenvalues. We take
$\frac{d+1}{2} \log \det W_k$, which is exact for $W_k = w I$ and is that of the congruence
$\Lambda \mapsto W^{1/2} \Lambda W^{1/2}$ (the paper's $\log \det W_k$ is exact for neither). It is
a volume of matrices, transformed to real coordinates.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import biject_to, constraints

from ..space import Point, Product, Scalar
from .base import AbstractAggregator, AbstractFamily
from .weights import AbstractStart, Diagonal, Matrices

FROM_REAL = biject_to(constraints.positive_definite)


class Spectra(NamedTuple):
    """Eigenvalues (decreasing) and eigenvectors of the shards' matrices, and log volumes."""

    eigenvalues: Float[Array, "shard size"]
    vectors: Float[Array, "shard size size"]
    log_volumes: Float[Array, " shard"]


class Spectral(AbstractAggregator):
    """Sums of positive-definite matrices with weighted eigenvalues."""

    weights: Diagonal | Matrices
    size: int = eqx.field(static=True)

    def prepare(self, points: Float[Array, "shard dim"]) -> Spectra:
        matrices = jax.vmap(FROM_REAL)(points)
        eigenvalues, vectors = jnp.linalg.eigh(matrices)
        return Spectra(eigenvalues[:, ::-1], vectors[:, :, ::-1], jax.vmap(_log_volume)(points))

    def merge(self, prepared: Spectra) -> Point:
        if isinstance(self.weights, Diagonal):
            scaled = prepared.vectors * (self.weights.values * prepared.eigenvalues)[:, None, :]
        else:
            halves = prepared.vectors * jnp.sqrt(prepared.eigenvalues)[:, None, :]
            scaled = halves @ self.weights.values * jnp.sqrt(prepared.eigenvalues)[:, None, :]
        merged = jnp.einsum("kij,klj->il", scaled, prepared.vectors)
        return FROM_REAL.inv((merged + merged.T) / 2)

    def log_dets(self, prepared: Spectra) -> Float[Array, " shard"]:
        congruence = 0.5 * (self.size + 1) * self.weights.log_dets()
        return congruence + prepared.log_volumes - _log_volume(self.merge(prepared))

    def shard_weights(self) -> Float[Array, "shard dim"]:
        """Return the eigenvalues' weights, repeated for the coordinates of a triangle's row.

        Coordinates are those below the diagonal, row by row, and then the diagonal.
        """
        rows = np.concatenate([np.tril_indices(self.size, -1)[0], np.arange(self.size)])
        return self.weights.diagonals()[:, rows]


class SpectralFamily(AbstractFamily):
    """Sums of positive-definite matrices with weighted eigenvalues, for `PositiveDefinite` spaces.

    Args:
        full: weigh by matrices, not eigenvalue by eigenvalue.
    """

    full: bool = False

    def check(self, space: Product) -> None:
        parts = list(space.values())
        if len(parts) != 1 or not parts[0].is_positive_definite:
            raise TypeError(
                "the spectral family is for one parameter in vcmc.PositiveDefinite(size), without "
                f"a batch; got {dict(space)}. Name a family for each parameter: "
                "vcmc.aggregators.BlockFamily(...)."
            )

    def fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> Spectral:
        self.check(space)
        (matrix_space,) = space.values()
        size = matrix_space.shape[0]
        eigenvalues = jax.jit(jax.vmap(jax.vmap(_eigenvalues)))(draws)
        weights = start.diagonal(eigenvalues)
        if not self.full:
            return Spectral(weights, size)
        return Spectral(Matrices(jax.vmap(jnp.diag)(weights.values)), size)


def _eigenvalues(point: Point) -> Float[Array, " size"]:
    return jnp.linalg.eigvalsh(FROM_REAL(point))[::-1]


def _log_volume(point: Point) -> Scalar:
    """Return the log Jacobian determinant of the map from real coordinates to matrices."""
    return FROM_REAL.log_abs_det_jacobian(point, FROM_REAL(point))
