"""Combiners: methods from the shards' draws to posterior draws."""

from .base import AbstractCombiner, Combined, Subposteriors
from .consensus import Average, Consensus
from .variational import Variational

__all__ = ["AbstractCombiner", "Average", "Combined", "Consensus", "Subposteriors", "Variational"]
