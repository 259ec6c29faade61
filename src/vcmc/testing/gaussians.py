"""Shards with known posteriors: Gaussians and their product, and a linear regression."""

import weakref
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..combiners import Subposteriors
from ..data.partition import split
from ..executors import Local
from ..model import Model
from ..space import Positive, Product, Real
from ..target import Target


class Gaussian(NamedTuple):
    """Mean and covariance of a Gaussian."""

    mean: np.ndarray
    covariance: np.ndarray


class GaussianShards(NamedTuple):
    """Shards with one row each, whose subposteriors are known Gaussians."""

    means: np.ndarray
    covariances: np.ndarray

    @classmethod
    def random(
        cls, num_shards: int, dim: int, seed: int = 0, spread: float = 1.0
    ) -> "GaussianShards":
        """Return shards with random means and covariances."""
        generator = np.random.default_rng(seed)
        roots = generator.normal(size=(num_shards, dim, dim))
        covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(dim)
        return cls(spread * generator.normal(size=(num_shards, dim)), covariances)

    def repeated(self, num_shards: int) -> "GaussianShards":
        """Return `num_shards` copies of the first shard."""
        return type(self)(
            np.tile(self.means[:1], (num_shards, 1)),
            np.tile(self.covariances[:1], (num_shards, 1, 1)),
        )

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.means.shape[1]

    def product(self) -> Gaussian:
        """Return the product of the shards' densities, which is the posterior."""
        precisions = np.linalg.inv(self.covariances)
        covariance = np.linalg.inv(precisions.sum(axis=0))
        return Gaussian(covariance @ np.einsum("kij,kj->i", precisions, self.means), covariance)

    def target(self) -> Target:
        """Return the log density of the product, up to a constant."""
        model = Model({"theta": Real(self.dim)}, _flat, _quadratic)
        rows = {"mean": self.means, "precision": np.linalg.inv(self.covariances)}
        partition = split(rows, len(self.means))
        return Target(model, [partition.load(k) for k in range(len(self.means))], Local())

    def draws(self, num_draws: int, seed: int = 0) -> jax.Array:
        """Return draws of every shard with exactly the shard's mean and covariance."""
        noise = np.random.default_rng(seed).normal(size=(len(self.means), num_draws, self.dim))
        noise -= noise.mean(axis=1, keepdims=True)
        roots = np.linalg.cholesky(noise.transpose(0, 2, 1) @ noise / num_draws)
        white = np.linalg.solve(roots, noise.transpose(0, 2, 1))
        coloured = np.linalg.cholesky(self.covariances) @ white
        return jnp.asarray(self.means[:, None] + coloured.transpose(0, 2, 1))

    def independent(self, num_draws: int, seed: int = 0) -> Subposteriors:
        """Return the input of a combiner: independent draws, without a target.

        Unlike those of `draws`, their means and covariances have Monte Carlo error.
        """
        noise = np.random.default_rng(seed).normal(size=(len(self.means), num_draws, self.dim))
        draws = self.means[:, None] + noise @ np.linalg.cholesky(self.covariances).transpose(
            0, 2, 1
        )
        return Subposteriors(jnp.asarray(draws), Product({"theta": Real(self.dim)}), None, seed)

    def subposteriors(self, num_draws: int, seed: int = 0) -> Subposteriors:
        """Return the input of a combiner: draws with exact moments, and the target."""
        target = self.target()
        return Subposteriors(self.draws(num_draws, seed), target.model.space, target, seed)


def _flat(params: Any) -> Any:
    return 0.0 * jnp.sum(params["theta"])


def _quadratic(params: Any, rows: Any) -> Any:
    residual = params["theta"] - rows["mean"]
    return -0.5 * jnp.einsum("ki,kij,kj->k", residual, rows["precision"], residual)


class Regression(NamedTuple):
    """A linear regression with known noise, whose posterior is a known Gaussian."""

    model: Model
    rows: dict[str, np.ndarray]
    prior_precision: np.ndarray

    def posterior(self, indices: Any = slice(None), prior_power: float = 1.0) -> Gaussian:
        """Return the posterior given some rows and a power of the prior."""
        x, y = self.rows["x"][indices], self.rows["y"][indices]
        covariance = np.linalg.inv(x.T @ x + prior_power * np.diag(self.prior_precision))
        return Gaussian(covariance @ x.T @ y, covariance)


@cache  # one model, so its programs are compiled once
def regression() -> Regression:
    """Return a regression with 1003 rows and three correlated covariates."""
    generator = np.random.default_rng(3)
    num_rows = 1003
    x = generator.normal(size=(num_rows, 3)) @ [[1.0, 0.8, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 1.0]]
    y = x @ [1.0, -2.0, 0.5] + generator.normal(size=num_rows)
    precision = np.array([1.0, 4.0, 0.25])
    model = Model(
        space={"beta": Real(3)},
        log_prior=lambda params: -0.5 * jnp.sum(precision * params["beta"] ** 2),
        log_likelihood=lambda params, rows: (
            -0.5 * jnp.square(rows["y"] - rows["x"] @ params["beta"])
        ),
    )
    return Regression(model, {"x": x, "y": y}, precision)


class VaryingMeans(NamedTuple):
    """A hierarchical model: two means for each group, normal around common ones."""

    model: Model
    rows: dict[str, np.ndarray]


@cache
def varying_means() -> VaryingMeans:
    """Return a model with 24 groups, whose labels are texts, and 200 rows."""
    generator = np.random.default_rng(5)
    group = np.append(np.arange(24), generator.integers(0, 24, 176))
    means = 1 + 0.5 * generator.normal(size=(24, 2))
    labels = np.array([f"group {number:02d}" for number in range(24)])
    rows = {"group": labels[group], "y": means[group] + generator.normal(size=(200, 2))}

    def log_normal(value: Any, mean: Any, sd: Any) -> Any:
        return jnp.sum(-0.5 * ((value - mean) / sd) ** 2 - jnp.log(sd), axis=-1)

    model = Model(
        space={"mu": Real(2), "tau": Positive()},
        local_space={"alpha": Real(2)},
        log_prior=lambda params: -0.5 * (0.01 * jnp.sum(params["mu"] ** 2) + params["tau"] ** 2),
        log_local_prior=lambda params, local, _: log_normal(
            local["alpha"], params["mu"], params["tau"]
        ),
        log_likelihood=lambda _, local, rows: log_normal(rows["y"], local["alpha"], 1.0),
        groups="group",
    )
    return VaryingMeans(model, rows)


class LazyShards:
    """Draws that are loaded on access.

    Attributes:
        most: the largest number of shards whose draws were in memory at the same time.
    """

    def __init__(self, draws: Any):
        self.draws = draws
        self.loaded: list[weakref.ref[np.ndarray]] = []
        self.most = 0

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, shard: int) -> np.ndarray:
        draws = np.array(self.draws[shard])
        self.loaded.append(weakref.ref(draws))
        self.most = max(self.most, sum(reference() is not None for reference in self.loaded))
        return draws
