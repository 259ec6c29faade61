"""Bayesian inference on more data than one chain can handle.

Importing vcmc switches JAX to 64-bit floats, gives XLA more threads than there are cores, limits
SciPy's BLAS, which XLA calls from those threads, to one thread, and makes JAX keep compiled
programs in the user's cache folder, in the whole process. VCMC_COMPILE_CACHE=0 in the environment
switches the latter off.
"""

from . import _runtime  # noqa: F401  # isort: skip (first, as it sets up JAX)

from . import aggregators, combiners, executors, models, samplers, variational
from .data.partition import LazyRows, Partition, split
from .errors import (
    AssessmentError,
    CombineError,
    DoubtfulWarning,
    ModelError,
    ShardError,
    StoreError,
    StoreWarning,
)
from .groups.quadrature import ExactGaussian, GaussHermite, QuasiRandom
from .inference.combination import combine
from .inference.comparison import compare
from .inference.cross_validation import loo, waic
from .inference.diagnosis import diagnose
from .inference.estimates import summary
from .inference.forgetting import forget
from .inference.marginal_likelihood import evidence
from .inference.model_checking import posterior_check
from .inference.model_comparison import loo_compare
from .inference.pipeline import infer
from .inference.prediction import predict
from .inference.refinement import refine
from .inference.run_states import history, restore
from .inference.updating import update
from .model import Model
from .models.frontends.bambi import from_bambi
from .models.frontends.numpyro import from_numpyro
from .models.frontends.pymc import from_pymc
from .results.draw_files import read_draws
from .results.draws import LazyDraws
from .results.group_plots import plot_groups, plot_shrinkage
from .results.loading import load
from .results.local_reading import load_locals
from .results.plots import (
    plot_comparison,
    plot_density,
    plot_errors,
    plot_forest,
    plot_objective,
    plot_posterior_check,
    plot_timings,
    plot_weights,
)
from .results.report_page import report
from .results.tree import posterior_draws
from .results.update_plots import plot_updates
from .space import (
    Correlation,
    Exchangeable,
    Interval,
    Ordered,
    Positive,
    PositiveDefinite,
    Real,
    Simplex,
    Space,
)

__version__ = "0.1.0"

__all__ = [
    "AssessmentError",
    "CombineError",
    "Correlation",
    "DoubtfulWarning",
    "ExactGaussian",
    "Exchangeable",
    "GaussHermite",
    "Interval",
    "LazyDraws",
    "LazyRows",
    "Model",
    "ModelError",
    "Ordered",
    "Partition",
    "Positive",
    "PositiveDefinite",
    "QuasiRandom",
    "Real",
    "ShardError",
    "Simplex",
    "Space",
    "StoreError",
    "StoreWarning",
    "aggregators",
    "combine",
    "combiners",
    "compare",
    "diagnose",
    "evidence",
    "executors",
    "forget",
    "from_bambi",
    "from_numpyro",
    "from_pymc",
    "history",
    "infer",
    "load",
    "load_locals",
    "loo",
    "loo_compare",
    "models",
    "plot_comparison",
    "plot_density",
    "plot_errors",
    "plot_forest",
    "plot_groups",
    "plot_objective",
    "plot_posterior_check",
    "plot_shrinkage",
    "plot_timings",
    "plot_updates",
    "plot_weights",
    "posterior_check",
    "posterior_draws",
    "predict",
    "read_draws",
    "refine",
    "report",
    "restore",
    "samplers",
    "split",
    "summary",
    "update",
    "variational",
    "waic",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
