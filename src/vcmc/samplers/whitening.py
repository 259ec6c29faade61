r"""Coordinates in which a density looks like a standard normal: points are $u = c + R z$ around a centre $c$, with $R R^\top$ the inverse of the curvature there."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model import BATCH, Subposterior, bend, evaluate
from ..typing import Point, Scalar

MAX_WHITENED = 500  # the curvature costs as many gradients as there are coordinates
CURVATURE_BATCH = 16  # directions at once: rows times this many numbers are held
Root = Float[Array, "dim dim"]


def unwhiten(white: Point, centre: Point, root: Root | None) -> Point:
    """The point that whitened coordinates stand for; without a root, coordinates are only shifted."""
    return centre + (white if root is None else root @ white)


def whitened(density: Subposterior, centre: Point, root: Root | None) -> Callable[[Point], Scalar]:
    """The log density in whitened coordinates."""
    return lambda white: density(unwhiten(white, centre, root))


def inverse_root(density: Subposterior, centre: Point) -> Root:
    """A root of the inverse curvature at the centre."""
    score = jax.grad(density.of_many())
    curvature = jax.lax.map(
        lambda direction: -jax.jvp(score, (centre,), (direction,))[1],
        jnp.eye(centre.size),
        batch_size=CURVATURE_BATCH,
    )
    return root_of(curvature)


def root_of(curvature: Root) -> Root:
    """A root of the inverse of a curvature; where the density curves upwards, as if it did not."""
    curvature = jnp.where(jnp.isfinite(curvature).all(), curvature, jnp.eye(len(curvature)))
    values, vectors = jnp.linalg.eigh((curvature + curvature.T) / 2)
    floor = 1e-10 * jnp.max(jnp.abs(values))
    return vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), floor))


def departure(density: Subposterior, centre: Point) -> float:
    r"""How far a density is from a normal one: the mean square of what its whitened scores vary beyond those of a standard normal, $-z$, at points $z$ of that."""
    white = np.random.default_rng(0).normal(size=(BATCH, centre.size))
    root = np.asarray(root_of(-bend(density, centre, jnp.eye(centre.size))))
    _, scores = evaluate(density, jnp.asarray(centre + white @ root.T))
    beyond = np.asarray(scores) @ root + white
    return float(np.mean(np.var(beyond, axis=0))) if np.isfinite(beyond).all() else np.inf
