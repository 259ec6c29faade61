"""Means and covariances of the shards' draws, shrunk towards their common structure.

Computed once in a run, in NumPy: JAX would take longer to compile it than NumPy takes to run it.
"""

from collections.abc import Iterable

import jax
import numpy as np
from jaxtyping import Array, Float, Int

TINY = 1e-300  # keeps quotients finite where the denominator is zero
RIDGES = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # on correlations, tried in turn where they are singular


def means_and_covariances(
    shards: Float[Array, "shard draw dim"] | Iterable[Float[np.ndarray, "draw dim"]],
) -> tuple[Float[np.ndarray, "shard dim"], Float[np.ndarray, "shard dim dim"]]:
    """Return each shard's mean and covariance (divided by the number of draws), one by one."""
    means, covariances = [], []
    buffer = np.empty((0, 0))  # shared by all shards: allocating takes as long as the arithmetic
    for draws in np.asarray(shards) if isinstance(shards, jax.Array) else shards:
        if len(draws) > len(buffer):
            buffer = np.empty_like(draws)
        means.append(draws.mean(axis=0))
        centred = np.subtract(draws, means[-1], out=buffer[: len(draws)])
        covariances.append(centred.T @ centred / len(draws))
    return np.stack(means), np.stack(covariances)


def shrunk_covariances(draws: Float[Array, "shard draw dim"]) -> Float[np.ndarray, "shard dim dim"]:
    """Return the shards' covariances, each shrunk towards their common structure."""
    return shrunk(means_and_covariances(draws)[1], draws.shape[1])


def shrunk(
    covariances: Float[np.ndarray, "shard dim dim"], num_draws: int | Int[np.ndarray, " shard"]
) -> Float[np.ndarray, "shard dim dim"]:
    r"""Return covariances shrunk towards their common structure.

    The pooled covariance is shrunk towards its diagonal; in coordinates that it whitens, each
    shard's covariance is shrunk towards a multiple of the identity. Both intensities are the
    oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010), which vanishes as the
    number of draws grows, unless the shards have the same covariance.

    Args:
        covariances: covariances that were divided by the number of draws.
        num_draws: number of draws behind each.
    """
    return shrinkage(covariances, num_draws)[0]


def shrinkage(
    covariances: Float[np.ndarray, "shard dim dim"], num_draws: int | Int[np.ndarray, " shard"]
) -> tuple[Float[np.ndarray, "shard dim dim"], Float[np.ndarray, " shard"]]:
    """Return shrunk covariances and the shrinkage intensity of each, between zero and one."""
    num_shards, dim, _ = covariances.shape
    counts = np.broadcast_to(num_draws, num_shards)[:, None, None]
    covariances = covariances * counts / (counts - 1)
    if dim == 1:
        return covariances, np.zeros(num_shards)
    pooled = _shrunk_to_diagonal(covariances.mean(axis=0), int(counts.sum()))
    inverse = np.linalg.inv(covariance_root(pooled))
    intensities, variances = _intensities(inverse @ covariances @ inverse.T, counts[:, 0, 0])
    shares = intensities[:, None, None]
    return (1 - shares) * covariances + shares * variances[:, None, None] * pooled, intensities


def pooled_covariance(draws: Float[np.ndarray, "shard draw dim"]) -> Float[np.ndarray, "dim dim"]:
    """Return the covariance within shards, from the draws of all, shrunk towards its diagonal."""
    num_shards, num_draws, dim = draws.shape
    centred = (draws - draws.mean(axis=1, keepdims=True)).reshape(-1, dim)
    covariance = centred.T @ centred / (num_shards * (num_draws - 1))
    return covariance if dim == 1 else _shrunk_to_diagonal(covariance, len(centred))


def _shrunk_to_diagonal(
    covariance: Float[np.ndarray, "dim dim"], num_draws: int
) -> Float[np.ndarray, "dim dim"]:
    scales = np.maximum(np.sqrt(np.diag(covariance)), TINY)
    correlation = covariance / np.outer(scales, scales)
    (intensity,), _ = _intensities(correlation[None], num_draws)
    return (1 - intensity) * covariance + intensity * np.diag(scales**2)


def _intensities(
    covariances: Float[np.ndarray, "shard dim dim"], num_draws: int | Int[np.ndarray, " shard"]
) -> tuple[Float[np.ndarray, " shard"], Float[np.ndarray, " shard"]]:
    """Return oracle approximating intensities towards multiples of I, and those multiples."""
    dim = covariances.shape[1]
    variances = np.trace(covariances, axis1=1, axis2=2) / dim
    squares = np.einsum("kij,kij->k", covariances, covariances) / dim**2
    excesses = np.maximum(squares - variances**2 / dim, TINY)
    return np.minimum((squares + variances**2) / ((num_draws + 1) * excesses), 1.0), variances


def covariance_root(covariance: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """Return the Cholesky root of a covariance; of one that is close to singular, with a ridge.

    Draws of very different scales, or of coordinates that determine each other, have covariances
    that rounding errors make indefinite. The ridge is on the correlations, as small as possible.
    """
    if not np.isfinite(covariance).all():
        raise np.linalg.LinAlgError("the covariance of the draws is not finite")
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        sds = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    sds = np.where(sds > 0, sds, 1.0)
    correlation = covariance / np.outer(sds, sds)
    for ridge in RIDGES:
        try:
            return sds[:, None] * np.linalg.cholesky(correlation + ridge * np.eye(len(sds)))
        except np.linalg.LinAlgError:
            continue
    return np.diag(sds)
