"""The variational objective, its entropies, and the optimizers that maximize it.

Imported by `combiners` and above; imports `aggregators`, `linalg` and `target`.
"""

from .adaptive import Adaptive
from .entropies import (
    AbstractEntropy,
    AbstractEntropyEstimate,
    EntropyPower,
    Gaussian,
    GaussianSum,
    NearestNeighbours,
    Relaxed,
    Tighter,
)
from .newton import Newton
from .optimizer import AbstractGradient, AbstractOptimizer, OptimizationResult
from .projected_gradient import ProjectedGradient

__all__ = [
    "AbstractEntropy",
    "AbstractEntropyEstimate",
    "AbstractGradient",
    "AbstractOptimizer",
    "Adaptive",
    "EntropyPower",
    "Gaussian",
    "GaussianSum",
    "NearestNeighbours",
    "Newton",
    "OptimizationResult",
    "ProjectedGradient",
    "Relaxed",
    "Tighter",
]
