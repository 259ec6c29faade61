"""Settings of all tests, and fixtures: small data sets with their exact posteriors."""

import gc
import inspect
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

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
import jax.numpy as jnp
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

import vcmc  # noqa: E402
from vcmc.target import Target  # noqa: E402
from vcmc.testing.gaussians import GaussianShards as KnownShards  # noqa: E402
from vcmc.testing.gaussians import LazyShards, Regression, regression  # noqa: E402

# The traces that JAX keeps make Python's collections of garbage a tenth of the time.
gc.set_threshold(100_000, 50, 100)

# A process may have 65 530 memory mappings; XLA crashes when it runs out of them. With 10 000, it
# takes 6 GB.
MAX_MAPPINGS = 8_000


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


class NormalMixture(NamedTuple):
    """A model whose posterior is a mixture of normals; each row has a share of its logarithm."""

    model: vcmc.Model
    rows: dict[str, np.ndarray]
    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @classmethod
    def of(cls, weights, means, covariances, num_rows: int = 60) -> "NormalMixture":
        weights, means, covariances = (np.asarray(part) for part in (weights, means, covariances))
        precisions = np.linalg.inv(covariances)
        heights = np.log(weights) + 0.5 * np.linalg.slogdet(precisions / (2 * np.pi))[1]

        def log_likelihood(params, rows):
            steps = params["theta"] - means
            squares = jnp.einsum("mi,mij,mj->m", steps, precisions, steps)
            return rows["share"] * jax.nn.logsumexp(heights - squares / 2)

        dim = means.shape[1]
        space = {"theta": vcmc.Real(dim)}
        model = vcmc.Model(space, lambda params: 0.0 * params["theta"].sum(), log_likelihood)
        rows = {"share": np.full(num_rows, 1 / num_rows)}
        return cls(model, rows, weights, means, covariances)

    def target(self, num_shards: int) -> Target:
        """Return the target, in shards."""
        return Target(self.model, vcmc.split(self.rows, num_shards), vcmc.executors.Local())

    def draws(self, count: int, seed: int = 0) -> np.ndarray:
        """Return independent draws of the posterior."""
        generator = np.random.default_rng(seed)
        modes = generator.choice(len(self.weights), count, p=self.weights)
        roots = np.linalg.cholesky(self.covariances)
        noise = generator.normal(size=(count, self.means.shape[1]))
        return self.means[modes] + np.einsum("cij,cj->ci", roots[modes], noise)

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and sds of the posterior."""
        mean = self.weights @ self.means
        squares = np.diagonal(self.covariances, axis1=1, axis2=2) + (self.means - mean) ** 2
        return mean, np.sqrt(self.weights @ squares)


@pytest.fixture(scope="session")
def normal_mixture():
    """Return a function of weights, means and covariances that makes a mixture of normals."""
    return NormalMixture.of


@pytest.fixture(scope="session")
def two_normals():
    """Two modes of two coordinates, of weights 0.3 and 0.7, eight sds apart."""
    covariances = [[[1.0, 0.5], [0.5, 1.0]], [[0.5, 0.0], [0.0, 2.0]]]
    return NormalMixture.of([0.3, 0.7], [[-4.0, 0.0], [4.0, 2.0]], covariances)
