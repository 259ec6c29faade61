r"""Leave one row, or group, out by draws that are moved to the posterior without it.

Where one row changes the posterior much, weights of the draws do not help: there are no draws where
the posterior without the row lies. Importance-weighted moment matching (Paananen, Piironen, Bürkner
and Vehtari 2021) maps the draws by $T(u) = A u + c$, so that their mean, then their variances, then
their covariance become those of the weighted draws, as long as Pareto's k decreases. With the full
posterior density $p$ and the row's likelihood $\ell$, weights of moved draws $v = T(u)$ are

$$w = \frac{p(v)}{\ell(v)} \cdot \frac{|\det A|}{p(u)}.$$

In the end every other draw is moved. All are weighted for the mixture of both densities, as moved
draws are where the row's weights are large, and the others where its likelihood is.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ..target import Target
from .pareto_smoothing import smooth_weights

MAX_ROUNDS = 50  # accepted maps; a mean that is a hundred sds away takes about forty
GOAL_K = 0.4  # at which to stop: k of the mixture may be somewhat larger, and is to be below 0.7

Points = Float[np.ndarray, "draw dim"]
Draws = Float[np.ndarray, " draw"]
LogDensity = Callable[[Points], Draws]


class Posterior(NamedTuple):
    """Draws and log densities of the full posterior.

    Attributes:
        points: draws.
        log_densities: full-data log densities at the draws.
        log_density: the function that returns them.
        relative_efficiency: effective draws per draw.
    """

    points: Points
    log_densities: Draws
    log_density: LogDensity
    relative_efficiency: float


def full_posterior(target: Target, points: Points, relative_efficiency: float) -> Posterior:
    """Return the posterior of a full-data target."""

    def log_density(points: Points) -> Draws:
        return np.asarray(target(points)[0])

    return Posterior(points, log_density(points), log_density, relative_efficiency)


class Matched(NamedTuple):
    """The log predictive density of a row that is left out, with and without it, and k."""

    elpd: float
    k: float
    log_mean: float


class _Map(NamedTuple):
    """An affine map of draws."""

    matrix: Float[np.ndarray, "dim dim"]
    shift: Float[np.ndarray, " dim"]

    def __call__(self, points: Points) -> Points:
        return points @ self.matrix.T + self.shift

    def inverse(self, points: Points) -> Points:
        return np.linalg.solve(self.matrix, (points - self.shift).T).T

    def then(self, matrix: Float[np.ndarray, "dim dim"], old: Draws, new: Draws) -> "_Map":
        """Return this map followed by another, which takes one mean to another."""
        return _Map(matrix @ self.matrix, matrix @ (self.shift - old) + new)

    @property
    def log_volume(self) -> float:
        return float(np.linalg.slogdet(self.matrix)[1])


class _Moved(NamedTuple):
    """Draws that a map has moved, with their log densities, smoothed log weights and k."""

    map: _Map
    points: Points
    log_densities: Draws
    log_weights: Draws
    k: float


def match_moments(posterior: Posterior, log_likelihood: LogDensity) -> Matched:
    """Leave out one row, or group, whose weights of the draws have a large k.

    Args:
        posterior: the full posterior.
        log_likelihood: returns the log likelihoods of the row.
    """
    dim = posterior.points.shape[1]
    with np.errstate(all="ignore"):
        moved = _moved(posterior, log_likelihood, _Map(np.eye(dim), np.zeros(dim)))
        for _ in range(MAX_ROUNDS):
            if moved.k <= GOAL_K:
                break
            trials = (_moved(posterior, log_likelihood, trial) for trial in _trials(moved))
            better = next((trial for trial in trials if trial.k < moved.k), None)
            if better is None:
                break
            moved = better
        return _mixture(posterior, log_likelihood, moved)


def _moved(posterior: Posterior, log_likelihood: LogDensity, trial: _Map) -> _Moved:
    points = trial(posterior.points)
    log_densities = posterior.log_density(points)
    log_weights = log_densities - log_likelihood(points) - posterior.log_densities
    smoothed, k = smooth_weights(
        np.nan_to_num(log_weights, nan=-np.inf), posterior.relative_efficiency
    )
    return _Moved(trial, points, log_densities, smoothed, k)


def _trials(moved: _Moved) -> Iterator[_Map]:
    """Yield maps to the weighted mean, then the variances, then the covariance."""
    points, weights = moved.points, np.exp(moved.log_weights)
    old, new = points.mean(axis=0), weights @ points
    yield moved.map.then(np.eye(len(old)), old, new)
    scales = np.sqrt(weights @ (points - new) ** 2 / points.var(axis=0))
    if np.all(np.isfinite(scales) & (scales > 0)):
        yield moved.map.then(np.diag(scales), old, new)
    try:
        root = np.linalg.cholesky(np.atleast_2d(np.cov(points.T)))
        weighted_root = np.linalg.cholesky((points - new).T @ ((points - new) * weights[:, None]))
    except np.linalg.LinAlgError:  # fewer draws with weight than coordinates
        return
    yield moved.map.then(np.linalg.solve(root.T, weighted_root.T).T, old, new)


def _mixture(posterior: Posterior, log_likelihood: LogDensity, moved: _Moved) -> Matched:
    """Return the estimate of all draws, of which every other one is moved."""
    is_moved = np.arange(len(posterior.points)) % 2 == 0
    points = np.where(is_moved[:, None], moved.points, posterior.points)
    log_densities = np.where(is_moved, moved.log_densities, posterior.log_densities)
    before = posterior.log_densities.copy()  # at the points that the map takes to these
    before[~is_moved] = posterior.log_density(moved.map.inverse(posterior.points[~is_moved]))
    log_mixture = np.logaddexp(log_densities, before - moved.map.log_volume)
    log_likelihoods = log_likelihood(points)
    log_weights = np.nan_to_num(log_densities - log_likelihoods - log_mixture, nan=-np.inf)
    smoothed, k = smooth_weights(log_weights, posterior.relative_efficiency)
    has_weight = np.isfinite(smoothed)
    elpd = logsumexp(smoothed[has_weight] + log_likelihoods[has_weight])
    log_mean = logsumexp(log_likelihood(posterior.points)) - np.log(len(points))
    return Matched(float(elpd), k, float(log_mean))
