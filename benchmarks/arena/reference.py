"""The reference of each problem, independent of vcmc's combination and of the methods' code.

Where the posterior is close to Gaussian, or skewed in a few coordinates, it comes from importance
sampling on all rows, elsewhere from many Hamiltonian chains in coordinates whitened by the
curvature at the mode. The posterior of
`wishart` is known, and drawn from directly.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from answer import Draws
from density import mode_and_root, of_numpyro
from grouped_problems import GroupedProblem
from grouped_reference import grouped_reference
from problems import Problem
from scipy.stats import wishart
from truth import Truth, truth_of_draws
from weighting import by_heavy_importance, by_importance

from vcmc.diagnostics import convergence

NEARLY_GAUSSIAN = frozenset({"logistic", "probit", "flights", "poisson", "robust"})
SKEWED = frozenset({"rare", "small"})
NUM_CHAINS, NUM_WARMUP, NUM_STEPS = 64, 150, 500
NUM_EXACT_DRAWS = 200_000


def reference(problem: Problem) -> Truth:
    """Return means, sds and quantiles of all parameters, and their errors."""
    if isinstance(problem, GroupedProblem):
        return grouped_reference(problem)
    if problem.name == "wishart":
        draws = _wishart(problem.rows["x"])
        return truth_of_draws(draws, NUM_EXACT_DRAWS, "the exact posterior")
    density = of_numpyro(problem)
    if problem.name.partition("@")[0] in NEARLY_GAUSSIAN:
        return by_importance(density, problem.num_rows)
    if problem.name in SKEWED:
        return by_heavy_importance(density, problem.num_rows)
    mode, root = mode_and_root(density)

    def log_density(white: Any) -> Any:
        return density.log_density(mode + root @ white)

    white = _chains(jax.jit(jax.vmap(jax.value_and_grad(log_density))), len(mode))
    draws = density.params(mode + jnp.asarray(white.reshape(-1, len(mode))) @ root.T)
    num_effective = float(np.median(convergence.ess(white[None])))
    return truth_of_draws(draws, num_effective, f"{NUM_CHAINS} Hamiltonian chains")


def _wishart(x: np.ndarray) -> Draws:
    dim = x.shape[1]
    scale = np.linalg.inv((dim + 2) * np.eye(dim) + x.T @ x)
    generator = np.random.default_rng(0)
    draws = wishart(dim + 2 + len(x), scale).rvs(NUM_EXACT_DRAWS, random_state=generator)
    return {"precision": draws}


def _chains(value_and_score: Any, dim: int) -> np.ndarray:
    """Run Hamiltonian chains of random length, tuned to an acceptance rate of 0.8.

    Returns:
        Draws (chain, draw, coordinate).
    """
    generator = np.random.default_rng(0)
    step_size = 0.5 * dim**-0.25
    point = generator.normal(size=(NUM_CHAINS, dim))
    value, score = map(np.asarray, value_and_score(point))
    draws = []
    for number in range(NUM_WARMUP + NUM_STEPS):
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
        if number < NUM_WARMUP:
            step_size *= np.exp((acceptance.mean() - 0.8) / np.sqrt(1 + number))
        else:
            draws.append(point)
    return np.stack(draws, axis=1)
