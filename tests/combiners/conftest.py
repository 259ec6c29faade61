"""Fixtures: powered shards whose posteriors are known, and draws that are loaded when they are asked for."""

import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import vcmc
from vcmc.combiners import Subposteriors


class Powered(NamedTuple):
    """Shards of a linear regression, with all of the prior and their likelihood to the power K, and the posterior of all rows."""

    shards: Any
    mean: np.ndarray
    covariance: np.ndarray

    @property
    def sds(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))

    def subposteriors(self, draws: Any = 1000, seed: int = 0) -> Subposteriors:
        """What a combiner is given: draws, or so many."""
        space = vcmc.Model(
            {"theta": vcmc.Real(len(self.mean))}, lambda params: 0.0, lambda params, rows: 0.0
        ).space
        return Subposteriors(self.shards.draws(draws) if isinstance(draws, int) else draws, space, None, seed)

    def off(self, draws: Any) -> tuple[float, float]:
        """By how many sds the means of draws are off, and by how much their covariance, relative to the sds."""
        covariance = np.cov(np.asarray(draws).T) - self.covariance
        return (
            float(np.abs((np.mean(draws, axis=0) - self.mean) / self.sds).max()),
            float(np.abs(covariance / np.outer(self.sds, self.sds)).max()),
        )


@pytest.fixture(scope="session")
def powered(gaussian_shards):
    """A function that makes powered shards of so many rows each."""

    def make(num_shards: int, dim: int, num_rows: int = 50, seed: int = 0) -> Powered:
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(num_shards, num_rows, dim))
        x[..., -1] += 0.7 * x[..., 0]
        y = x.sum(axis=2) + generator.normal(size=(num_shards, num_rows))
        products, sums = np.einsum("kni,knj->kij", x, x), np.einsum("kni,kn->ki", x, y)
        prior = 2.0 * np.eye(dim)
        covariances = np.linalg.inv(prior + num_shards * products)
        means = np.einsum("kij,kj->ki", covariances, num_shards * sums)
        covariance = np.linalg.inv(prior + products.sum(axis=0))
        return Powered(
            type(gaussian_shards(1, 1))(means, covariances), covariance @ sums.sum(axis=0), covariance
        )

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
