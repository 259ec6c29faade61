"""References by importance sampling on all rows, for posteriors that are close to Gaussian.

Points are opposite pairs of a Gaussian proposal, or of a Student t for heavier tails: the Laplace
approximation, moved to the mean and the scales of a first set of weighted points. The weights are
so nearly equal that sds and quantiles are best computed relative to those of the same points
without weights, whose expectations are known (control variates). Points for a skewed posterior are
independent, of a Student t.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from answer import Draws
from density import Density, mode_and_root
from scipy.stats import norm
from truth import LEVELS, MEDIAN_OF_ABSOLUTE_NORMAL, Truth, summary_of

from vcmc.diagnostics.importance import pareto_k

NUM_PILOT_PAIRS, NUM_BATCHES = 500, 20
MAX_PAIRS, MAX_PAIR_ROWS = 4000, 2_000_000_000  # with more rows, fewer points will do
NUM_CONTROL_PAIRS = 200_000  # of the proposal, where its quantiles have no closed form
MAX_POINT_ROWS = 20_000_000  # points times rows that are evaluated at once
# Of a Student t, for skewed posteriors, where there are no control variates.
MAX_HEAVY_POINTS, MAX_HEAVY_POINT_ROWS, HEAVY_FREEDOM = 100_000, 1_200_000_000, 8.0
MAX_PARETO_K = 0.5  # above it, the variance of the weights may be infinite


def by_heavy_importance(density: Density, num_rows: int) -> Truth:
    """Return means, sds and quantiles of a skewed posterior, by points of a Student t."""
    generator = np.random.default_rng(0)
    mode, laplace_root = mode_and_root(density)
    centre, root = np.asarray(mode), np.asarray(laplace_root)
    evaluate = jax.jit(jax.vmap(density.log_density))
    freedom, dim = HEAVY_FREEDOM, len(centre)
    size = max(1, MAX_POINT_ROWS // num_rows)
    num_points = min(MAX_HEAVY_POINTS, MAX_HEAVY_POINT_ROWS // num_rows) // size * size
    for count in (size, 8 * size, num_points):
        normal = generator.normal(size=(count, dim))
        white = normal / np.sqrt(generator.chisquare(freedom, size=(count, 1)) / freedom)
        points = centre + white @ root.T
        values = [np.asarray(evaluate(chunk)) for chunk in np.split(points, count // size)]
        distances = np.sum(white**2, axis=1) / freedom
        log_weights = np.concatenate(values) + (freedom + dim) / 2 * np.log1p(distances)
        weights = _normalized(log_weights)
        centre = weights @ points
        root = np.linalg.cholesky((points - centre).T @ (weights[:, None] * (points - centre)))
    shape, effective = pareto_k(log_weights), 1 / np.sum(weights**2)
    if not shape < MAX_PARETO_K:
        raise RuntimeError(f"weights of the reference have Pareto k = {shape:.2f}; use chains.")
    params = density.params(points)
    flat = {name: values.reshape(len(values), -1) for name, values in params.items()}
    summary = {
        name: _weighted(values, weights).reshape(4, *params[name].shape[1:])
        for name, values in flat.items()
    }
    origin = (
        f"importance sampling, {num_points} points of a Student t, {effective:.0f} of them "
        f"effective, Pareto k {shape:.2f}"
    )
    return Truth(summary, _heavy_errors(flat, log_weights, summary), origin)


def _heavy_errors(flat: Draws, log_weights: np.ndarray, summary: Draws) -> Any:
    """Return median errors of means, sds and quantiles, from their spread over batches."""
    batches = np.array_split(np.arange(len(log_weights)), NUM_BATCHES)
    errors = []
    for name, values in flat.items():
        parts = [_weighted(values[batch], _normalized(log_weights[batch])) for batch in batches]
        sds = summary[name][1].ravel()
        spread = np.std(parts, axis=0, ddof=1) / np.sqrt(NUM_BATCHES) / sds
        errors.append(MEDIAN_OF_ABSOLUTE_NORMAL * spread)
    mean, sd, *quantiles = np.concatenate(errors, axis=1)
    return float(np.median(mean)), float(np.median(sd)), float(np.median(quantiles))


def by_importance(
    density: Density,
    num_rows: int,
    others: Callable[[np.ndarray, np.ndarray], Draws] = lambda *_: {},
    dof: float = np.inf,
    max_pairs: int = MAX_PAIRS,
) -> Truth:
    """Return means, sds and quantiles, with errors from their spread over batches of points.

    Args:
        density: the log density, and the parameters of a point.
        num_rows: number of terms of the log density, which bound the points.
        dof: degrees of freedom of the proposal, a Student t if finite.
        max_pairs: number of pairs of points, at most.
        others: from points and their weights to the statistics (4, …) of other parameters.
    """
    generator = np.random.default_rng(0)
    mode, laplace_root = mode_and_root(density)
    centre, root = np.asarray(mode), np.asarray(laplace_root)
    evaluate = jax.jit(jax.vmap(density.log_density))
    size = max(1, MAX_POINT_ROWS // num_rows)
    num_pairs = min(max_pairs, MAX_PAIR_ROWS // num_rows) // NUM_BATCHES * NUM_BATCHES

    def log_density(points: np.ndarray) -> np.ndarray:
        chunks = np.split(points, range(size, len(points), size))
        # the last one is filled up, so that one program serves all
        return np.concatenate(
            [
                np.asarray(evaluate(np.resize(chunk, (size, len(mode)))))[: len(chunk)]
                for chunk in chunks
            ]
        )

    points, log_weights = _proposed(generator, log_density, centre, root, NUM_PILOT_PAIRS, dof)
    weights = _normalized(log_weights)
    centre = weights @ points
    # covariances of a few hundred points are noisy, variances less so
    variances = weights @ (points - centre) ** 2
    root = root * np.sqrt(variances / (root**2).sum(axis=1))[:, None]
    points, log_weights = _proposed(generator, log_density, centre, root, num_pairs, dof)
    shape = pareto_k(log_weights)
    if not shape < MAX_PARETO_K:
        raise RuntimeError(f"weights of the reference have Pareto k = {shape:.2f}; use chains.")
    params = density.params(points)
    known = _known(generator, density, centre, root, dof)
    weights = _normalized(log_weights)
    summary = {name: _controlled(values, weights, known[name]) for name, values in params.items()}
    origin = (
        f"importance sampling, {len(points)} points, {1 / np.sum(weights**2):.0f} of them "
        f"effective, Pareto k {shape:.2f}"
    )
    errors = _errors(params, log_weights, known, summary)
    return Truth(summary | others(points, weights), errors, origin)


def _proposed(
    generator: np.random.Generator,
    log_density: Any,
    centre: Any,
    root: Any,
    num_pairs: int,
    dof: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return points (point, coordinate), opposite ones next to each other, and log weights."""
    dim = len(centre)
    white = _pairs(generator, num_pairs, dim, dof)
    points = centre + white @ root.T
    squares = (white**2).sum(axis=1)
    is_normal = np.isinf(dof)
    minus_log_proposal = 0.5 * (squares if is_normal else (dof + dim) * np.log1p(squares / dof))
    return points, log_density(points) + minus_log_proposal


def _pairs(generator: np.random.Generator, num_pairs: int, dim: int, dof: float) -> np.ndarray:
    half = generator.normal(size=(num_pairs, dim))
    if not np.isinf(dof):
        half /= np.sqrt(generator.chisquare(dof, size=(num_pairs, 1)) / dof)
    return np.stack([half, -half], axis=1).reshape(2 * num_pairs, dim)


def _normalized(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _known(
    generator: np.random.Generator,
    density: Density,
    centre: np.ndarray,
    root: np.ndarray,
    dof: float,
) -> Draws:
    """Return mean, sd and quantiles of the proposal, which need no rows."""
    params = density.params(centre[None])
    if np.isinf(dof) and all(
        np.array_equal(values[0].ravel(), centre) for values in params.values()
    ):
        sd = np.sqrt((root**2).sum(axis=1))  # the only parameter is the point
        summary = np.stack([centre, sd, *(centre + norm.ppf(level) * sd for level in LEVELS)])
        return dict.fromkeys(params, summary)
    points = centre + _pairs(generator, NUM_CONTROL_PAIRS, len(centre), dof) @ root.T
    return {name: summary_of(values) for name, values in density.params(points).items()}


def _controlled(values: np.ndarray, weights: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return mean, sd and quantiles of weighted points, relative to those without weights."""
    flat = values.reshape(len(values), -1)
    plain, weighted, exact = summary_of(flat), _weighted(flat, weights), known.reshape(4, -1)
    estimate = exact + weighted - plain
    estimate[1] = exact[1] * weighted[1] / plain[1]
    return estimate.reshape(4, *values.shape[1:])


def _weighted(flat: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return mean, sd and quantiles of weighted points (point, parameter)."""
    mean = weights @ flat
    quantiles = []
    for column in flat.T:
        order = np.argsort(column)
        # a point stands for the middle of its share
        shares = np.cumsum(weights[order]) - 0.5 * weights[order]
        quantiles.append(np.interp(LEVELS, shares, column[order]))
    return np.stack([mean, np.sqrt(weights @ (flat - mean) ** 2), *np.transpose(quantiles)])


def _errors(
    params: Draws, log_weights: np.ndarray, known: Draws, summary: Draws
) -> tuple[float, float, float]:
    """Return median errors of means, sds and quantiles, from their spread over batches."""
    batches = np.split(np.arange(len(log_weights)), NUM_BATCHES)
    errors = []
    for name, values in params.items():
        estimates = [
            _controlled(values[batch], _normalized(log_weights[batch]), known[name])
            for batch in batches
        ]
        spread = np.std(estimates, axis=0, ddof=1) / np.sqrt(NUM_BATCHES) / summary[name][1]
        errors.append(MEDIAN_OF_ABSOLUTE_NORMAL * spread.reshape(4, -1))
    mean, sd, *quantiles = np.concatenate(errors, axis=1)
    return float(np.median(mean)), float(np.median(sd)), float(np.median(quantiles))
