"""Means and covariances of the shards' draws, shrunk towards what the shards have in common.

Done once in a run, in NumPy: JAX would take longer to compile it than it takes.
"""

from collections.abc import Iterable

import jax
import numpy as np
from jaxtyping import Array, Float, Int


def means_and_covariances(
    shards: Float[Array, "shard draw dim"] | Iterable[Float[np.ndarray, "draw dim"]],
) -> tuple[Float[np.ndarray, "shard dim"], Float[np.ndarray, "shard dim dim"]]:
    """Means and covariances of the shards' draws, dividing by their number; one shard is looked at after the other."""
    means, covariances = [], []
    room = np.empty((0, 0))  # for all shards: new memory takes as long as the work
    for draws in np.asarray(shards) if isinstance(shards, jax.Array) else shards:
        if len(draws) > len(room):
            room = np.empty_like(draws)
        means.append(draws.mean(axis=0))
        centred = np.subtract(draws, means[-1], out=room[: len(draws)])
        covariances.append(centred.T @ centred / len(draws))
    return np.stack(means), np.stack(covariances)


def shrunk_covariances(draws: Float[Array, "shard draw dim"]) -> Float[np.ndarray, "shard dim dim"]:
    """Covariances of the shards, each shrunk towards what the shards have in common."""
    return shrunk(means_and_covariances(draws)[1], draws.shape[1])


def shrunk(
    covariances: Float[np.ndarray, "shard dim dim"], num_draws: int | Int[np.ndarray, " shard"]
) -> Float[np.ndarray, "shard dim dim"]:
    r"""Covariances of so many draws each, that were divided by their number, shrunk towards what they have in common.

    The pooled covariance is shrunk towards its diagonal; in coordinates that it whitens, every
    shard's covariance is shrunk towards a multiple of the identity. Both amounts are the oracle
    approximating shrinkage of Chen, Wiesel, Eldar and Hero (2010), which vanishes as draws grow
    unless there is nothing to tell apart.
    """
    return shrinkage(covariances, num_draws)[0]


def shrinkage(
    covariances: Float[np.ndarray, "shard dim dim"], num_draws: int | Int[np.ndarray, " shard"]
) -> tuple[Float[np.ndarray, "shard dim dim"], Float[np.ndarray, " shard"]]:
    """Shrunk covariances, and by how much each was shrunk: one is wholly."""
    num_shards, dim, _ = covariances.shape
    counts = np.broadcast_to(num_draws, num_shards)[:, None, None]
    covariances = covariances * counts / (counts - 1)
    if dim == 1:
        return covariances, np.zeros(num_shards)
    pooled = covariances.mean(axis=0)
    scales = np.sqrt(np.diag(pooled))
    correlation = pooled / np.outer(scales, scales)
    amount, _ = _amounts(correlation[None], int(counts.sum()))
    pooled = (1 - amount[0]) * pooled + amount[0] * np.diag(scales**2)
    inverse = np.linalg.inv(np.linalg.cholesky(pooled))
    amounts, variances = _amounts(inverse @ covariances @ inverse.T, counts[:, 0, 0])
    shares = amounts[:, None, None]
    return (1 - shares) * covariances + shares * variances[:, None, None] * pooled, amounts


def _amounts(
    covariances: Float[np.ndarray, "shard dim dim"], num_draws: int | Int[np.ndarray, " shard"]
) -> tuple[Float[np.ndarray, " shard"], Float[np.ndarray, " shard"]]:
    """Amounts of oracle approximating shrinkage towards multiples of the identity, and those multiples."""
    dim = covariances.shape[1]
    variances = np.trace(covariances, axis1=1, axis2=2) / dim
    squares = np.einsum("kij,kij->k", covariances, covariances) / dim**2
    excesses = np.maximum(squares - variances**2 / dim, 1e-300)
    return np.minimum((squares + variances**2) / ((num_draws + 1) * excesses), 1.0), variances
