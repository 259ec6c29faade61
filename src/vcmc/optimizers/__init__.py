"""Optimizers: how the variational objective is climbed."""

from .adaptive import Adaptive
from .base import AbstractOptimizer
from .newton import Newton
from .projected import ProjectedGradient

__all__ = ["AbstractOptimizer", "Adaptive", "Newton", "ProjectedGradient"]
