"""The methods compared: each takes a problem and yields draws of its posterior with their times.

Each runs in its own process, in double precision, on all cores, in the configuration that its
documentation recommends. Where a choice had to be made, the docstring of the method says so: see
`shards.py`, `kernels.py`, `chains.py` and `approximations.py`, and for hierarchical problems
`joint.py` and `mixed_models.py`.
"""

import approximations
import chains
import joint
import kernels
import mixed_models
import shards
from answer import Method
from grouped_problems import GROUPED

METHODS: dict[str, Method] = {
    "vcmc": shards.vcmc_default,
    "vcmc, second run": shards.vcmc_default,
    "vcmc, K as listed": shards.vcmc_listed,
    "vcmc, refined": shards.vcmc_refined,
    "NumPyro NUTS": kernels.nuts,
    "PyMC, nutpie": chains.nutpie,
    "Stan": chains.stan,
    "NumPyro HMCECS": kernels.hmcecs,
    "BlackJAX adjusted MCLMC": kernels.mclmc,
    "NumPyro consensus": shards.consensus,
    "NumPyro consensus, unconstrained": shards.consensus_unconstrained,
    "NumPyro parametric": shards.parametric,
    "NumPyro parametric, unconstrained": shards.parametric_unconstrained,
    "SVI, full": approximations.svi_full,
    "SVI, diagonal": approximations.svi_diagonal,
    "Laplace": approximations.laplace,
    "Pathfinder": approximations.pathfinder,
    "SGLD": approximations.sgld,
}
# on hierarchical problems
GROUPED_METHODS: dict[str, Method] = {
    "vcmc": shards.vcmc_default,
    "vcmc, second run": shards.vcmc_default,
    "NumPyro NUTS": joint.nuts_non_centred,
    "NumPyro NUTS, centred": joint.nuts_centred,
    "PyMC, nutpie": joint.nutpie,
    "Bambi": joint.bambi,
    "statsmodels": mixed_models.statsmodels,
    "GPBoost": mixed_models.gpboost,
    "lme4": mixed_models.lme4,
    "glmmTMB": mixed_models.glmm_tmb,
}
COMBINERS = tuple(name for name in METHODS if name.startswith(("NumPyro c", "NumPyro p")))
SHARDS = "shards"  # runs before the combiners, and is none of the methods compared


def methods_of(problem: str) -> dict[str, Method]:
    """Return the methods that a problem, flat or hierarchical, is given to."""
    return GROUPED_METHODS if problem.partition("@")[0] in GROUPED else METHODS
