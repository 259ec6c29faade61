"""The reference of each problem: many chains on all rows, independent of the methods' code.

Chains run in coordinates whitened by the curvature at the mode, all at once, so that a step is one
matrix product. They are Hamiltonian, but for `poisson`. The posterior of `wishart` is known, and
drawn from directly.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from answer import Draws
from density import Density, curvature_at, mode_of, of_numpyro
from problems import Problem
from scipy.stats import wishart


class Length(NamedTuple):
    """Number and length of chains."""

    num_chains: int
    num_warmup: int
    num_steps: int


LARGE, MIDDLE, SMALL = Length(32, 25, 60), Length(64, 0, 300), Length(64, 150, 500)


def reference(problem: Problem) -> tuple[Draws, int]:
    """Return draws (draw, …), chain after chain, and the number of chains."""
    if problem.name == "wishart":
        return _wishart(problem.rows["x"]), 1
    density = of_numpyro(problem)
    mode, root = _mode(density)

    def log_density(white: Any) -> Any:
        return density.log_density(mode + root @ white)

    if problem.name == "poisson":
        length = MIDDLE
        white = _independent(jax.jit(jax.vmap(log_density)), len(mode), length)
    else:
        length = LARGE if problem.num_rows > 30_000 else SMALL
        white = _chains(jax.jit(jax.vmap(jax.value_and_grad(log_density))), len(mode), length)
    flat = white.reshape(-1, len(mode))
    return density.params(mode + jnp.asarray(flat) @ root.T), length.num_chains


def _independent(log_density: Any, dim: int, length: Length) -> np.ndarray:
    """Run independence Metropolis-Hastings chains with Student's t proposals at the mode.

    They need no gradients, which are slow for this density; it is nearly Gaussian.
    """
    generator = np.random.default_rng(0)
    dof = 15.0
    draws: list[np.ndarray] = []
    point, log_weight = np.zeros((length.num_chains, dim)), np.full(length.num_chains, -np.inf)
    for _ in range(length.num_steps):
        scale = np.sqrt(dof / generator.chisquare(dof, size=(length.num_chains, 1)))
        proposal = generator.normal(size=point.shape) * scale
        log_proposal = -0.5 * (dof + dim) * np.log1p((proposal**2).sum(axis=1) / dof)
        new_log_weight = np.asarray(log_density(proposal)) - log_proposal
        accepted = np.log(generator.random(len(point))) < new_log_weight - log_weight
        point = np.where(accepted[:, None], proposal, point)
        log_weight = np.where(accepted, new_log_weight, log_weight)
        draws.append(point)
    return np.stack(draws, axis=1)


def _wishart(x: np.ndarray) -> Draws:
    dim = x.shape[1]
    scale = np.linalg.inv((dim + 2) * np.eye(dim) + x.T @ x)
    draws = wishart(dim + 2 + len(x), scale).rvs(20_000, random_state=np.random.default_rng(0))
    return {"precision": draws}


def _mode(density: Density) -> tuple[Any, Any]:
    """Return the mode, and a square root of the inverse curvature there."""
    mode = mode_of(density)
    curvature = curvature_at(mode, density.log_density)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    return mode, jnp.asarray(vectors / np.sqrt(np.maximum(values, 1e-8 * values.max())))


def _chains(value_and_score: Any, dim: int, length: Length) -> np.ndarray:
    """Run Hamiltonian chains of random length, tuned to an acceptance rate of 0.8.

    Returns:
        Draws (chain, draw, coordinate).
    """
    generator = np.random.default_rng(0)
    step_size = 0.5 * dim**-0.25
    point = generator.normal(size=(length.num_chains, dim))
    value, score = map(np.asarray, value_and_score(point))
    draws = []
    for number in range(length.num_warmup + length.num_steps):
        step = step_size * generator.uniform(0.8, 1.2)
        momentum = generator.normal(size=point.shape)
        new, new_value, new_score = point, value, score
        energy = value - 0.5 * (momentum**2).sum(axis=1)
        num_leaps = max(1, round(generator.uniform(0.5, 1.5) * np.pi / 2 / step))
        for _ in range(num_leaps):
            momentum = momentum + 0.5 * step * new_score
            new = new + step * momentum
            new_value, new_score = map(np.asarray, value_and_score(new))
            momentum = momentum + 0.5 * step * new_score
        change = new_value - 0.5 * (momentum**2).sum(axis=1) - energy
        acceptance = np.exp(np.minimum(0, np.nan_to_num(change, nan=-np.inf)))
        accepted = generator.random(len(point)) < acceptance
        point = np.where(accepted[:, None], new, point)
        value = np.where(accepted, new_value, value)
        score = np.where(accepted[:, None], new_score, score)
        if number < length.num_warmup:
            step_size *= np.exp((acceptance.mean() - 0.8) / np.sqrt(1 + number))
        else:
            draws.append(point)
    return np.stack(draws, axis=1)
