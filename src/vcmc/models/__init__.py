"""Models that come with vcmc, each with the sampler that suits it.

Imported by `paper` and `cli`; imports `samplers`, `model` and below.
"""

from .gaussian_mixture import GaussianMixture
from .normal_wishart import NormalWishart
from .regression import Logistic, Probit

__all__ = ["GaussianMixture", "Logistic", "NormalWishart", "Probit"]
