"""A mixture of eight Gaussians in eight dimensions, noise sd 1, N = 50 000: Figure 3, left half.

Centres are N(0, 4 I), weights are equal. Test functions are the probabilities that two of 100 fresh
points come from the same component, for all pairs. Components of shards are matched by the
Hungarian algorithm, then averaged. The paper samples by HMC; we use Gibbs sampling of assignments
and centres, which is exact as well, and faster. The serial chain starts at the mode found from the
best of twenty k-means runs, and its log density is compared with that of the true centres.
"""

from functools import partial

import jax.numpy as jnp

from ..aggregators.combinatorial import CombinatorialFamily
from ..models.gaussian_mixture import GaussianMixture
from ..samplers.base import AbstractSampler
from ..samplers.mixture_gibbs import MixtureGibbs
from .errors_by_shards import ErrorsByShards
from .problem import Problem, Size

NUM_FRESH = 100  # points of the test functions, as in the paper


def problem(
    size: Size,
    seed: int,
    noise_scale: float = 1.0,
    sampler: AbstractSampler | None = None,
    shard_sampler: AbstractSampler | None = None,
) -> Problem:
    """Return a mixture with as many components as dimensions; test functions are comemberships."""
    model = GaussianMixture(size.dim, size.dim, prior_scale=2.0, noise_scale=noise_scale)
    truth, rows = model.simulate(seed, size.num_rows)
    fresh = jnp.asarray(model.simulate(seed + 1, NUM_FRESH, truth).rows["x"])
    return Problem(
        model,
        rows,
        partial(model.test_functions, x=fresh),
        sampler=sampler or MixtureGibbs(),
        shard_sampler=shard_sampler,
        family=CombinatorialFamily(alternating=False),
        truth=truth,
        design={"noise sd": noise_scale, "prior sd": 2.0, "fresh points": NUM_FRESH},
    )


SIZES = {
    "small": Size(5000, 4, shards=(5, 25), num_draws=500, thin=2, iterations=50, refined=(25,)),
    "paper": Size(50_000, 8, iterations=50),
}

EXPERIMENT = ErrorsByShards("mixture-1", "Mixture of Gaussians, noise sd 1", problem, SIZES)
