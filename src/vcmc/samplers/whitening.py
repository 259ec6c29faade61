r"""Run chains in coordinates in which a density looks like a standard normal.

Points are $u = c + R z$ around a centre $c$, with $R R^\top$ the inverse of the curvature there
(`linalg/whitening.py`).
"""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..density import BATCH_SIZE, Subposterior, evaluate, hessian_products
from ..linalg.operators import DenseOperator, IdentityOperator
from ..linalg.whitening import Whitening
from ..space import Point, Scalar

# coordinates: the curvature costs a gradient for each, and a chain holds a matrix of 8 MB;
# in 600 dimensions, logistic chains then need a tenth of the gradients
MAX_WHITENED_DIM = 1000
Root = Float[Array, "dim dim"]


def _whitening(centre: Point, root: Root | None) -> Whitening:
    """Return the coordinates of a chain; without a root they are only shifted."""
    return Whitening(centre, IdentityOperator() if root is None else DenseOperator(root))


def unwhiten(white: Point, centre: Point, root: Root | None) -> Point:
    """Map one whitened point to the point that it stands for."""
    return _whitening(centre, root).unwhiten_point(white)


def whitened_density(
    density: Subposterior, centre: Point, root: Root | None
) -> Callable[[Point], Scalar]:
    """Return the log density of whitened points."""
    return lambda white: density(unwhiten(white, centre, root))


def inverse_root(density: Subposterior, centre: Point) -> Root:
    """Return a root of the inverse curvature at the centre."""
    directions = jnp.asarray(np.eye(centre.size))
    curvature = -np.asarray(hessian_products(density, centre, directions))
    return cast(DenseOperator, Whitening.from_curvature(centre, curvature).root).values


def chain_states(
    density: Subposterior, white: Float[np.ndarray, "point dim"], centre: Point, root: Root | None
) -> Any:
    """Return BlackJAX's states of chains at whitened points.

    It calls programs that sampling compiles anyway, so that the first shard waits for no other.
    """
    # imported here: BlackJAX adds to the time of `import vcmc`
    from blackjax.mcmc.hmc import HMCState

    whitening = _whitening(centre, root)
    log_densities, scores = evaluate(density, _unwhiten_all(whitening, white))
    white_scores = _whiten_scores(whitening, scores)
    return HMCState(white, np.asarray(log_densities), np.asarray(white_scores))


# By XLA, not by NumPy, whose sums may depend on the number of its threads.
@jax.jit
def _unwhiten_all(
    whitening: Whitening, white: Float[Array, "point dim"]
) -> Float[Array, "point dim"]:
    return jax.vmap(whitening.unwhiten_point)(white)


@jax.jit
def _whiten_scores(
    whitening: Whitening, scores: Float[Array, "point dim"]
) -> Float[Array, "point dim"]:
    return whitening.whiten_scores(scores)


def non_normality(density: Subposterior, centre: Point) -> float:
    r"""Return how far a density is from a normal one.

    At points $z$ of a standard normal, the whitened scores of a normal density are $-z$. The
    measure is the mean variance of their difference from that.
    """
    white = np.random.default_rng(0).normal(size=(BATCH_SIZE, centre.size))
    states = chain_states(density, white, centre, inverse_root(density, centre))
    excess = states.logdensity_grad + white
    return float(np.mean(np.var(excess, axis=0))) if np.isfinite(excess).all() else np.inf
