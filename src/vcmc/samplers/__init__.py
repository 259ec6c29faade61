"""Samplers: one chain on one shard."""

from .base import BLOCK, AbstractSampler, Chain
from .mixture_gibbs import MixtureGibbs
from .nuts import NUTS
from .probit_gibbs import ProbitGibbs
from .wishart_exact import WishartExact

__all__ = ["BLOCK", "NUTS", "AbstractSampler", "Chain", "MixtureGibbs", "ProbitGibbs", "WishartExact"]
