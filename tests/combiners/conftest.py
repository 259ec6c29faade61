"""Fixtures: shards whose product, or whose posterior, is known."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, polygamma

import vcmc
from vcmc.combiners import Subposteriors
from vcmc.space import Product


class Powered(NamedTuple):
    """Shards of a linear regression, with all of the prior and their likelihood to the power K, and
    the posterior of all rows."""

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
        return Subposteriors(
            self.shards.draws(draws) if isinstance(draws, int) else draws, space, None, seed
        )

    def off(self, draws: Any) -> tuple[float, float]:
        """By how many sds the means of draws are off, and by how much their covariance, relative to
        the sds."""
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
            type(gaussian_shards(1, 1))(means, covariances),
            covariance @ sums.sum(axis=0),
            covariance,
        )

    return make


def _subposteriors(draws, target=None, seed=0):
    equal = len({len(each) for each in draws}) == 1
    space = Product({"theta": vcmc.Real(draws[0].shape[1])})
    return Subposteriors(jnp.asarray(np.stack(draws)) if equal else draws, space, target, seed)


def _errors(merged, mean, covariance):
    """The errors of the mean, in standard deviations, and of the standard deviations, relative to
    them."""
    merged, sds = np.asarray(merged), np.sqrt(np.diag(covariance))
    return np.abs((merged.mean(axis=0) - mean) / sds).max(), np.abs(
        merged.std(axis=0) / sds - 1
    ).max()


def _log_gammas(shape, size, generator):
    """Logarithms of gamma draws, which do not underflow if the shape is small."""
    return (
        np.log(generator.gamma(shape + 1, size=size)) + np.log(generator.uniform(size=size)) / shape
    )


def _rare_successes(seed, num_draws, num_shards=15, num_trials=10_000):
    """Logits of exact draws of shards that have two successes on average, and the posterior's mean
    and covariance."""
    generator = np.random.default_rng(seed)
    successes = generator.uniform(size=num_trials) < 2 * num_shards / num_trials
    draws = []
    for part in np.array_split(successes, num_shards):
        # prior times Jacobian is p (1 - p), to the power 1/K
        shapes = part.sum() + 1 / num_shards, (~part).sum() + 1 / num_shards
        logits = _log_gammas(shapes[0], num_draws, generator) - _log_gammas(
            shapes[1], num_draws, generator
        )
        draws.append(logits[:, None])
    shapes = successes.sum() + 1, (~successes).sum() + 1
    mean = digamma(shapes[0]) - digamma(shapes[1])
    return draws, np.array([mean]), np.array([[polygamma(1, shapes[0]) + polygamma(1, shapes[1])]])


def _agreeing(num_shards, dim, num_draws, seed=0):
    """Gaussian shards of one covariance, with means as far apart as such shards of one data set
    have them."""
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(num_shards, 1, dim))
    return list(means + generator.normal(size=(num_shards, num_draws, dim))), means.mean(
        axis=(0, 1)
    )


def _two_modes(combiner):
    """What a combiner makes of shards that all see two modes, whose masses are checked, and the
    scale of a mode in a shard."""
    generator = np.random.default_rng(0)
    draws, num_draws, left, scale = [], 10_000, np.array([0.3, 0.5, 0.6]), 0.7
    for share in left:
        modes = np.where(generator.uniform(size=num_draws) < share, -2.0, 2.0)
        draws.append((modes + scale * generator.normal(size=num_draws))[:, None])
    merged = np.asarray(combiner(_subposteriors(draws)).draws)[:, 0]
    odds = np.prod(left / (1 - left))
    # the shards' own shares are known to 0.5 / √n each, and the product's to √3 times that, twice
    # for resampling
    assert np.mean(merged < 0) == pytest.approx(
        odds / (1 + odds), abs=4 * np.sqrt(5) * 0.5 / np.sqrt(num_draws)
    )
    return merged, scale


@pytest.fixture(scope="session")
def subposteriors():
    return _subposteriors


@pytest.fixture(scope="session")
def errors():
    return _errors


@pytest.fixture(scope="session")
def log_gammas():
    return _log_gammas


@pytest.fixture(scope="session")
def rare_successes():
    return _rare_successes


@pytest.fixture(scope="session")
def agreeing():
    return _agreeing


@pytest.fixture(scope="session")
def two_modes():
    return _two_modes
