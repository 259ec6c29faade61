"""Samplers of one chain on one shard, common starting points, and importance proposals.

Imported by `models`, `combiners`, `diagnostics` and above; imports `target` and below.
"""

from .base import BLOCK, AbstractSampler, Chain
from .hmc import HMC
from .independence import Independence
from .mixture_gibbs import MixtureGibbs
from .nuts import NUTS
from .probit_gibbs import ProbitGibbs
from .wishart_exact import WishartExact

__all__ = [
    "BLOCK",
    "HMC",
    "NUTS",
    "AbstractSampler",
    "Chain",
    "Independence",
    "MixtureGibbs",
    "ProbitGibbs",
    "WishartExact",
]
