"""What every answer is measured against: many chains on all rows at once, Hamiltonian but for one problem, written apart from all methods.

Chains run in coordinates whitened by the curvature at the mode, so that a batch of them is one product of matrices; where the
posterior is known, it is drawn from.
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
    """How long chains are."""

    num_chains: int
    num_warmup: int
    num_steps: int


LARGE, MIDDLE, SMALL = Length(32, 25, 60), Length(64, 0, 300), Length(64, 150, 500)


def reference(problem: Problem) -> tuple[Draws, int]:
    """Draws (draw, …) of all chains, and the number of chains, whose draws follow each other."""
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
    """Metropolis-Hastings chains that propose from Student's t distribution about the mode: values alone, as gradients of this density are slow, and it is nearly normal."""
    generator = np.random.default_rng(0)
    dof = 15.0
    kept: list[np.ndarray] = []
    place, weight = np.zeros((length.num_chains, dim)), np.full(length.num_chains, -np.inf)
    for _ in range(length.num_steps):
        spread = np.sqrt(dof / generator.chisquare(dof, size=(length.num_chains, 1)))
        new = generator.normal(size=place.shape) * spread
        log_proposal = -0.5 * (dof + dim) * np.log1p((new**2).sum(axis=1) / dof)
        new_weight = np.asarray(log_density(new)) - log_proposal
        moved = np.log(generator.random(len(place))) < new_weight - weight
        place, weight = np.where(moved[:, None], new, place), np.where(moved, new_weight, weight)
        kept.append(place)
    return np.stack(kept, axis=1)


def _wishart(x: np.ndarray) -> Draws:
    dim = x.shape[1]
    scale = np.linalg.inv((dim + 2) * np.eye(dim) + x.T @ x)
    draws = wishart(dim + 2 + len(x), scale).rvs(20_000, random_state=np.random.default_rng(0))
    return {"precision": draws}


def _mode(density: Density) -> tuple[Any, Any]:
    """The mode, and a root of the inverse curvature there."""
    mode = mode_of(density)
    curvature = curvature_at(mode, density.log_density)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    return mode, jnp.asarray(vectors / np.sqrt(np.maximum(values, 1e-8 * values.max())))


def _chains(both: Any, dim: int, length: Length) -> np.ndarray:
    """Hamiltonian chains of random length, their step tuned to an acceptance of 0.8; axes (chain, draw, coordinate)."""
    generator = np.random.default_rng(0)
    size = 0.5 * dim**-0.25
    place = generator.normal(size=(length.num_chains, dim))
    value, score = map(np.asarray, both(place))
    kept = []
    for number in range(length.num_warmup + length.num_steps):
        step = size * generator.uniform(0.8, 1.2)
        speed = generator.normal(size=place.shape)
        new, new_value, new_score = place, value, score
        energy = value - 0.5 * (speed**2).sum(axis=1)
        num_leaps = max(1, round(generator.uniform(0.5, 1.5) * np.pi / 2 / step))
        for _ in range(num_leaps):
            speed = speed + 0.5 * step * new_score
            new = new + step * speed
            new_value, new_score = map(np.asarray, both(new))
            speed = speed + 0.5 * step * new_score
        change = new_value - 0.5 * (speed**2).sum(axis=1) - energy
        chance = np.exp(np.minimum(0, np.nan_to_num(change, nan=-np.inf)))
        moved = generator.random(len(place)) < chance
        place = np.where(moved[:, None], new, place)
        value, score = np.where(moved, new_value, value), np.where(moved[:, None], new_score, score)
        if number < length.num_warmup:
            size *= np.exp((chance.mean() - 0.8) / np.sqrt(1 + number))
        else:
            kept.append(place)
    return np.stack(kept, axis=1)
