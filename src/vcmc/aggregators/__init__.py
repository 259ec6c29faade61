"""Aggregators: maps from one point per shard to one point, and their families.

Imported by `variational`, `combiners` and above; imports `linalg` and `space`.
"""

from .affine import Affine, AffineFamily
from .base import AbstractAggregator, AbstractFamily
from .blocks import BlockFamily, Blocks
from .combinatorial import Combinatorial, CombinatorialFamily
from .spectral import Spectral, SpectralFamily
from .vector import Vector, VectorFamily
from .weights import Diagonal, Free, Matrices, Precision, Uniform

__all__ = [
    "AbstractAggregator",
    "AbstractFamily",
    "Affine",
    "AffineFamily",
    "BlockFamily",
    "Blocks",
    "Combinatorial",
    "CombinatorialFamily",
    "Diagonal",
    "Free",
    "Matrices",
    "Precision",
    "Spectral",
    "SpectralFamily",
    "Uniform",
    "Vector",
    "VectorFamily",
]
