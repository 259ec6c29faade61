r"""Refine combined draws by Gibbs sampling with one auxiliary variable per shard.

Wang and Dunson, *Parallelizing MCMC via Weierstrass sampler* (2013). For every draw $\theta$, with
the shards' densities $f_k$ and one kernel $H$, alternate

$$t_k \sim f_k(t_k) \, N(t_k \mid \theta, H), \qquad
\theta \sim N\Bigl(\frac 1 K \sum_k t_k, \frac 1 K H\Bigr).$$

The kernel's effect on the mean of the draws is removed to first order, that on their covariance as
if the shards were Gaussian.
"""

from typing import cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..target import Target
from .base import Subposteriors
from .gaussians import Gaussians

STEP_WIDTHS = 0.1  # step of score differences, in widths of the kernel


def check_partition(shards: Subposteriors) -> None:
    """Raise an error if the rows are in another number of shards than the draws."""
    num_row_shards = cast(Target, shards.target).num_shards
    if num_row_shards != shards.num_shards:
        raise ValueError(
            "refinement needs the rows in the partition that the draws were made with; got draws "
            f"of {shards.num_shards} shards and rows of {num_row_shards}. Pass that partition as "
            "rows, or set refinement=0."
        )


def refine(
    draws: Float[np.ndarray, "draw dim"],
    shards: Subposteriors,
    gaussians: Gaussians,
    num_rounds: int,
    bandwidth: float,
    generator: np.random.Generator,
) -> Float[np.ndarray, "draw dim"]:
    """Return the draws after rounds of Gibbs sampling, of all draws at once.

    Args:
        draws: combined draws.
        shards: the shards, with their target.
        gaussians: Gaussian approximations of the shards, from which auxiliary points are proposed.
        num_rounds: rounds of Gibbs sampling.
        bandwidth: width of the kernel, in sds of a shard.
        generator: source of randomness.
    """
    target = cast(Target, shards.target)
    num_shards, (num_draws, dim) = target.num_shards, draws.shape
    covariance = np.atleast_2d(np.cov(draws.T))
    kernel = bandwidth**2 * num_shards * covariance
    kernel_precision = np.linalg.inv(kernel)
    precisions = gaussians.precisions
    covariances = np.linalg.inv(precisions + kernel_precision)
    roots = np.linalg.cholesky(covariances)
    root = np.linalg.cholesky(kernel / num_shards)

    def log_ratio(shard: int, points: Float[np.ndarray, "draw dim"]) -> Float[np.ndarray, " draw"]:
        """Return the log density of a shard less that of its Gaussian."""
        differences = points - gaussians.means[shard]
        gaussian = -0.5 * np.sum(differences @ precisions[shard] * differences, axis=1)
        return np.asarray(target.of_shard(shard, jnp.asarray(points))[0]) - gaussian

    points = np.repeat(draws[None], num_shards, axis=0)
    log_ratios = np.stack([log_ratio(shard, draws) for shard in range(num_shards)])
    for _ in range(num_rounds):
        for shard in range(num_shards):
            linear = precisions[shard] @ gaussians.means[shard] + draws @ kernel_precision
            noise = generator.normal(size=draws.shape)
            proposals = linear @ covariances[shard] + noise @ roots[shard].T
            proposed = log_ratio(shard, proposals)
            accepted = np.log(generator.uniform(size=num_draws)) < proposed - log_ratios[shard]
            points[shard, accepted] = proposals[accepted]
            log_ratios[shard, accepted] = proposed[accepted]
            shards.advance()
        draws = points.mean(axis=0) + generator.normal(size=(num_draws, dim)) @ root.T
    converged_share = 1 - (1 + bandwidth**2) ** -num_rounds
    shift = covariance @ _kernel_score(target, draws.mean(axis=0), kernel)
    return _narrow(draws, precisions, kernel) - converged_share * shift


def _narrow(
    draws: Float[np.ndarray, "draw dim"],
    precisions: Float[np.ndarray, "shard dim dim"],
    kernel: Float[np.ndarray, "dim dim"],
) -> Float[np.ndarray, "draw dim"]:
    """Scale the draws by the width that the kernel adds to a product of Gaussians."""
    smoothed = np.linalg.inv(np.linalg.inv(precisions) + kernel)
    wide, exact = (
        np.linalg.cholesky(np.linalg.inv(factors.sum(axis=0))) for factors in (smoothed, precisions)
    )
    mean = draws.mean(axis=0)
    return mean + (draws - mean) @ np.linalg.solve(wide.T, exact.T)


def _kernel_score(
    target: Target, point: Float[np.ndarray, " dim"], kernel: Float[np.ndarray, "dim dim"]
) -> Float[np.ndarray, " dim"]:
    r"""Return the score that the kernel adds to the log densities' sum, to first order.

    It is the gradient of
    $\frac 1 2 \operatorname{tr}(H \nabla^2 \ell_k) + \frac 1 2 \nabla \ell_k^\top H \nabla \ell_k$,
    summed over shards, by differences of scores.
    """
    steps = STEP_WIDTHS * np.linalg.cholesky(kernel).T
    total = np.zeros_like(point)
    for shard in range(target.num_shards):
        score = np.asarray(target.of_shard(shard, jnp.asarray(point[None]))[1])[0]
        along = STEP_WIDTHS * kernel @ score
        points = np.concatenate([point + steps, point - steps, [point + along, point - along]])
        scores = np.asarray(target.of_shard(shard, jnp.asarray(points))[1])
        total += (scores[:-2].sum(axis=0) - 2 * len(steps) * score) / (2 * STEP_WIDTHS**2)
        total += (scores[-2] - scores[-1]) / (2 * STEP_WIDTHS)
    return total
