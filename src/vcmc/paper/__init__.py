"""The paper's experiments, one file for each figure, with our methods beside the paper's: `vcmc reproduce`."""

from . import (
    mixture_1,
    mixture_1_apart,
    mixture_2,
    probit_5,
    probit_300,
    probit_300_partial,
    speedup,
    timing,
    wishart_5,
    wishart_100,
)
from .base import AbstractExperiment, Job

EXPERIMENTS: dict[str, AbstractExperiment] = {
    each.EXPERIMENT.name: each.EXPERIMENT
    for each in (
        probit_5,
        probit_300,
        probit_300_partial,
        wishart_5,
        wishart_100,
        mixture_1,
        mixture_1_apart,
        mixture_2,
        timing,
        speedup,
    )
}

__all__ = ["EXPERIMENTS", "AbstractExperiment", "Job"]
