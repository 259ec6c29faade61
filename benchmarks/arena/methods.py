"""The methods compared: each takes a problem and yields draws of its posterior with their times.

Each runs in its own process, in double precision, on all cores, in the configuration that its
documentation recommends. Where a choice had to be made, the docstring of the method says so: see
`shards.py`, `kernels.py`, `chains.py` and `approximations.py`.
"""

import approximations
import chains
import kernels
import shards
from answer import Method

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
COMBINERS = tuple(name for name in METHODS if name.startswith(("NumPyro c", "NumPyro p")))
SHARDS = "shards"  # runs before the combiners, and is none of the methods compared
