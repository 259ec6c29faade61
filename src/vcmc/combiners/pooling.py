r"""Pool the shards' draws, transported to a common mean and covariance.

Draws of mean $\mu_k$ and covariance $\Sigma_k$ are transported to $\mu$ and $\Sigma$ by
$\theta \mapsto \mu + A_k (\theta - \mu_k)$ with

$$A_k = \Sigma_k^{-1/2} \bigl(\Sigma_k^{1/2} \Sigma \Sigma_k^{1/2}\bigr)^{1/2} \Sigma_k^{-1/2},
\qquad A_k \Sigma_k A_k = \Sigma,$$

the symmetric positive definite solution: between Gaussians it is the optimal transport map.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .base import Subposteriors

Matrices = Float[np.ndarray, "*shard dim dim"]


def pool(
    shards: Subposteriors, counts: Int[np.ndarray, " shard"] | Sequence[int]
) -> Float[Array, "draw dim"]:
    """Return `counts` draws of the shards, in random order."""
    parts = [thin(draws, int(count)) for count, draws in zip(counts, shards, strict=True)]
    return jnp.asarray(_shuffle(np.concatenate(parts), shards.seed))


def transport(
    shards: Subposteriors,
    means: Float[np.ndarray, "shard dim"],
    mean: Float[np.ndarray, " dim"],
    maps: Float[np.ndarray, "shard dim dim"],
) -> Float[Array, "draw dim"]:
    """Return an equal share of every shard's draws in random order, mapped from its mean to `mean`.

    Args:
        shards: the shards.
        means: the mean of every shard.
        mean: the common mean.
        maps: the linear map of every shard.
    """
    parts = []
    counts = equal_counts(shards)
    for draws, count, shard_mean, matrix in zip(shards, counts, means, maps, strict=True):
        parts.append(mean + (thin(draws, int(count)) - shard_mean) @ matrix.T)
        shards.advance()
    return jnp.asarray(_shuffle(np.concatenate(parts), shards.seed))


def equal_counts(shards: Subposteriors) -> Int[np.ndarray, " shard"]:
    """Split `num_draws` over the shards as equally as possible; there are no more than draws.

    If there are more shards than draws, some get none.
    """
    num_draws = min(shards.num_draws, sum(shards.counts))
    return np.diff(np.arange(shards.num_shards + 1) * num_draws // shards.num_shards)


def thin(draws: Float[np.ndarray, "draw dim"], count: int) -> Float[np.ndarray, "count dim"]:
    """Return `count` evenly spaced draws, centred, repeated evenly if there are fewer."""
    return draws[(2 * np.arange(count) + 1) * len(draws) // (2 * max(count, 1))]


def transport_maps(
    covariances: Float[np.ndarray, "shard dim dim"], goal: Float[np.ndarray, "dim dim"]
) -> Matrices:
    """Return the symmetric positive definite matrices that map covariances to `goal`."""
    values, vectors = np.linalg.eigh(covariances)
    roots = _from_eigen(np.sqrt(values), vectors)
    inverses = _from_eigen(1 / np.sqrt(values), vectors)
    return inverses @ symmetric_root(roots @ goal @ roots) @ inverses


def symmetric_root(matrices: Matrices) -> Matrices:
    """Return symmetric roots of positive semidefinite matrices, up to rounding."""
    values, vectors = np.linalg.eigh(matrices)
    return _from_eigen(np.sqrt(np.maximum(values, 0)), vectors)


def _from_eigen(values: Float[np.ndarray, "*shard dim"], vectors: Matrices) -> Matrices:
    return (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def _shuffle(draws: Float[np.ndarray, "draw dim"], seed: int) -> Float[np.ndarray, "draw dim"]:
    return np.random.default_rng((seed, 2)).permutation(draws)
