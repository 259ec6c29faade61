"""Probit regression, d = 300, N = 100 000: the paper's Figures 1 (left) and 6.

The paper does not state its design. Here covariates are N(0, I), and the coefficients are one draw
of N(0, I / d), so that signal and noise are equally strong; the prior is N(0, I). Gibbs sampling is
as in the paper: 5 100 sweeps, 100 of them warm-up, every fifth stored. Weights are diagonal.
"""

import numpy as np

from ..aggregators.vector import VectorFamily
from ..combiners.base import Prior
from ..models.regression import Probit
from ..samplers.probit_gibbs import ProbitGibbs
from .errors_by_shards import ErrorsByShards
from .problem import Problem, Size


def problem(size: Size, seed: int, prior: Prior = "subposterior") -> Problem:
    """Return independent covariates, and coefficients with norm about one."""
    model = Probit(size.dim)
    beta = np.random.default_rng((seed, 1)).normal(size=size.dim) / np.sqrt(size.dim)
    return Problem(
        model,
        model.simulate(seed, size.num_rows, {"beta": beta}).rows,
        model.test_functions,
        sampler=ProbitGibbs(),
        family=VectorFamily(full=False),
        prior=prior,
        design={
            "covariates": "N(0, 1)",
            "coefficients": "a draw of N(0, 1 / dim)",
            "prior of beta": "N(0, 1)",
        },
    )


SIZES = {
    "small": Size(10_000, 30, shards=(5, 25), num_draws=500, thin=2, refined=(25,)),
    "paper": Size(100_000, 300, refined=(100,)),
}

EXPERIMENT = ErrorsByShards("probit-300", "Probit regression, subposteriors", problem, SIZES)
