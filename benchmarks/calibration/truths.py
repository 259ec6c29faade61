"""Posterior moments that owe nothing to vcmc's chains: by quadrature and by importance sampling."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from case import Moments
from jaxtyping import Array

import vcmc

BATCH_POINTS = 1000  # evaluated together
MAX_EDGE_SHARE = 1e-4  # of the highest density, at the edges of a grid
NUM_PROPOSALS, PROPOSAL_DOF = 8000, 7.0
MIN_EFFECTIVE_PROPOSALS = 3000
NUM_NEWTON_STEPS = 30


def grid_moments(
    model: vcmc.Model,
    rows: Mapping[str, np.ndarray],
    axes: Mapping[str, np.ndarray],
    bounded: tuple[str, ...] = (),
) -> Moments:
    """Return the moments of one or two scalar parameters, by quadrature on a product of grids.

    A grid whose edges the posterior reaches raises an error, unless the parameter is `bounded`.
    """
    distinct, counts = _distinct_rows(rows)
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    points = {name: jnp.asarray(values.ravel()) for name, values in zip(axes, mesh, strict=True)}
    logs = np.asarray(_log_densities(model, points, distinct, counts)).reshape(mesh[0].shape)
    density = np.exp(logs - logs.max())
    moments = {}
    for axis, (name, grid) in enumerate(axes.items()):
        others = tuple(number for number in range(density.ndim) if number != axis)
        margin = density.sum(axis=others) * np.gradient(grid)
        edge = max(margin[0], margin[-1]) / margin.max()
        if name not in bounded and edge > MAX_EDGE_SHARE:
            raise ValueError(f"the grid of {name} is too short: {edge:.1g} at its edge.")
        margin = margin / margin.sum()
        mean = margin @ grid
        moments[name] = (mean, np.sqrt(margin @ (grid - mean) ** 2))
    return moments


def _distinct_rows(rows: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return distinct rows and how often each occurs; columns must be vectors."""
    table = np.column_stack(list(rows.values()))
    distinct, counts = np.unique(table, axis=0, return_counts=True)
    return dict(zip(rows, distinct.T, strict=True)), counts.astype(float)


@partial(jax.jit, static_argnums=0)
def _log_densities(model: vcmc.Model, points: Any, rows: Any, counts: Array) -> Array:
    def log_density(params: Any) -> Array:
        return model.log_prior(params) + counts @ model.log_likelihood(params, rows)

    return jax.lax.map(log_density, points, batch_size=BATCH_POINTS)


def importance_moments(
    model: vcmc.Model, rows: Mapping[str, np.ndarray], near: Mapping[str, Any], seed: int
) -> Moments:
    """Return moments by importance sampling around the mode that Newton's method finds.

    Proposals are multivariate Student t with the curvature at the mode: for thousands of rows and
    few parameters nearly every proposal counts.

    Args:
        model: the model.
        rows: all rows.
        near: params from which the mode is reached.
        seed: seed of the proposals.
    """
    arrays = {name: jnp.asarray(values) for name, values in rows.items()}
    start = model.space.unconstrain({name: jnp.asarray(value) for name, value in near.items()})
    mode, precision = _newton(model, start, arrays)
    generator = np.random.default_rng([seed, 1])
    dim = len(mode)
    normal = generator.normal(size=(NUM_PROPOSALS, dim))
    shrink = np.sqrt(generator.chisquare(PROPOSAL_DOF, size=(NUM_PROPOSALS, 1)) / PROPOSAL_DOF)
    whitened = normal / shrink
    root = np.linalg.inv(np.linalg.cholesky(np.asarray(precision)))  # rows times it: covariance
    points = np.asarray(mode) + whitened @ root
    log_proposal = -0.5 * (PROPOSAL_DOF + dim) * np.log1p((whitened**2).sum(1) / PROPOSAL_DOF)
    log_ratio = np.asarray(_log_posteriors(model, jnp.asarray(points), arrays)) - log_proposal
    weights = np.exp(log_ratio - log_ratio.max())
    weights /= weights.sum()
    if (effective := 1 / (weights**2).sum()) < MIN_EFFECTIVE_PROPOSALS:
        raise ValueError(f"only {effective:.0f} of {NUM_PROPOSALS} proposals are effective.")
    moments = {}
    for name, values in jax.vmap(model.space.constrain)(jnp.asarray(points)).items():
        mean = np.tensordot(weights, np.asarray(values), axes=1)
        variance = np.tensordot(weights, (np.asarray(values) - mean) ** 2, axes=1)
        moments[name] = (mean, np.sqrt(variance))
    return moments


def _log_posterior(model: vcmc.Model, point: Array, rows: Any) -> Array:
    params = model.space.constrain(point)
    return model.log_prior_at(point) + jnp.sum(model.log_likelihood(params, rows))


@partial(jax.jit, static_argnums=0)
def _log_posteriors(model: vcmc.Model, points: Array, rows: Any) -> Array:
    return jax.lax.map(lambda point: _log_posterior(model, point, rows), points, batch_size=100)


@partial(jax.jit, static_argnums=0)
def _newton(model: vcmc.Model, start: Array, rows: Any) -> tuple[Array, Array]:
    """Return the mode and the negative Hessian there."""
    score = jax.grad(_log_posterior, argnums=1)
    hessian = jax.jacfwd(score, argnums=1)

    def step(_: Array, point: Array) -> Array:
        move = jnp.linalg.solve(hessian(model, point, rows), score(model, point, rows))
        length = jnp.linalg.norm(move)
        return point - move / jnp.maximum(1.0, length)

    mode = jax.lax.fori_loop(0, NUM_NEWTON_STEPS, step, start)
    return mode, -hessian(model, mode, rows)


def mixture_moments(weights: np.ndarray, means: np.ndarray, sds: np.ndarray) -> Any:
    """Return mean and sd of a mixture of Gaussians, whose components are the first axis."""
    mean = (weights * means).sum(axis=0)
    return mean, np.sqrt((weights * (sds**2 + (means - mean) ** 2)).sum(axis=0))
