r"""Coordinates in which a density looks like a standard normal: points are $u = c + R z$ around a centre $c$, with $R R^\top$ the inverse of the curvature there."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..density import BATCH, Subposterior, evaluate, hessian_products
from ..space import Point, Scalar

MAX_WHITENED = 500  # the curvature costs as many gradients as there are coordinates
Root = Float[Array, "dim dim"]


def unwhiten(white: Point, centre: Point, root: Root | None) -> Point:
    """The point that whitened coordinates stand for; without a root, coordinates are only shifted."""
    return centre + (white if root is None else root @ white)


def whitened(density: Subposterior, centre: Point, root: Root | None) -> Callable[[Point], Scalar]:
    """The log density in whitened coordinates."""
    return lambda white: density(unwhiten(white, centre, root))


def inverse_root(density: Subposterior, centre: Point) -> Root:
    """A root of the inverse curvature at the centre."""
    return _root_of(
        -np.asarray(hessian_products(density, centre, jnp.asarray(np.eye(centre.size))))
    )


@jax.jit
def _root_of(curvature: Root) -> Root:
    """A root of the inverse of a curvature; where the density curves upwards, as if it did not."""
    curvature = jnp.where(jnp.isfinite(curvature).all(), curvature, jnp.eye(len(curvature)))
    values, vectors = jnp.linalg.eigh((curvature + curvature.T) / 2)
    floor = 1e-10 * jnp.max(jnp.abs(values))
    return vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), floor))


def placed(
    density: Subposterior, white: Float[np.ndarray, "point dim"], centre: Point, root: Root | None
) -> Any:
    """BlackJAX's states of chains at whitened points. It is made of programs that others need, too: the first shard need not wait for one more."""
    from blackjax.mcmc.hmc import (
        HMCState,  # here, not above: blackjax adds to the time of `import vcmc`
    )

    log_densities, scores = evaluate(density, _points(white, centre, root))
    turned = scores if root is None else _turned(scores, root)
    return HMCState(white, np.asarray(log_densities), np.asarray(turned))


# By XLA, not by NumPy, whose sums may depend on the number of its threads.
@jax.jit
def _points(
    white: Float[Array, "point dim"], centre: Point, root: Root | None
) -> Float[Array, "point dim"]:
    return jax.vmap(lambda each: unwhiten(each, centre, root))(white)


@jax.jit
def _turned(scores: Float[Array, "point dim"], root: Root) -> Float[Array, "point dim"]:
    return scores @ root


def non_normality(density: Subposterior, centre: Point) -> float:
    r"""How far a density is from a normal one: the mean square of what its whitened scores vary beyond those of a standard normal, $-z$, at points $z$ of that."""
    white = np.random.default_rng(0).normal(size=(BATCH, centre.size))
    beyond = placed(density, white, centre, inverse_root(density, centre)).logdensity_grad + white
    return float(np.mean(np.var(beyond, axis=0))) if np.isfinite(beyond).all() else np.inf
