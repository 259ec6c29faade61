"""The arena's methods: each takes a problem, and gives draws of the posterior with the seconds at which they were there.

Each runs in a process of its own, in double precision, on all cores, in the configuration that its documentation recommends; where a
choice had to be made, it is said beside it: in `shards.py`, `chains.py` and `approximations.py`.
"""

import approximations
import chains
import shards
from answer import Method

METHODS: dict[str, Method] = {
    "vcmc": shards.vcmc_default,
    "vcmc, 100 draws": shards.vcmc_quick,
    "vcmc, refined": shards.vcmc_refined,
    "NumPyro NUTS": chains.nuts,
    "PyMC, nutpie": chains.nutpie,
    "Stan": chains.stan,
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
