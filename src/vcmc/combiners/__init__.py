"""Combiners: methods from the shards' draws to posterior draws."""

from .base import AbstractCombiner
from .consensus import Average, Consensus

__all__ = ["AbstractCombiner", "Average", "Consensus"]
