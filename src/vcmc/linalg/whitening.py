r"""Whitened coordinates: points are $u = c + R z$ around a centre $c$.

With $R R^\top$ the covariance of draws, or the inverse of a density's curvature at $c$, the points
$z$ look like draws of a standard normal. Scores transform as $R^\top \nabla \log p$.
"""

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .operators import (
    MAX_DENSE_DIM,
    AbstractOperator,
    DenseOperator,
    DiagonalOperator,
    Values,
)
from .shrinkage import covariance_root

MIN_DRAWS_PER_DIM = 1.5  # with fewer draws, a covariance is close to singular
MAX_EIGEN_DIM = 500  # coordinates; of more, an eigendecomposition takes longer than the curvature
MIN_RELATIVE_CURVATURE = 1e-10  # eigenvalues below this share of the largest are rounding errors
# Least to largest curvature along coordinates: below, eigenvalues are those of scaled coordinates …
MAX_UNSCALED_RATIO = 1e-6
NO_CURVATURE = 1e-16  # … without those along which it may be a rounding error


class Whitening(eqx.Module):
    """A centre, and a root of the covariance there: dense, or the standard deviations alone."""

    centre: Float[Values, " dim"]
    root: AbstractOperator

    @classmethod
    def from_draws(cls, draws: Float[np.ndarray, "draw dim"]) -> Self:
        """Return coordinates in which draws have mean zero and covariance I.

        Draws that are too few for their dimension, or of more than `MAX_DENSE_DIM` coordinates,
        have unit variances instead.
        """
        num_draws, dim = draws.shape
        centre = draws.mean(axis=0)
        centred = draws - centre
        if dim <= MAX_DENSE_DIM and num_draws >= MIN_DRAWS_PER_DIM * dim:
            return cls(centre, DenseOperator(covariance_root(centred.T @ centred / num_draws)))
        sds = centred.std(axis=0)
        return cls(centre, DiagonalOperator(np.where(sds > 0, sds, 1.0)))

    @classmethod
    def from_curvature(
        cls, centre: Float[Values, " dim"], curvature: Float[Values, "dim dim"]
    ) -> Self:
        """Return coordinates whitened by minus a Hessian at the centre, by XLA.

        Directions of negative curvature are scaled by its absolute value. Coordinates may differ in
        scale by a factor of up to 10⁸.
        """
        return cls(centre, DenseOperator(_inverse_root(curvature)))

    @property
    def is_dense(self) -> bool:
        """Whether covariances are whitened, not variances alone."""
        return isinstance(self.root, DenseOperator)

    @property
    def root_rows(self) -> Float[np.ndarray, "dim dim"]:
        """The rows of the root, in NumPy."""
        return np.asarray(self.whiten_scores(np.eye(len(self.centre))))

    @property
    def sds(self) -> Float[np.ndarray, " dim"]:
        """The sds of the coordinates."""
        return np.linalg.norm(self.root_rows, axis=1)

    def whiten(self, points: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        """Map points to whitened coordinates."""
        return self.root.solve(points - self.centre)

    def unwhiten(self, white: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        """Map whitened coordinates to points."""
        return self.centre + self.unwhiten_directions(white)

    def unwhiten_point(self, white: Float[Values, " dim"]) -> Float[Values, " dim"]:
        """Map one whitened point, under `vmap`.

        XLA adds up `root @ white` in another order than `white @ root.T`: Markov chains, which
        are compared bit by bit, use the former.
        """
        return self.centre + self.root @ white

    def unwhiten_directions(
        self, directions: Float[Values, "*batch dim"]
    ) -> Float[Values, "*batch dim"]:
        """Map directions from whitened coordinates."""
        return directions @ self.root.T

    def whiten_scores(self, scores: Float[Values, "*batch dim"]) -> Float[Values, "*batch dim"]:
        """Map gradients to whitened coordinates."""
        return scores @ self.root


@jax.jit
def _inverse_root(curvature: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """Return a root of the inverse of a curvature's absolute value; of I if it is not finite."""
    curvature = jnp.where(jnp.isfinite(curvature).all(), curvature, jnp.eye(len(curvature)))
    curvature = (curvature + curvature.T) / 2
    if len(curvature) <= MAX_EIGEN_DIM:
        return _eigen_root(curvature)
    factor = jnp.linalg.cholesky(curvature)
    return jax.lax.cond(
        jnp.isfinite(factor).all(),
        lambda: jax.scipy.linalg.solve_triangular(factor.T, jnp.eye(len(factor)), lower=False),
        lambda: _eigen_root(curvature),
    )


def _eigen_root(curvature: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    units = _units(curvature)
    values, vectors = jnp.linalg.eigh(curvature * units[:, None] * units)
    floor = MIN_RELATIVE_CURVATURE * jnp.max(jnp.abs(values))
    return units[:, None] * vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), floor))


def _units(curvature: Float[Array, "dim dim"]) -> Float[Array, " dim"]:
    """Return units in which coordinates have about the same curvature; ones if they have already.

    In those of a coefficient of sd 10⁻⁴ and another of sd 10³, the curvature of the latter is less
    than the rounding error of the former.
    """
    along = jnp.abs(jnp.diag(curvature))
    largest = jnp.maximum(jnp.max(along), jnp.finfo(along.dtype).tiny)
    along = jnp.where(along > NO_CURVATURE * largest, along, largest)
    is_scaled = jnp.min(along) < MAX_UNSCALED_RATIO * largest
    return jnp.where(is_scaled, jnp.sqrt(largest / along), 1.0)
