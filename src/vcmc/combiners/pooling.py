r"""One pool of the shards' draws: some of every shard, moved to where all are to lie.

Draws of mean $\mu_k$ and covariance $\Sigma_k$ are moved to $\mu$ and $\Sigma$ by $\theta \mapsto \mu + A_k (\theta - \mu_k)$ with

$$A_k = \Sigma_k^{-1/2} \bigl(\Sigma_k^{1/2} \Sigma \Sigma_k^{1/2}\bigr)^{1/2} \Sigma_k^{-1/2}, \qquad A_k \Sigma_k A_k = \Sigma,$$

the symmetric positive definite matrix that does it: of all maps between Gaussians it moves them least (optimal transport).
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .base import Subposteriors
from .gaussians import Gaussian, Gaussians

Matrices = Float[np.ndarray, "*shard dim dim"]


def pooled(
    shards: Subposteriors, counts: Int[np.ndarray, " shard"] | Sequence[int]
) -> Float[Array, "draw dim"]:
    """So many draws of every shard, in random order."""
    chosen = [thinned(draws, int(count)) for count, draws in zip(counts, shards, strict=True)]
    return jnp.asarray(_shuffled(np.concatenate(chosen), shards.seed))


def moved(
    shards: Subposteriors,
    gaussians: Gaussians,
    goal: Gaussian,
    maps: Float[np.ndarray, "shard dim dim"],
) -> Float[Array, "draw dim"]:
    """An even share of every shard's draws, moved by its map from its own mean to the goal's, in random order."""
    chosen = []
    for draws, count, mean, linear in zip(
        shards, even_counts(shards), gaussians.means, maps, strict=True
    ):
        chosen.append(goal.mean + (thinned(draws, int(count)) - mean) @ linear.T)
        shards.advance()
    return jnp.asarray(_shuffled(np.concatenate(chosen), shards.seed))


def even_counts(shards: Subposteriors) -> Int[np.ndarray, " shard"]:
    """As many draws of every shard as of any other, up to one, so that there are `num_draws` in all.

    With more shards than draws, some have none.
    """
    return np.diff(np.arange(shards.num_shards + 1) * shards.num_draws // shards.num_shards)


def thinned(draws: Float[np.ndarray, "draw dim"], count: int) -> Float[np.ndarray, "count dim"]:
    """So many of the draws, at even distances; all are repeated evenly if there are fewer."""
    return draws[(2 * np.arange(count) + 1) * len(draws) // (2 * max(count, 1))]


def transports(
    covariances: Float[np.ndarray, "shard dim dim"], goal: Float[np.ndarray, "dim dim"]
) -> Matrices:
    """The symmetric positive definite matrices that move covariances to a goal."""
    values, vectors = np.linalg.eigh(covariances)
    roots = _composed(np.sqrt(values), vectors)
    inverses = _composed(1 / np.sqrt(values), vectors)
    return inverses @ root(roots @ goal @ roots) @ inverses


def root(matrices: Matrices) -> Matrices:
    """The symmetric roots of symmetric matrices that have no eigenvalue below zero but by rounding."""
    values, vectors = np.linalg.eigh(matrices)
    return _composed(np.sqrt(np.maximum(values, 0)), vectors)


def _composed(values: Float[np.ndarray, "*shard dim"], vectors: Matrices) -> Matrices:
    return (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def _shuffled(draws: Float[np.ndarray, "draw dim"], seed: int) -> Float[np.ndarray, "draw dim"]:
    return np.random.default_rng((seed, 2)).permutation(draws)
