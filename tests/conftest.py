"""Settings of all tests, and fixtures: small data sets with their exact posteriors."""

import gc
import inspect
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

# Tests compile far more than they compute. Less optimised programs, and the older of XLA's two
# emitters for small ones, take two fifths off the time of the suite. jaxlib 0.12 has only one
# emitter, and ends the process if it is asked for the other.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
    + (
        " --xla_cpu_use_fusion_emitters=false"
        if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)
        else ""
    ),
)
# All workers of a run, and the processes that tests start, share one cache of compiled programs.
# Small programs are most of them: loading one takes a third of the time of compiling it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache/jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import numpy as np
import pytest
from jaxtyping import install_import_hook

# Shapes in signatures are checked in all tests. Not checked: the verbs, whose own checks of their
# arguments are tested, and the Gibbs samplers and products of densities in NumPy, whose inner
# loops would spend most of their time in checks.
CHECKED = [
    "aggregators",
    "density",
    "diagnostics",
    "inference.ensemble",
    "inference.shard_summary",
    "linalg",
    "model",
    "models.surrogate",
    "results.tree",
    "samplers.base",
    "samplers.nuts",
    "samplers.proposals",
    "samplers.start",
    "samplers.truncated_normal",
    "samplers.wishart_exact",
    "target",
    "testing",
    "variational",
]
CHECKED += ["models.frontends.graph"]
CHECKED += [
    f"combiners.{name}"
    for name in (
        "auxiliary",
        "barycenter",
        "base",
        "consensus",
        "gaussians",
        "importance",
        "median",
        "parametric",
        "pooling",
        "swiss",
        "variational",
    )
]
with install_import_hook([f"vcmc.{name}" for name in CHECKED], "beartype.beartype"):
    pass

from vcmc.testing.gaussians import GaussianShards as KnownShards  # noqa: E402
from vcmc.testing.gaussians import LazyShards, Regression, regression  # noqa: E402

# The traces that JAX keeps make Python's collections of garbage a tenth of the time.
gc.set_threshold(100_000, 50, 100)

# A process may have 65 530 memory mappings; XLA crashes when it runs out of them.
MAX_MAPPINGS = 20_000


@pytest.fixture(autouse=True, scope="module")
def few_programs() -> Iterator[None]:
    """Clear JAX's caches once its programs take up many memory mappings."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and len(mappings.read_text().splitlines()) > MAX_MAPPINGS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def conjugate() -> Regression:
    return regression()


@pytest.fixture(scope="session")
def members():
    """Return a function that lists the concrete classes of a menu."""

    def find(menu, kind):
        classes = (item for _, item in inspect.getmembers(menu, inspect.isclass))
        return {item for item in classes if issubclass(item, kind) and not inspect.isabstract(item)}

    return find


class GaussianShards(KnownShards):
    """Shards with known Gaussian subposteriors, and the moments of their weighted averages."""

    def combined(self, matrices: np.ndarray) -> np.ndarray:
        """Return the covariance of weighted averages of the shards."""
        return np.einsum("kij,kjl,kml->im", matrices, self.covariances, matrices)

    def expected_log_density(self, matrices: np.ndarray) -> float:
        """Return the mean of the target over weighted averages of the shards, in closed form."""
        mean = np.einsum("kij,kj->i", matrices, self.means)
        covariance = self.combined(matrices)
        precisions = np.linalg.inv(self.covariances)
        shift = mean - self.means
        return -0.5 * (
            np.einsum("ki,kij,kj->", shift, precisions, shift) + np.sum(precisions * covariance)
        )


@pytest.fixture(scope="session")
def gaussian_shards():
    """Return a function that makes Gaussian shards with different means and covariances."""
    return GaussianShards.random


@pytest.fixture(scope="session")
def lazy():
    return LazyShards
