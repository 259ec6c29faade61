r"""Aggregate points by affine maps: a shift, and a free scale.

$$F(\theta_1, \ldots, \theta_K) = b + \sum_k W_k (\theta_k - \bar\theta_k).$$

Weighted averages cannot leave the convex hull of the shards' means $\bar\theta_k$, and small shards are all biased the same way.
Here the weights need not add up to one, and the mean is free. The map is written in a frame $B$ about a centre $c$ that a rule of
thumb for the weights, $S_k$, sets: with $y_k = B^{-1} S_k (\theta_k - \bar\theta_k)$, whose sum has covariance $I$,

$$F = c + B \bigl(a + \sum_k V_k y_k\bigr),$$

so that $a = 0$, $V_k = I$ are the averages that the rule of thumb makes, and all that is learned is of the order of one. With one
$V$ for all shards, the family is a map on top of consensus draws; it keeps what they have of the posterior's skewness.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.shrinkage import means_and_covariances, shrunk
from ..space import Point, Product, Scalar
from .base import AbstractAggregator, AbstractFamily
from .combinatorial import Combinatorial, common_labels, relabel
from .weights import AbstractStart, Free

LARGE = 600  # coordinates: above, matrices of them take too long
ENOUGH = 5  # draws per coordinate: with fewer, their covariance says little


class Spreads(NamedTuple):
    """Means of the shards' parts, and their covariances (or variances), or that of their sum if one scale maps them all."""

    means: Float[Array, "shard dim"]
    values: Array


class Affine(AbstractAggregator):
    """A shift, and a scale for all shards or for each: numbers, or matrices. `inside` is $B^{-1} S_k$."""

    shift: Free
    scale: Free
    centre: Float[Array, " dim"]
    frame: Float[Array, "dim dim"] | Float[Array, " dim"]
    means: Float[Array, "shard dim"]
    inside: Float[Array, "shard dim dim"] | Float[Array, "shard dim"]
    per_shard: bool = eqx.field(static=True)

    @property
    def is_full(self) -> bool:
        """Whether scales are matrices."""
        return self.frame.ndim == 2

    def prepare(self, points: Float[Array, "shard dim"]) -> Float[Array, "shard dim"]:
        away = points - self.means
        return jnp.einsum("kij,kj->ki", self.inside, away) if self.is_full else self.inside * away

    def merge(self, prepared: Float[Array, "shard dim"]) -> Point:
        return self.place(self.shift.values + self._scaled(prepared))

    def place(self, inside: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """Points from coordinates inside the frame."""
        return self.centre + (inside @ self.frame.T if self.is_full else inside * self.frame)

    def _scaled(self, prepared: Float[Array, "shard dim"]) -> Float[Array, " dim"]:
        scale = self.scale.values
        if self.per_shard:
            return (
                jnp.einsum("kij,kj->i", scale, prepared)
                if self.is_full
                else jnp.sum(scale * prepared, axis=0)
            )
        total = jnp.ones(len(prepared)) @ prepared  # XLA's own sum takes twenty times as long
        return scale @ total if self.is_full else scale * total

    def log_dets(self, prepared: Float[Array, "shard dim"]) -> Float[Array, " shard"]:
        del prepared
        scales = jnp.broadcast_to(_log_det(self.scale.values, self.is_full), len(self.means))
        return scales + _log_det(self.inside, self.is_full) + _log_det(self.frame, self.is_full)

    def moments(self, prepared: Float[Array, "shard draw dim"]) -> Spreads:
        spreads = (
            means_and_covariances(prepared)[1] if self.is_full else np.asarray(prepared).var(axis=1)
        )
        if not self.per_shard:
            spreads = spreads.sum(axis=0)
        return Spreads(prepared.mean(axis=1), jnp.asarray(spreads))

    def precision(self, moments: Spreads) -> Float[np.ndarray, "dim dim"] | None:
        if not self.is_full:
            variances = np.asarray(self.frame) ** 2 * self._total(moments)
            return np.diag(1 / variances)
        frame = np.asarray(self.frame)
        return np.linalg.inv(frame @ self._total(moments) @ frame.T)

    def _total(self, moments: Spreads) -> np.ndarray:
        spreads = np.asarray(moments.values)
        return spreads.sum(axis=0) if self.per_shard else spreads

    def covariance(self, moments: Spreads) -> Float[Array, "dim dim"] | Float[Array, " dim"]:
        scale, spreads = self.scale.values, moments.values
        if not self.is_full:
            variances = scale**2 * spreads
            return self.frame**2 * (variances.sum(axis=0) if self.per_shard else variances)
        if self.per_shard:
            inside = jnp.einsum("kij,kjl,kml->im", scale, spreads, scale)
        else:
            inside = scale @ spreads @ scale.T
        return self.frame @ inside @ self.frame.T

    def expected_square(
        self, moments: Spreads, centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        bias = self.merge(moments.means) - centre
        covariance = self.covariance(moments)
        spread = jnp.sum(
            precision * covariance if self.is_full else jnp.diagonal(precision) * covariance
        )
        return bias @ precision @ bias + spread

    def shard_weights(self) -> Float[Array, "shard dim"]:
        # once in a run, in NumPy: JAX would take longer to compile it than it takes
        frame, scale, inside = map(np.asarray, (self.frame, self.scale.values, self.inside))
        if not self.is_full:
            return jnp.asarray(frame * scale * inside)
        scales = frame @ scale
        return jnp.asarray(
            np.einsum("ij,kji->ki" if scales.ndim == 2 else "kij,kji->ki", scales, inside)
        )


def _log_det(matrices: Array, full: bool) -> Array:
    if full:
        return jnp.linalg.slogdet(matrices)[1]
    return jnp.sum(jnp.log(jnp.abs(matrices)), axis=-1)


class AffineFamily(AbstractFamily):
    """Affine maps of the shards' points.

    Exchangeable components are given common labels first.

    Args:
        full: scale by matrices, not coordinate by coordinate; by default where there are at most 600 coordinates, and
            draws for them.
        per_shard: a scale for every shard, in place of one on top of averages.
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
        enough = dim <= LARGE and num_shards * (num_draws - 1) > 2 * dim
        full = enough if self.full is None else self.full
        values = np.asarray(draws)
        means = values.mean(axis=1)
        if full:
            _, covariances = means_and_covariances(draws)
            weights = start.matrices(np.linalg.inv(shrunk(covariances, num_draws)))
            centre = np.einsum("kij,kj->i", weights, means)
            if num_draws > ENOUGH * dim:
                merged = np.einsum("kij,knj->ni", weights, values - means[:, None], optimize=True)
                covariance = merged.T @ merged / num_draws
            else:
                covariance = np.einsum(
                    "kij,kjl,kml->im", weights, covariances, weights, optimize=True
                )
            frame = np.linalg.cholesky(covariance)
            inside = np.linalg.inv(frame) @ weights
        else:
            weights = np.asarray(start.diagonal(draws).values)
            centre = np.sum(weights * means, axis=0)
            merged = np.einsum("kj,knj->nj", weights, values - means[:, None])
            frame = merged.std(axis=0)
            inside = weights / frame
        scale = np.eye(dim) if full else np.ones(dim)
        if self.per_shard:
            scale = np.broadcast_to(scale, (num_shards, *scale.shape))
        return Affine(
            Free(jnp.asarray(np.zeros(dim))),
            Free(jnp.asarray(scale)),
            jnp.asarray(centre),
            jnp.asarray(frame),
            jnp.asarray(means),
            jnp.asarray(inside),
            self.per_shard,
        )
