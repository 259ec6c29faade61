"""Combiners: methods from the shards' draws to posterior draws, one per file.

Imported by `results` and above; imports `diagnostics`, `variational`, `aggregators` and below.
"""

from .barycenter import Barycenter
from .base import AbstractCombiner, Combined, Needs, Prior, Subposteriors
from .consensus import Average, Consensus
from .importance import ImportanceResample
from .median import Median
from .modes import Modes
from .nonparametric import Nonparametric
from .parametric import Parametric
from .partition_tree import PartitionTree
from .semiparametric import Semiparametric
from .swiss import Swiss
from .variational import Variational
from .weierstrass import Weierstrass

__all__ = [
    "AbstractCombiner",
    "Average",
    "Barycenter",
    "Combined",
    "Consensus",
    "ImportanceResample",
    "Median",
    "Modes",
    "Needs",
    "Nonparametric",
    "Parametric",
    "PartitionTree",
    "Prior",
    "Semiparametric",
    "Subposteriors",
    "Swiss",
    "Variational",
    "Weierstrass",
]
