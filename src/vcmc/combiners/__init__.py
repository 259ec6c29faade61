"""Combiners: methods from the shards' draws to posterior draws."""

from .base import AbstractCombiner, Combined, Needs, Prior, Subposteriors
from .consensus import Average, Consensus
from .parametric import Parametric
from .variational import Variational

__all__ = [
    "AbstractCombiner",
    "Average",
    "Combined",
    "Consensus",
    "Needs",
    "Parametric",
    "Prior",
    "Subposteriors",
    "Variational",
]
