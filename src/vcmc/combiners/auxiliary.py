r"""Refine combined draws by Gibbs sampling with an auxiliary variable for every shard, on the shards' own log densities.

Wang and Dunson, *Parallelizing MCMC via Weierstrass sampler* (2013). For every draw $\theta$, and with one kernel $H$,

$$t_k \sim f_k(t_k) \, N(t_k \mid \theta, H), \qquad \theta \sim N\Bigl(\frac 1 K \sum_k t_k, \frac 1 K H\Bigr).$$

What the kernel does to the draws' mean is taken out again to first order, and what it does to their covariance as if shards were
Gaussian.
"""

from typing import cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..target import Target
from .base import Subposteriors
from .gaussians import Gaussians

STEP = 0.1  # of differences of scores, in widths of the kernel


def check_partition(shards: Subposteriors) -> None:
    """Raise an error unless the rows are in the partition that the draws were made with, as far as can be seen."""
    expected = cast(Target, shards.target).num_shards
    if expected != shards.num_shards:
        raise ValueError(
            "refinement needs the rows of every shard, in the partition that the draws were made with; got draws of "
            f"{shards.num_shards} shards and rows of {expected}. Give combine that partition as rows, or leave out refinement."
        )


def refined(
    draws: Float[np.ndarray, "draw dim"],
    shards: Subposteriors,
    gaussians: Gaussians,
    num_rounds: int,
    bandwidth: float,
    generator: np.random.Generator,
) -> Float[np.ndarray, "draw dim"]:
    """Draws after rounds of Gibbs sampling, all draws at once."""
    target = cast(Target, shards.target)
    num_shards, (num_draws, dim) = target.num_shards, draws.shape
    spread = np.atleast_2d(np.cov(draws.T))
    kernel = bandwidth**2 * num_shards * spread
    inside = np.linalg.inv(kernel)
    precisions = gaussians.precisions
    covariances = np.linalg.inv(precisions + inside)
    roots = np.linalg.cholesky(covariances)
    root = np.linalg.cholesky(kernel / num_shards)

    def excess(shard: int, points: Float[np.ndarray, "draw dim"]) -> Float[np.ndarray, " draw"]:
        """By how much a shard's log density is above that of its Gaussian."""
        off = points - gaussians.means[shard]
        gaussian = -0.5 * np.sum(off @ precisions[shard] * off, axis=1)
        return np.asarray(target.of_shard(shard, jnp.asarray(points))[0]) - gaussian

    points = np.repeat(draws[None], num_shards, axis=0)
    levels = np.stack([excess(shard, draws) for shard in range(num_shards)])
    for _ in range(num_rounds):
        for shard in range(num_shards):
            pull = precisions[shard] @ gaussians.means[shard] + draws @ inside
            noise = generator.normal(size=draws.shape)
            proposed = pull @ covariances[shard] + noise @ roots[shard].T
            level = excess(shard, proposed)
            accepted = np.log(generator.uniform(size=num_draws)) < level - levels[shard]
            points[shard, accepted] = proposed[accepted]
            levels[shard, accepted] = level[accepted]
            shards.advance()
        draws = points.mean(axis=0) + generator.normal(size=(num_draws, dim)) @ root.T
    settled = 1 - (1 + bandwidth**2) ** -num_rounds
    shift = spread @ _added_slope(target, draws.mean(axis=0), kernel)
    return _narrowed(draws, gaussians, kernel) - settled * shift


def _narrowed(
    draws: Float[np.ndarray, "draw dim"], gaussians: Gaussians, kernel: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, "draw dim"]:
    """Draws without the spread that the kernel would have given to a product of Gaussians."""
    precisions = gaussians.precisions
    smoothed = np.linalg.inv(np.linalg.inv(precisions) + kernel)
    wide, right = (
        np.linalg.cholesky(np.linalg.inv(each.sum(axis=0))) for each in (smoothed, precisions)
    )
    mean = draws.mean(axis=0)
    return mean + (draws - mean) @ np.linalg.solve(wide.T, right.T)


def _added_slope(
    target: Target, point: Float[np.ndarray, " dim"], kernel: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, " dim"]:
    r"""The slope that the kernel adds to the sum of log densities at a point, to first order in the kernel.

    It is that of $\frac 1 2 \operatorname{tr}(H \nabla^2 \ell_k) + \frac 1 2 \nabla \ell_k^\top H \nabla \ell_k$, by differences of scores.
    """
    steps = STEP * np.linalg.cholesky(kernel).T
    total = np.zeros_like(point)
    for shard in range(target.num_shards):
        here = np.asarray(target.of_shard(shard, jnp.asarray(point[None]))[1])[0]
        along = STEP * kernel @ here
        around = np.concatenate([point + steps, point - steps, [point + along, point - along]])
        scores = np.asarray(target.of_shard(shard, jnp.asarray(around))[1])
        total += (scores[:-2].sum(axis=0) - 2 * len(steps) * here) / (2 * STEP**2)
        total += (scores[-2] - scores[-1]) / (2 * STEP)
    return total
