r"""Run chains in coordinates in which a density looks like a standard normal.

Points are $u = c + R z$ around a centre $c$, with $R R^\top$ the inverse of the curvature there
(`linalg/whitening.py`).
"""

from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from ..density import BATCH_SIZE, Subposterior, evaluate, hessian_products, padded_batches
from ..linalg.operators import DenseOperator, IdentityOperator
from ..linalg.whitening import Whitening
from ..space import Point, Scalar

# coordinates: the curvature costs a gradient for each, and a chain holds a matrix of 32 MB; in 600
# dimensions, logistic chains then need a tenth of the gradients, and crossed effects with 1133
# coordinates (benchmarks/crossed.py) end in minutes
MAX_WHITENED_DIM = 2000
MAX_NEWTON_SDS = 3.0  # along each whitened axis: a shard's mode is about one from the common mode
NUM_NEWTON_STEPS = 2  # with one curvature
MAX_HALVINGS = 4  # of a step that lowers the log density
# Mean squared whitened scores: below the first a point is close enough to the mode; above the
# second the curvature has changed on the way to it.
MIN_SQUARED_SCORE, MAX_SQUARED_SCORE = 1e-3, 0.05
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
    directions = np.eye(centre.size)
    curvature = -np.asarray(hessian_products(density, centre, directions))
    return cast(DenseOperator, Whitening.from_curvature(centre, curvature).root).values


def normal_approximation(density: Subposterior, start: Point) -> tuple[Point, Root]:
    """Return the centre of a shard's normal approximation, and a root of its covariance.

    Newton's steps lead from the common start to the shard's own mode, with the curvature at the
    start. Where that is not enough, the curvature at their end replaces it, once.
    """
    root = inverse_root(density, start)
    centre, score = _newton_steps(density, start, root)
    if np.mean(score**2) > MAX_SQUARED_SCORE:
        root = inverse_root(density, centre)
        centre, _ = _newton_steps(density, centre, root)
    return centre, root


def _newton_steps(
    density: Subposterior, centre: Point, root: Root
) -> tuple[Point, Float[np.ndarray, " dim"]]:
    """Return the point that Newton's steps with one curvature lead to, and the score there.

    Each step is limited, and halved while it lowers the log density.
    """

    def evaluated(white: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        state = chain_states(density, white[None], centre, root)
        return white, float(state.logdensity[0]), state.logdensity_grad[0]

    white, value, score = evaluated(np.zeros(centre.size))
    for _ in range(NUM_NEWTON_STEPS):
        if np.mean(score**2) < MIN_SQUARED_SCORE:
            break
        step = np.clip(np.nan_to_num(score), -MAX_NEWTON_SDS, MAX_NEWTON_SDS)
        for _ in range(MAX_HALVINGS):
            candidate = evaluated(white + step)
            if candidate[1] >= value and np.isfinite(candidate[2]).all():
                white, value, score = candidate
                break
            step = step / 2
    (mode,) = unwhiten_all(white[None], centre, root)
    return jax.device_put(mode), score


def chain_states(
    density: Subposterior, white: Float[np.ndarray, "point dim"], centre: Any, root: Any
) -> Any:
    """Return BlackJAX's states of chains at whitened points.

    It calls programs that sampling compiles anyway, so that the first shard waits for no other.
    """
    # imported here: BlackJAX adds to the time of `import vcmc`
    from blackjax.mcmc.hmc import HMCState

    whitening = _whitening(centre, root)
    log_densities, scores = evaluate(density, unwhiten_all(white, centre, root))
    return HMCState(white, log_densities, _in_batches(_whiten_scores, whitening, scores))


def unwhiten_all(
    white: Float[np.ndarray, "point dim"], centre: Any, root: Any
) -> Float[np.ndarray, "point dim"]:
    """Map whitened points to the points that they stand for."""
    return _in_batches(_unwhiten_batch, _whitening(centre, root), white)


def _in_batches(
    function: Callable[[Whitening, Any], Array],
    whitening: Whitening,
    points: Float[np.ndarray, "point dim"],
) -> Float[np.ndarray, "point dim"]:
    """Apply a function to batches of points, which share one program."""
    parts = [np.asarray(function(whitening, batch)) for batch in padded_batches(points)]
    return np.concatenate(parts)[: len(points)]


# By XLA, not by NumPy, whose sums may depend on the number of its threads.
@jax.jit
def _unwhiten_batch(
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
    measure is the variance of their difference from that, along the axis where it is largest.
    Along each axis the points are the quantiles of a normal distribution, in random order.
    """
    quantiles = ndtri((np.arange(BATCH_SIZE) + 0.5) / BATCH_SIZE)
    grid = np.repeat(quantiles[:, None], centre.size, axis=1)
    white = np.random.default_rng(0).permuted(grid, axis=0)
    states = chain_states(density, white, centre, inverse_root(density, centre))
    excess = states.logdensity_grad + white
    return float(np.max(np.var(excess, axis=0))) if np.isfinite(excess).all() else np.inf
