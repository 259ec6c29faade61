"""Bayesian inference on more data than one chain can chew.

Importing vcmc switches JAX to 64-bit floats, gives XLA more threads than there are cores, and SciPy's BLAS, which XLA calls from these, one
thread, for the whole process.
"""

import os

# XLA's linear algebra on CPUs waits for tasks that it gives to the threads it runs on, and hangs when all of them wait: seen with
# jaxlib 0.10 on two cores, for one program with three batched triangular solves. NPROC is how many threads it starts. It is read
# when JAX first computes something; whoever did that before importing vcmc has the threads that there are.
os.environ.setdefault("NPROC", str(max(32, 4 * (os.cpu_count() or 1))))

import jax

jax.config.update("jax_enable_x64", True)

# XLA's factorisations are SciPy's, and each of its threads would start threads of BLAS, which wait for each other: eigenvalues of 200
# matrices of 100 x 100 were seen to take 16 s in place of 0.1 s on two cores. NumPy's BLAS is another, and is left as it is.
import scipy.linalg  # noqa: E402, F401
from threadpoolctl import ThreadpoolController  # noqa: E402

for _library in ThreadpoolController().lib_controllers:
    if "scipy.libs" in _library.filepath:
        _library.set_num_threads(1)

from . import aggregators, combiners, executors, models, objective, optimizers, samplers  # noqa: E402
from .assembly import CombineError, DoubtfulWarning, ShardError  # noqa: E402
from .combine import combine  # noqa: E402
from .compare import compare  # noqa: E402
from .diagnose import diagnose  # noqa: E402
from .diagnostics.additivity import ModelError  # noqa: E402
from .draws import LazyDraws  # noqa: E402
from .frontends.numpyro import from_numpyro  # noqa: E402
from .frontends.pymc import from_pymc  # noqa: E402
from .infer import infer  # noqa: E402
from .load import load  # noqa: E402
from .model import Model  # noqa: E402
from .partition import LazyRows, Partition, split  # noqa: E402
from .plots import (  # noqa: E402
    plot_comparison,
    plot_density,
    plot_errors,
    plot_forest,
    plot_objective,
    plot_timings,
    plot_weights,
)
from .reading import read_draws  # noqa: E402
from .refine import refine  # noqa: E402
from .report import report  # noqa: E402
from .result import posterior_draws  # noqa: E402
from .space import (  # noqa: E402
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
from .store import StoreError  # noqa: E402

__version__ = "0.1.0.dev0"

__all__ = [
    "CombineError",
    "Correlation",
    "DoubtfulWarning",
    "Exchangeable",
    "Interval",
    "LazyDraws",
    "LazyRows",
    "Model",
    "ModelError",
    "Ordered",
    "Partition",
    "Positive",
    "PositiveDefinite",
    "Real",
    "ShardError",
    "Simplex",
    "Space",
    "StoreError",
    "aggregators",
    "combine",
    "combiners",
    "compare",
    "diagnose",
    "executors",
    "from_numpyro",
    "from_pymc",
    "infer",
    "load",
    "models",
    "objective",
    "optimizers",
    "plot_comparison",
    "plot_density",
    "plot_errors",
    "plot_forest",
    "plot_objective",
    "plot_timings",
    "plot_weights",
    "posterior_draws",
    "read_draws",
    "refine",
    "report",
    "samplers",
    "split",
]
