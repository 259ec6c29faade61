"""Optimizers: how the variational objective is climbed."""

from .adaptive import Adaptive
from .base import AbstractOptimizer
from .projected import ProjectedGradient

__all__ = ["AbstractOptimizer", "Adaptive", "ProjectedGradient"]
