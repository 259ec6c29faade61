r"""Coordinates of a diagnosis, and quantities as linear functions of them.

Draws are whitened by their covariance where there are enough of them, else by the curvature of the
target near their mean (`linalg/frames.py`). In a frame, corrections are diagonal, so that they do
not see correlations between its coordinates. But the variance that a quantity $q$ should have is
known from its gradient $a$ there: $a^\top P^{-1} a$, with the diagonal precision $P$ of the target.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.frames import MAX_FRAME_DIM, FrameOperator
from ..linalg.shrinkage import TINY
from ..linalg.whitening import Whitening
from ..target import Target

DIFFERENCE_SD = 1e-4  # length of the steps that gradients are computed with
NUM_DIRECTIONS = 256  # gradients along so many directions are computed at once
MIN_LINEAR_SHARE = 0.5  # of a quantity's variance; of one that is less linear, gradients say little

Vector = Float[np.ndarray, " dim"]
Draws = Float[np.ndarray, "draw dim"]
Quantities = Callable[[Float[Array, "draw dim"]], Float[np.ndarray, "draw quantity"]]


class Coordinates(NamedTuple):
    """Whitened coordinates of draws.

    Attributes:
        whitening: the coordinates.
        curvature: the diagonal of the target's curvature in them, if they are a frame of it.
    """

    whitening: Whitening
    curvature: Vector | None = None


def coordinates_of(draws: Draws, target: Target) -> Coordinates:
    """Return coordinates in which draws have mean zero and variances one."""
    whitening = Whitening.from_draws(draws)
    if whitening.is_dense or not 1 < draws.shape[1] <= MAX_FRAME_DIM:
        return Coordinates(whitening)
    centre = np.asarray(whitening.centre)
    frame = target.frame_near(centre)
    if frame is None:
        return Coordinates(whitening)
    root = cast(FrameOperator, frame.root)
    sds = root.solve(draws - centre).std(axis=0)
    sds = np.where(sds > 0, sds, 1.0)
    return Coordinates(Whitening(centre, root.scaled(sds)), sds**2)


class Linearization(NamedTuple):
    """Draws and scores along the direction in which each quantity grows.

    Attributes:
        white: the draws, in sds of the target.
        nonlinear_scores: the part of the scores that is not linear in the draws.
        stretches: the factors by which the sds of moved draws are to be multiplied; other than one
            where the correction is diagonal.
    """

    white: Float[np.ndarray, "draw quantity"]
    nonlinear_scores: Float[np.ndarray, "point quantity"]
    stretches: Float[np.ndarray, " quantity"]


def linearize(
    quantities: Quantities,
    frame: Whitening,
    white: Draws,
    sds: Vector,
    nonlinear_scores: Float[np.ndarray, "point dim"],
) -> Linearization:
    """Linearize quantities in a frame, and compare their sds with those that gradients imply.

    Args:
        quantities: the function from points to quantities.
        frame: the frame, in which draws have mean zero and variances one.
        white: the draws in the frame.
        sds: the target's sds in the frame.
        nonlinear_scores: the part of the scores that is not linear in the draws.
    """
    dim = len(sds)
    at_centre = quantities(jnp.asarray(frame.centre)[None])
    squares = np.zeros(at_centre.shape[1])
    along = np.zeros((len(white), at_centre.shape[1]))
    along_scores = np.zeros((len(nonlinear_scores), at_centre.shape[1]))
    for first in range(0, dim, NUM_DIRECTIONS):
        part = slice(first, first + NUM_DIRECTIONS)
        steps = DIFFERENCE_SD * np.eye(NUM_DIRECTIONS, dim, first)
        ends = quantities(jnp.asarray(frame.unwhiten(steps)))
        gradients = ((ends - at_centre) / DIFFERENCE_SD)[: dim - first] * sds[part, None]
        squares += np.sum(gradients**2, axis=0)
        along += white[:, part] @ gradients
        along_scores += nonlinear_scores[:, part] @ gradients
    lengths = np.sqrt(np.maximum(squares, TINY))
    along, along_scores = along / lengths, along_scores / lengths
    moved = quantities(jnp.asarray(frame.unwhiten(white * sds)))
    is_linear = _squared_correlations(moved, along) > MIN_LINEAR_SHARE
    stretches = np.where(is_linear, 1 / np.maximum(along.std(axis=0), TINY), 1.0)
    return Linearization(along, along_scores, stretches)


def _squared_correlations(
    first: Float[np.ndarray, "draw quantity"], second: Float[np.ndarray, "draw quantity"]
) -> Float[np.ndarray, " quantity"]:
    first, second = first - first.mean(axis=0), second - second.mean(axis=0)
    products = np.mean(first * second, axis=0) ** 2
    return products / np.maximum(first.var(axis=0) * second.var(axis=0), TINY)
