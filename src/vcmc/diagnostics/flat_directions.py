r"""Directions along which a shard's log density is linear, so that its posterior is improper.

They are sought where the prior is flat or linear, $H_{\text{prior}} v = 0$, as an improper prior is
in some directions, and among these where the rows add no curvature, $H_k v = 0$. Collinear columns
and fewer rows than parameters are the usual causes. A Hessian may also vanish by chance, or almost
everywhere, as that of a Laplace prior does. So a direction counts only if the score along it is the
same on a long line.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..density import Subposterior, evaluate, evaluate_prior, hessian_products
from ..linalg.operators import MAX_DENSE_DIM
from ..model import Model

MAX_RELATIVE_CURVATURE = 1e-9  # of a candidate, in coordinates with curvature one
MIN_RELATIVE_SCALE = 1e-6  # of a row of a Hessian that is scaled up; smaller ones may be rounding
PROBE_DISTANCE = 3.0  # of points, in real coordinates, at which scores of the prior are compared
DIFFERENCE_STEP = 1e-3  # in real coordinates: exact for a normal prior, of whatever scale
MIN_CLEAR_CURVATURE = 1e-3  # least to largest, of coordinates scaled to curvature one
MAX_ROUNDING = 1e-13  # of a score, as a share of the largest
MAX_PRODUCT_ROUNDING = 1e-11  # of an element of a product with a Hessian, likewise
MAX_SCORE_CHANGE = 1e-11  # along a flat direction, by rounding, as a share of the score's terms
LINE_STEPS = (-30.0, -1.0, 1.0, 30.0)  # where scores are compared, in sds given other coordinates
MIN_FIRST_ROWS, FIRST_ROWS_PER_COORDINATE = 200, 4  # rows whose curvature is computed first
MAX_CANDIDATES = 8  # directions to compare scores along: one batch of points with LINE_STEPS

Points = Float[np.ndarray, "point dim"]
Directions = Float[np.ndarray, "direction dim"]


class FlatPrior(NamedTuple):
    """Where a log prior is flat or linear.

    Attributes:
        coordinates: coordinates in which its score is constant.
        directions: a basis of the directions in which it has no curvature.
    """

    coordinates: Bool[np.ndarray, " dim"]
    directions: Directions


def flat_prior(model: Model, points: Points) -> FlatPrior:
    """Find where a log prior is flat, or linear, by its scores and Hessians at some points.

    Models of many coordinates, whose Hessians are too large, have no basis of directions.
    """
    dim = model.space.dim
    spread = np.concatenate([points, points[:1] - PROBE_DISTANCE, points[:1] + PROBE_DISTANCE])
    scores = evaluate_prior(model, spread)[1]
    scores = scores[np.isfinite(scores).all(axis=1)]
    is_constant = np.ptp(scores, axis=0) <= MAX_ROUNDING * np.abs(scores).max(axis=0)
    if dim > MAX_DENSE_DIM or _is_curved(model, points[0]):
        return FlatPrior(is_constant, np.empty((0, dim)))
    hessians = np.asarray(_prior_hessians(model, spread))
    hessians = hessians[np.isfinite(hessians).all(axis=(1, 2))]
    directions = null_vectors(hessians, np.eye(dim))
    # of single coordinates the scores tell, e.g. that a Laplace prior is not linear
    is_single = (directions != 0).sum(axis=1) == 1
    is_kept = ~is_single | is_constant[np.abs(directions).argmax(axis=1)]
    return FlatPrior(is_constant, directions[is_kept])


def _is_curved(model: Model, point: Float[np.ndarray, " dim"]) -> bool:
    """Return whether a log prior is clearly curved in all directions, by differences of scores.

    Most are. Only of others exact Hessians are computed, whose program takes longer to compile.
    """
    steps = DIFFERENCE_STEP * np.eye(len(point))
    forward, backward = np.split(
        evaluate_prior(model, np.concatenate([point + steps, point - steps]))[1], 2
    )
    hessian = (forward - backward) / (2 * DIFFERENCE_STEP)
    scales = np.sqrt(np.abs(np.diag(hessian)))
    if not (np.isfinite(hessian).all() and scales.all()):
        return False
    singular = np.linalg.svd(hessian / np.outer(scales, scales), compute_uv=False)
    return bool(singular[-1] > MIN_CLEAR_CURVATURE * singular[0])


@partial(jax.jit, static_argnums=0)
def _prior_hessians(
    model: Model, points: Float[Array, "point dim"]
) -> Float[Array, "point dim dim"]:
    return jax.vmap(jax.jacfwd(jax.grad(model.log_prior_at)))(points)


def flat_direction(
    density: Subposterior, points: Points, basis: Directions
) -> Float[np.ndarray, " dim"] | None:
    """Return a direction in the span of a basis in which a shard's log density is linear, if any.

    Args:
        density: the log density of the shard.
        points: where its curvature is computed.
        basis: the directions in which its prior has no curvature.
    """
    candidates = basis
    for part in (_first_rows(density), density):  # a few rows determine most models already
        for point in points:
            products = _products(part, point, candidates)[None]
            if np.isfinite(products).all():
                candidates = null_vectors(products, candidates)
            if not len(candidates):
                return None
    for direction in candidates[:MAX_CANDIDATES]:
        if any(_is_linear(density, point, direction) for point in points):
            return direction
    return None


def _first_rows(density: Subposterior) -> Subposterior:
    """Return the density of a shard's first rows: some for every coordinate."""
    count = max(MIN_FIRST_ROWS, FIRST_ROWS_PER_COORDINATE * density.model.space.dim)
    shard = jax.tree.map(lambda leaf: leaf[:count], density.shard)
    return Subposterior(density.model, shard, density.prior_power)


def _products(
    density: Subposterior, point: np.ndarray, basis: Directions
) -> Float[np.ndarray, "dim direction"]:
    """Return the products of a shard's Hessian with directions, rounding errors set to zero.

    Products with the same numbers in random signs, which do not cancel, tell what rounding is.
    """

    def multiply(directions: Directions) -> Float[np.ndarray, "dim direction"]:
        return np.asarray(hessian_products(density, point, directions, is_exact=True)).T

    products = multiply(basis)
    size = np.abs(products).max(axis=0)
    if (np.count_nonzero(basis, axis=1) > 1).any():  # products with single coordinates are exact
        signs = np.random.default_rng(0).choice([-1.0, 1.0], basis.shape)
        size = np.maximum(size, np.abs(multiply(signs * basis)).max(axis=0))
    return np.where(np.abs(products) <= MAX_PRODUCT_ROUNDING * size, 0.0, products)


def _is_linear(density: Subposterior, point: np.ndarray, direction: np.ndarray) -> bool:
    """Return whether the score along a line does not change."""
    line = point + np.array([0.0, *LINE_STEPS])[:, None] * direction
    terms = np.asarray(evaluate(density, jnp.asarray(line))[1]) * direction
    if not np.isfinite(terms).all():
        return False
    slopes = terms.sum(axis=1)
    size = np.abs(terms).sum(axis=1).max()
    return bool(np.ptp(slopes) <= MAX_SCORE_CHANGE * size)


def null_vectors(
    products: Float[np.ndarray, "point dim direction"], basis: Directions
) -> Directions:
    r"""Return a basis of the combinations $v$ of directions with $H v = 0$ for all Hessians.

    Coordinates may have very different units, so directions are scaled to curvature one before
    singular values are compared.

    Args:
        products: products of Hessians with the directions.
        basis: the directions.
    """
    dim = basis.shape[1]
    if not len(products):
        return np.empty((0, dim))
    is_zero = ~products.any(axis=(0, 1))
    null, basis, products = basis[is_zero], basis[~is_zero], products[:, :, ~is_zero]
    if not len(basis):
        return null
    curvatures = np.abs(np.einsum("pdk,kd->pk", products, basis)).max(axis=0)
    largest = np.abs(products).max(axis=(0, 1))
    scales = np.where(curvatures > 0, np.sqrt(curvatures), largest)
    scales = np.where(scales > 0, scales, 1.0)
    scaled = products.reshape(-1, len(basis)) / scales
    rows = np.abs(scaled).max(axis=1, keepdims=True)
    scaled /= np.maximum(rows, max(MIN_RELATIVE_SCALE * rows.max(), np.finfo(float).tiny))
    _, singular, vectors = np.linalg.svd(scaled, full_matrices=False)
    is_null = singular <= MAX_RELATIVE_CURVATURE * max(1.0, singular[0])
    return np.concatenate([null, (vectors[is_null] / scales) @ basis])


def describe_direction(names: np.ndarray, direction: np.ndarray, max_names: int) -> str:
    """Return the main coordinates of a direction with their shares, the largest being one.

    >>> describe_direction(np.array(["a", "b", "c"]), np.array([0.0, -2.0, 1.0]), 5)
    '1 b - 0.5 c'
    """
    sizes = np.abs(direction) / np.abs(direction).max()
    order = np.argsort(-sizes.round(6), kind="stable")
    shares = direction[order] / direction[order[0]]
    main = [(share, names[index]) for share, index in zip(shares, order, strict=True)]
    main = [(share, name) for share, name in main if abs(share) > 0.01]
    terms = [f"{'-' if share < 0 else '+'} {abs(share):.2g} {name}" for share, name in main]
    text = " ".join(terms[:max_names]).removeprefix("+ ")
    return text + (" …" if len(terms) > max_names else "")
