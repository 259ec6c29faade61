"""Aggregators: maps from one point per shard to one point, and the families that they form."""

from .base import AbstractAggregator, AbstractFamily
from .blocks import BlockFamily, Blocks
from .combinatorial import Combinatorial, CombinatorialFamily
from .spectral import Spectral, SpectralFamily
from .vector import Vector, VectorFamily
from .weights import Diagonal, Matrices, Precision, Uniform

__all__ = [
    "AbstractAggregator",
    "AbstractFamily",
    "BlockFamily",
    "Blocks",
    "Combinatorial",
    "CombinatorialFamily",
    "Diagonal",
    "Matrices",
    "Precision",
    "Spectral",
    "SpectralFamily",
    "Uniform",
    "Vector",
    "VectorFamily",
]
