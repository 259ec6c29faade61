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

With too many coordinates, or too few draws, for a matrix per shard, $B$ is a frame of the target
(`linalg/frames.py`), and averages and scales are diagonal in it: with weights $w_k$,
$y_k = s^{-1} w_k B^{-1} (\theta_k - \bar\theta_k)$, where $s$ are the sds of the averages, and
$V = \mathrm{diag}(s)$ gives the averages.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..linalg.frames import MAX_FRAME_DIM, FrameOperator
from ..linalg.operators import (
    MAX_DENSE_DIM,
    AbstractMatrix,
    DenseOperator,
    DiagonalOperator,
)
from ..linalg.pairing import sum_pairs
from ..linalg.shrinkage import (
    covariance_root,
    means_and_covariances,
    pooled_covariance,
    shrunk,
)
from ..linalg.whitening import Whitening
from ..space import Point, Product, Scalar
from .base import AbstractAggregator, AbstractFamily
from .combinatorial import Combinatorial, common_labels, relabel
from .weights import AbstractStart, Free

# With fewer draws per shard, the covariance of the sum is computed as if shards were independent.
MIN_DRAWS_PER_DIM = 5
MIN_POOLED_DRAWS_PER_DIM = 2  # with fewer draws of all shards, covariances cannot be estimated

FrameNear = Callable[[Float[np.ndarray, " dim"]], Whitening | None]
"""A function from a point to coordinates whitened by the target's curvature near it."""


class AffineMoments(NamedTuple):
    """Means of the shards' prepared draws, and the covariance of each, or of their sum."""

    means: Float[Array, "shard dim"]
    covariance: AbstractMatrix


class Affine(AbstractAggregator):
    """A shift, and a scale for all shards or for each.

    `whitening` is $c$ and $B$, `transforms` are $B^{-1} S_k$, or $w_k / s$ in a frame. The scale is
    an operator of the same kind as the transforms: dense or diagonal.
    """

    shift: Free
    scale: Free
    whitening: Whitening
    means: Float[Array, "shard dim"]
    transforms: AbstractMatrix
    per_shard: bool = eqx.field(static=True)

    @property
    def frame(self) -> FrameOperator | None:
        """The frame in which averages are made, if they are not made in the points' coordinates."""
        return self.whitening.root if isinstance(self.whitening.root, FrameOperator) else None

    @property
    def root(self) -> AbstractMatrix | FrameOperator:
        """The root $B$ of the covariance of averages, or of the frame."""
        return cast(AbstractMatrix | FrameOperator, self.whitening.root)

    @property
    def scale_operator(self) -> AbstractMatrix:
        """The learned scale, as an operator: one, or a batch with one per shard."""
        return type(self.transforms)(self.scale.values)

    def prepare(self, points: Float[Array, "shard dim"]) -> Float[Array, "shard dim"]:
        centred = points - self.means
        return self.transforms @ (centred if self.frame is None else self.frame.solve(centred))

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
        return jax.device_put(whitening.unwhiten(np.asarray(self.shift.values) + white))

    def log_dets(self, prepared: Float[Array, "shard dim"]) -> Float[Array, " shard"]:
        del prepared
        scales = jnp.broadcast_to(self.scale_operator.log_det(), len(self.means))
        # to a frame and back
        root = self.root.log_det() if self.frame is None else jnp.zeros(())
        return scales + self.transforms.log_det() + root

    def moments(self, prepared: Float[Array, "shard draw dim"]) -> AffineMoments:
        kind = type(self.transforms)
        values = kind.covariances(prepared).values
        if not self.per_shard:
            values = values.sum(axis=0)
        return AffineMoments(prepared.mean(axis=1), kind(jnp.asarray(values)))

    # In a frame, moments are diagonal: there are no closed forms, and Newton's method needs none.

    def precision(self, moments: AffineMoments) -> Float[np.ndarray, "dim dim"] | None:
        if isinstance(self.root, FrameOperator):
            return None
        covariance = moments.covariance.numpy()
        if self.per_shard:
            covariance = type(covariance)(covariance.values.sum(axis=0))
        # (B C Bᵀ)⁻¹, without factorizing the product
        return self.root.numpy().inverse().T.congruence(covariance.inverse()).dense()

    def covariance(self, moments: AffineMoments) -> AbstractMatrix | None:
        if isinstance(self.root, FrameOperator):
            return None
        scale = self.scale_operator
        if self.per_shard:
            return self.root.congruence(scale.sum_congruences(moments.covariance))
        return self.root.congruence(scale.congruence(moments.covariance))

    def expected_square(
        self, moments: AffineMoments, centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        covariance = self.covariance(moments)
        if covariance is None:
            return jnp.zeros(())
        bias = self.merge(moments.means) - centre
        return bias @ precision @ bias + covariance.trace_product(precision)

    def shard_weights(self) -> Float[Array, "shard dim"]:
        # once in a run, in NumPy: JAX would take longer to compile it than NumPy to run it
        scale, transforms = self.scale_operator.numpy(), self.transforms.numpy()
        root = self.root.numpy()
        if isinstance(root, FrameOperator):
            weights = root.similar_diagonals(cast(DiagonalOperator, scale.compose(transforms)))
        else:
            weights = root.compose(scale).product_diagonals(transforms)
        return jax.device_put(weights)


class AffineFamily(AbstractFamily):
    """Affine maps of the shards' points.

    Exchangeable components are given common labels first.

    Args:
        full: scale by matrices, not coordinate by coordinate; by default if there are at most 600
            coordinates, and enough draws to estimate covariances. Where there are not,
            `Variational` chooses coordinates by the curvature of the target.
        per_shard: learn a scale for each shard, in place of one on top of averages.
    """

    full: bool | None = None
    per_shard: bool = False

    def fit(
        self,
        space: Product,
        draws: Float[Array, "shard draw dim"],
        start: AbstractStart,
        frame_near: FrameNear | None = None,
    ) -> AbstractAggregator:
        """Return the averages with the initial weights of `start`.

        Where covariances cannot be estimated, they are averages in the frame of the target that
        `frame_near` returns, if it is given.
        """
        alignments = common_labels(space, draws)
        for alignment in alignments:
            draws = relabel(space, draws, alignment)
        fitted: AbstractAggregator = self._affine(self._averages(draws, start, frame_near))
        for alignment in reversed(alignments):
            fitted = Combinatorial(fitted, alignment, space, alternating=False)
        return fitted

    def _averages(
        self,
        draws: Float[Array, "shard draw dim"],
        start: AbstractStart,
        frame_near: FrameNear | None,
    ) -> "_Averages":
        num_shards, num_draws, dim = draws.shape
        pooled_draws = num_shards * (num_draws - 1)
        enough = dim <= MAX_DENSE_DIM and pooled_draws > MIN_POOLED_DRAWS_PER_DIM * dim
        if enough if self.full is None else self.full:
            return (_dense_averages if num_draws > dim else _pooled_averages)(draws, start)
        if self.full is None and frame_near is not None and 1 < dim <= MAX_FRAME_DIM:
            frame = frame_near(np.asarray(draws).mean(axis=(0, 1)))
            if frame is not None:
                return _framed_averages(draws, start, frame)
        return _diagonal_averages(draws, start)

    def _affine(self, averages: "_Averages") -> Affine:
        scale = averages.scale
        if self.per_shard:
            scale = np.broadcast_to(scale, (len(averages.means), *scale.shape))
        root = jax.device_put(averages.root)
        return Affine(
            Free(jax.device_put(np.zeros(averages.means.shape[1]))),
            Free(jax.device_put(scale)),
            Whitening(jax.device_put(averages.centre), root),
            jax.device_put(averages.means),
            jax.device_put(averages.transforms),
            self.per_shard,
        )


class _Averages(NamedTuple):
    """Weighted averages of the shards' draws.

    Centre, root of their covariance or of a frame, B⁻¹ S_k, and the scale that gives the averages.
    """

    means: Float[np.ndarray, "shard dim"]
    centre: Float[np.ndarray, " dim"]
    root: AbstractMatrix | FrameOperator
    transforms: AbstractMatrix
    scale: np.ndarray


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
    transforms = DenseOperator(np.linalg.inv(root) @ weights)
    return _Averages(means, centre, DenseOperator(root), transforms, np.eye(dim))


def _pooled_averages(draws: Float[Array, "shard draw dim"], start: AbstractStart) -> _Averages:
    """Average with matrices that have common eigenvectors.

    Fewer draws than coordinates say little of a shard's own covariance. So shards have a weight for
    each of the coordinates in which the covariance within shards is the identity.
    """
    values = np.asarray(draws)
    root = covariance_root(pooled_covariance(values))
    inverse = np.linalg.inv(root)
    log_det = np.sum(np.log(np.diag(root)))
    frame = Whitening(values.mean(axis=(0, 1)), FrameOperator(root, inverse, log_det))
    framed = _framed_averages(draws, start, frame)
    transforms = DenseOperator(framed.transforms.values[:, :, None] * inverse)
    scaled_root = DenseOperator(root * framed.scale)
    return _Averages(framed.means, framed.centre, scaled_root, transforms, np.eye(len(inverse)))


def _diagonal_averages(draws: Float[Array, "shard draw dim"], start: AbstractStart) -> _Averages:
    """Average with a weight for each shard and coordinate."""
    values = np.asarray(draws)
    means = values.mean(axis=1)
    weights = np.asarray(start.diagonal(draws).values)
    centre = np.sum(weights * means, axis=0)
    sds = np.einsum("kj,knj->nj", weights, values - means[:, None]).std(axis=0)
    transforms = DiagonalOperator(weights / sds)
    return _Averages(means, centre, DiagonalOperator(sds), transforms, np.ones_like(sds))


def _framed_averages(
    draws: Float[Array, "shard draw dim"], start: AbstractStart, frame: Whitening
) -> _Averages:
    """Average with a weight for each shard and coordinate of a frame."""
    root = cast(FrameOperator, frame.root)
    values = np.asarray(draws)
    means = values.mean(axis=1)
    white = np.stack([frame.whiten(shard) for shard in values])
    weights = np.asarray(start.diagonal(cast(Array, white)).values)
    centre = frame.unwhiten(np.sum(weights * white.mean(axis=1), axis=0))
    # as if shards were independent: there are more pairs of draws than were made
    sds = np.sqrt(np.sum(weights**2 * white.var(axis=1), axis=0))
    return _Averages(means, centre, root, DiagonalOperator(weights / sds), sds)
