"""The paper's experiments, one file per figure, run by `vcmc reproduce`.

Only `vcmc.cli` imports this folder.
"""

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
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
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
