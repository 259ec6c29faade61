"""A normal distribution with unknown precision matrix, d = 100, N = 100 000: the paper's Figure 2.

The paper's covariance matrix has "a small spectral gap and a range of eigenvalues"; our eigenvalues
are evenly spaced from 1 to 10, and the eigenvectors are random. The rest is as in `wishart_5.py`,
but for 200 draws per shard: 5 050 coordinates in 100 shards take a gigabyte. Full-covariance
consensus would need 20 gigabytes of covariance matrices and is left out, as is refinement, which
takes hours in 5 050 dimensions.
"""

import numpy as np
from scipy.stats import ortho_group

from .errors_by_shards import ErrorsByShards
from .problem import Problem, Size
from .wishart_5 import wishart_problem


def problem(size: Size, seed: int) -> Problem:
    """Return a problem with evenly spaced eigenvalues and random eigenvectors."""
    vectors = ortho_group.rvs(size.dim, random_state=np.random.default_rng((seed, 1)))
    covariance = (vectors * np.linspace(1, 10, size.dim)) @ vectors.T
    design = "eigenvalues evenly spaced in [1, 10], random eigenvectors"
    return wishart_problem(size, seed, np.zeros(size.dim), covariance, design)


EXPERIMENT = ErrorsByShards(
    "wishart-100",
    "Normal-inverse Wishart model",
    problem,
    {
        "small": Size(5000, 15, shards=(5, 25), num_draws=200, refined=()),
        "paper": Size(100_000, 100, num_draws=200, refined=()),
    },
    by_index="eigenvalue",
)
