"""Fixtures: small data sets and the exact posteriors that belong to them."""

import gc
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

# Tests compile far more than they compute: programs that are optimised less, and the older of XLA's two ways to make small ones, take
# two fifths off the time of all of them.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
)

import jax
import numpy as np
import pytest
from jaxtyping import install_import_hook

# Shapes in signatures are checked in all tests. Left out are the doors, whose own checks are tested, and the Gibbs
# samplers and products of densities in NumPy, whose inner loops would spend their time being checked.
CHECKED = [
    "aggregators",
    "density",
    "diagnostics",
    "inference.ensemble",
    "inference.shard_summary",
    "linalg",
    "model",
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
from vcmc.testing.gaussians import Lazy, Regression, regression  # noqa: E402

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".cache" / "jax"))


MAX_MAPPINGS = (
    20_000  # a process may have 65 530: beyond, what XLA compiles or loads ends in a crash
)


@pytest.fixture(autouse=True, scope="module")
def few_programs() -> Iterator[None]:
    """Forget compiled programs once they take up many mappings of memory."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and len(mappings.read_text().splitlines()) > MAX_MAPPINGS:
        jax.clear_caches()
        gc.collect()


def pytest_configure(config: pytest.Config) -> None:
    """A doubtful result fails the test that did not ask for one."""
    config.addinivalue_line("filterwarnings", "error::vcmc.DoubtfulWarning")


@pytest.fixture(scope="session")
def conjugate() -> Regression:
    return regression()


@pytest.fixture(scope="session")
def members():
    """A function that lists the classes of a menu which are of some kind and not abstract."""

    def find(menu, kind):
        classes = (item for _, item in inspect.getmembers(menu, inspect.isclass))
        return {item for item in classes if issubclass(item, kind) and not inspect.isabstract(item)}

    return find


class GaussianShards(KnownShards):
    """Shards whose subposteriors are known Gaussians, and what weighted averages of them are."""

    def combined(self, matrices: np.ndarray) -> np.ndarray:
        """The covariance of weighted averages of the shards."""
        return np.einsum("kij,kjl,kml->im", matrices, self.covariances, matrices)

    def expected_log_density(self, matrices: np.ndarray) -> float:
        """The mean of the target over weighted averages of the shards, on paper."""
        mean = np.einsum("kij,kj->i", matrices, self.means)
        covariance = self.combined(matrices)
        precisions = np.linalg.inv(self.covariances)
        off = mean - self.means
        return -0.5 * (
            np.einsum("ki,kij,kj->", off, precisions, off) + np.sum(precisions * covariance)
        )


@pytest.fixture(scope="session")
def gaussian_shards():
    """A function that makes Gaussian shards of so many shards and dimensions, with means and covariances that differ."""

    return GaussianShards.random


@pytest.fixture(scope="session")
def lazy():
    return Lazy
