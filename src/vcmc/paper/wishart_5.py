"""A normal distribution with unknown precision matrix, d = 5, N = 5 000: the paper's Figure 7.

Mean and covariance are those of Scott et al. (2016), from memory (`models/normal_wishart.py`). The
prior is Wishart(d + 2, I); the paper does not state its own. Test functions are moments of the
eigenvalues of the covariance matrix. The paper's subposteriors multiply to the posterior in the
space of matrices, and it weights their eigenvalues (spectral aggregation, 25 iterations of 40
draws); other methods use log-Cholesky coordinates. Draws are exact and independent.
"""

import numpy as np

from ..aggregators.spectral import SpectralFamily
from ..models.normal_wishart import NormalWishart, scott_design
from ..samplers.wishart_exact import WishartExact
from .errors_by_shards import ErrorsByShards
from .problem import Problem, Size

# Largest dimension for which the covariance matrices of 100 shards fit into memory: 0.8 GB.
MAX_FULL_COVARIANCE_DIM = 1000


def wishart_problem(
    size: Size, seed: int, mean: np.ndarray, covariance: np.ndarray, design: str
) -> Problem:
    """Return a normal model; test functions are moments of the covariance's eigenvalues."""
    model = NormalWishart(size.dim)
    precision = np.linalg.inv(covariance)
    rows = (
        NormalWishart(size.dim, mean=mean)
        .simulate(seed, size.num_rows, {"precision": precision})
        .rows
    )
    return Problem(
        model,
        rows,
        model.test_functions,
        sampler=WishartExact(),
        paper_sampler=WishartExact(temper_jacobian=False),
        family=SpectralFamily(),
        has_full_covariance=model.space.dim <= MAX_FULL_COVARIANCE_DIM,
        design={"covariance": design, "prior of the precision": f"Wishart({model.dof:g}, I)"},
    )


def problem(size: Size, seed: int) -> Problem:
    """Return the design of Scott et al. (2016)."""
    return wishart_problem(size, seed, *scott_design(), "Scott et al. (2016), from memory")


EXPERIMENT = ErrorsByShards(
    "wishart-5",
    "Normal-inverse Wishart model",
    problem,
    {
        "small": Size(1000, 5, shards=(5, 25), num_draws=500, refined=(5, 25)),
        "paper": Size(5000, 5),
    },
    by_index="eigenvalue",
)
