"""Samplers: one chain on one shard."""

from .base import AbstractSampler, Chain
from .mixture_gibbs import MixtureGibbs
from .nuts import NUTS
from .probit_gibbs import ProbitGibbs
from .wishart_exact import WishartExact

__all__ = ["NUTS", "AbstractSampler", "Chain", "MixtureGibbs", "ProbitGibbs", "WishartExact"]
