"""The log density of a problem's posterior in unconstrained coordinates, its mode and curvature."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from answer import Draws, named, rows_of
from problems import Problem


class Density(NamedTuple):
    """A log density on R^n.

    Attributes:
        first: a start point.
        log_density: the log density of a point, over all rows.
        params: the named parameters of a batch of points.
    """

    first: Any
    log_density: Callable[[Any], Any]
    params: Callable[[Any], Draws]


def of_numpyro(problem: Problem) -> Density:
    """Return NumPyro's own log density."""
    from jax.flatten_util import ravel_pytree
    from numpyro.infer.util import initialize_model

    rows = rows_of(problem)
    start, potential, constrain, _ = initialize_model(
        jax.random.key(0), problem.model, model_kwargs=rows, dynamic_args=True
    )
    first, unravel = ravel_pytree(start.z)

    def log_density(point: Any) -> Any:
        return -potential(**rows)(unravel(point))

    def params(points: Any) -> Draws:
        return named(jax.vmap(lambda point: constrain(**rows)(unravel(point)))(points))

    return Density(first, log_density, params)


def in_blocks(problem: Problem, model: Any) -> Density:
    """Return vcmc's log density, whose blocks of rows bound the memory of a batch of points."""
    import vcmc

    shard = vcmc.split(problem.rows, 1).load(0)
    density = of_numpyro(problem)
    first = {name: values[0] for name, values in density.params(density.first[None]).items()}

    def log_density(point: Any) -> Any:
        return model.log_prior_at(point) + model.log_likelihood_at(point, shard, is_batched=True)

    def params(points: Any) -> Draws:
        return named(jax.vmap(model.space.constrain)(points))

    return Density(model.space.unconstrain(first), log_density, params)


def mode_of(density: Density) -> Any:
    """Return the mode, by SciPy's L-BFGS from the start point."""
    from scipy.optimize import minimize

    value_and_score = jax.jit(jax.value_and_grad(density.log_density))

    def negative(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, score = value_and_score(jnp.asarray(point))
        return -float(value), -np.asarray(score)

    return jnp.asarray(minimize(negative, np.asarray(density.first), jac=True, method="L-BFGS-B").x)


def curvature_at(mode: Any, log_density: Callable[[Any], Any]) -> Any:
    """Return the negative Hessian, computed eight columns at a time."""
    score = jax.grad(log_density)

    def column(direction: Any) -> Any:
        return -jax.jvp(score, (mode,), (direction,))[1]

    return jax.jit(lambda: jax.lax.map(column, jnp.eye(len(mode)), batch_size=8))()


def mode_and_root(density: Density) -> tuple[Any, Any]:
    """Return the mode, and a square root of the inverse curvature there."""
    mode = mode_of(density)
    curvature = np.asarray(curvature_at(mode, density.log_density))
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    return mode, jnp.asarray(vectors / np.sqrt(np.maximum(values, 1e-8 * values.max())))
