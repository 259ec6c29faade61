"""Probit regression with a rare covariate, d = 5: the paper's Figure 5, in its supplement.

Data are those of Scott et al. (2016): an intercept and four binary covariates of frequencies 0.2,
0.3, 0.5 and 0.01, coefficients (-3, 1.2, -0.5, 0.8, 3), N = 8 500. Of 100 shards, 43 have no row
with the rare covariate. The paper does not state its prior; ours is N(0, I). The paper uses Gibbs
sampling, which mixes slowly in small shards (R-hat 1.7) because hardly any outcome is a one; we use
NUTS.
"""

from ..aggregators.vector import VectorFamily
from ..models.regression import Probit, rare_covariate
from ..samplers.nuts import NUTS
from .errors_by_shards import ErrorsByShards
from .problem import Problem, Size


def problem(size: Size, seed: int) -> Problem:
    """Return the design of Scott et al. (2016)."""
    model = Probit(size.dim)
    return Problem(
        model,
        rare_covariate(seed, size.num_rows),
        model.test_functions,
        sampler=NUTS(),
        family=VectorFamily(full=False),
        design={"design": "Scott et al. (2016)", "prior of beta": "N(0, 1)"},
    )


EXPERIMENT = ErrorsByShards(
    "probit-5",
    "Probit regression with a rare covariate",
    problem,
    {
        "small": Size(2000, 5, shards=(5, 25), num_draws=500, thin=1, refined=(5, 25)),
        "paper": Size(8500, 5, thin=1),
    },
)
