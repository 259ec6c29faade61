"""Fixtures: small data sets and the exact posteriors that belong to them."""

import inspect
import os
import weakref
from pathlib import Path
from typing import Any, NamedTuple

# Tests compile far more than they compute: programs that are optimised less take a fifth off the time of all of them.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import install_import_hook

# Shapes in signatures are checked in all tests. Left out are the doors, whose own checks are tested, and the Gibbs
# samplers and products of densities in NumPy, whose inner loops would spend their time being checked.
ROOMS = [
    "aggregators",
    "diagnostics",
    "ensemble",
    "model",
    "objective",
    "optimizers",
    "proposals",
    "result",
    "start",
    "stein",
    "survey",
    "target",
]
ROOMS += [
    f"combiners.{name}" for name in ("base", "consensus", "gaussians", "parametric", "variational", "swiss")
]
ROOMS += [f"combiners.{name}" for name in ("auxiliary", "barycenter", "importance", "median", "pooling")]
ROOMS += ["frontends.graph"]
ROOMS += ["samplers.base", "samplers.nuts", "samplers.truncated_normal", "samplers.wishart_exact"]
with install_import_hook([f"vcmc.{room}" for room in ROOMS], "beartype.beartype"):
    import vcmc

from vcmc.target import Target  # noqa: E402

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".cache" / "jax"))


def pytest_configure(config: pytest.Config) -> None:
    """A doubtful result fails the test that did not ask for one."""
    config.addinivalue_line("filterwarnings", "error::vcmc.DoubtfulWarning")


class Conjugate(NamedTuple):
    """A linear regression with known noise: its posterior is a known Gaussian."""

    model: vcmc.Model
    rows: dict[str, np.ndarray]
    prior_precision: np.ndarray

    def posterior(self, indices=slice(None), prior_power=1.0):
        """Mean and covariance, given some rows and a power of the prior."""
        x, y = self.rows["x"][indices], self.rows["y"][indices]
        covariance = np.linalg.inv(x.T @ x + prior_power * np.diag(self.prior_precision))
        return covariance @ x.T @ y, covariance


@pytest.fixture(scope="session")
def conjugate() -> Conjugate:
    generator = np.random.default_rng(3)
    num_rows = 1003
    x = generator.normal(size=(num_rows, 3)) @ [[1.0, 0.8, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 1.0]]
    y = x @ [1.0, -2.0, 0.5] + generator.normal(size=num_rows)
    precision = np.array([1.0, 4.0, 0.25])
    model = vcmc.Model(
        space={"beta": vcmc.Real(3)},
        log_prior=lambda params: -0.5 * jnp.sum(precision * params["beta"] ** 2),
        log_likelihood=lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
    )
    return Conjugate(model, {"x": x, "y": y}, precision)


@pytest.fixture(scope="session")
def members():
    """A function that lists the classes of a menu which are of some kind and not abstract."""

    def find(menu, kind):
        classes = (item for _, item in inspect.getmembers(menu, inspect.isclass))
        return {item for item in classes if issubclass(item, kind) and not inspect.isabstract(item)}

    return find


class GaussianShards(NamedTuple):
    """Shards whose subposteriors are known Gaussians, and their product: a shard is a row of its own."""

    means: np.ndarray
    covariances: np.ndarray

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    def product(self):
        """Mean and covariance of the product of the shards."""
        precisions = np.linalg.inv(self.covariances)
        covariance = np.linalg.inv(precisions.sum(axis=0))
        return covariance @ np.einsum("kij,kj->i", precisions, self.means), covariance

    def target(self) -> Target:
        """The log density of the product, up to a constant."""
        model = vcmc.Model(
            space={"theta": vcmc.Real(self.dim)},
            log_prior=lambda params: 0.0 * jnp.sum(params["theta"]),
            log_likelihood=lambda params, rows: (
                -0.5
                * jnp.einsum(
                    "ki,kij,kj->k",
                    params["theta"] - rows["mean"],
                    rows["precision"],
                    params["theta"] - rows["mean"],
                )
            ),
        )
        rows = {"mean": self.means, "precision": np.linalg.inv(self.covariances)}
        partition = vcmc.split(rows, len(self.means))
        return Target(model, [partition.load(k) for k in range(len(self.means))], vcmc.executors.Local())

    def combined(self, matrices: np.ndarray) -> np.ndarray:
        """The covariance of weighted averages of the shards."""
        return np.einsum("kij,kjl,kml->im", matrices, self.covariances, matrices)

    def expected_log_density(self, matrices: np.ndarray) -> float:
        """The mean of the target over weighted averages of the shards, on paper."""
        mean = np.einsum("kij,kj->i", matrices, self.means)
        covariance = self.combined(matrices)
        precisions = np.linalg.inv(self.covariances)
        off = mean - self.means
        return -0.5 * (np.einsum("ki,kij,kj->", off, precisions, off) + np.sum(precisions * covariance))

    def draws(self, num_draws: int, seed: int = 0) -> jax.Array:
        """Draws of every shard whose means and covariances are exactly those of the shard."""
        noise = np.random.default_rng(seed).normal(size=(len(self.means), num_draws, self.dim))
        noise -= noise.mean(axis=1, keepdims=True)
        roots = np.linalg.cholesky(noise.transpose(0, 2, 1) @ noise / num_draws)
        white = np.linalg.solve(roots, noise.transpose(0, 2, 1))
        coloured = np.linalg.cholesky(self.covariances) @ white
        return jnp.asarray(self.means[:, None] + coloured.transpose(0, 2, 1))

    def independent(self, num_draws: int, seed: int = 0) -> vcmc.combiners.Subposteriors:
        """What a combiner is given, with draws that are independent, and so have moments of their own."""
        noise = np.random.default_rng(seed).normal(size=(len(self.means), num_draws, self.dim))
        draws = self.means[:, None] + noise @ np.linalg.cholesky(self.covariances).transpose(0, 2, 1)
        space = vcmc.Model({"theta": vcmc.Real(self.dim)}, lambda params: 0.0, lambda params, rows: 0.0).space
        return vcmc.combiners.Subposteriors(jnp.asarray(draws), space, None, seed)

    def subposteriors(self, num_draws: int, seed: int = 0) -> vcmc.combiners.Subposteriors:
        """What a combiner is given."""
        target = self.target()
        return vcmc.combiners.Subposteriors(self.draws(num_draws, seed), target.model.space, target, seed)


@pytest.fixture(scope="session")
def gaussian_shards():
    """A function that makes Gaussian shards of so many shards and dimensions, with means and covariances that differ."""

    def make(num_shards: int, dim: int, seed: int = 0, spread: float = 1.0) -> GaussianShards:
        generator = np.random.default_rng(seed)
        roots = generator.normal(size=(num_shards, dim, dim))
        covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(dim)
        return GaussianShards(spread * generator.normal(size=(num_shards, dim)), covariances)

    return make


class Lazy:
    """Draws that are loaded when they are asked for; it knows how many shards' were held at the same time."""

    def __init__(self, draws: Any):
        self.draws = draws
        self.loaded: list[weakref.ref] = []
        self.most = 0

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, shard: int) -> np.ndarray:
        draws = np.array(self.draws[shard])
        self.loaded.append(weakref.ref(draws))
        self.most = max(self.most, sum(one() is not None for one in self.loaded))
        return draws


@pytest.fixture(scope="session")
def lazy():
    return Lazy
