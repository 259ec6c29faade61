r"""Whether a prior falls off far away, so that it can be a probability density.

The prior of a shard is $\pi(\theta)^a \, |J(u)|^b$, in unconstrained coordinates $u$. With $a = b$
it is a power of a proper density. With $a < b$ that of a heavy-tailed parameter may rise without
end: the fourth root of a half-Cauchy, times the Jacobian of its logarithm, grows like $e^{u / 2}$.

A prior on differences alone is flat along a sum: along a direction $v$ in which its score does not
change, $v^T (s(u) - s(u')) = 0$ for all $u$ and $u'$, it is flat or linear.
"""

import numpy as np
from jaxtyping import Bool, Float

from ..density import evaluate_prior, log_prior_parts
from ..linalg.operators import MAX_DENSE_DIM
from ..model import Model

# Distances in real coordinates at which a log prior is compared with that near the draws. A proper
# prior falls to minus infinity; powers and exponentials overflow at different distances.
FAR = (30.0, 300.0, 1e4, 1e8, 1e12)
MIN_FALL = 1.0  # nats, at the largest distance with a finite value
# Distances at which scores are compared: far enough to be on both sides of a Laplace prior's kink.
SCORE_DISTANCES = (1.0, 3.0, 10.0, 100.0)
NUM_MORE_POINTS = 10  # than coordinates, at each of these distances
MAX_RELATIVE_CHANGE = 1e-10  # of a constant score, by rounding


def falls_off(
    model: Model,
    powers: tuple[float, float],
    centre: Float[np.ndarray, " dim"],
    directions: Float[np.ndarray, "direction dim"],
) -> Bool[np.ndarray, " direction"]:
    """Return whether a prior falls off along directions, both ways, from a point.

    `powers` are those of the prior and of the Jacobian.
    """
    signed = np.concatenate([directions, -directions])
    steps = np.array([0.0, *FAR])
    points = centre + steps[:, None, None] * signed
    with np.errstate(all="ignore"):
        parts = log_prior_parts(model, points.reshape(-1, model.space.dim))
        values = (parts @ np.array(powers)).reshape(len(steps), -1)
    # the value at the largest distance at which it is a number
    numbers = np.arange(len(steps))[:, None]
    last = np.max(np.where(np.isfinite(values), numbers, 0), axis=0)
    falls = values[0] - np.take_along_axis(values, last[None], axis=0)[0]
    is_flat = (last > 0) & (falls < MIN_FALL)
    return ~is_flat.reshape(2, -1).any(axis=0)


def linear_directions(
    model: Model, centre: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, "direction dim"]:
    """Return a basis of the directions in which a log prior looks flat or linear, if any.

    The largest element of each is one. None are sought in many coordinates.
    """
    dim = model.space.dim
    if dim > MAX_DENSE_DIM:
        return np.empty((0, dim))
    generator = np.random.default_rng(0)
    distances = np.repeat(SCORE_DISTANCES, dim + NUM_MORE_POINTS)
    steps = distances[:, None] * generator.normal(size=(len(distances), dim))
    with np.errstate(all="ignore"):
        scores = evaluate_prior(model, centre + np.concatenate([np.zeros((1, dim)), steps]))[1]
    changes = scores[1:] - scores[0]
    changes = changes[np.isfinite(changes).all(axis=1)]
    if len(changes) < dim:
        return np.empty((0, dim))
    for axis in (1, 0):  # points and coordinates may have scores of very different sizes
        sizes = np.abs(changes).max(axis=axis, keepdims=True)
        scales = np.where(sizes > 0, sizes, 1.0)
        changes = changes / scales
    _, singular, vectors = np.linalg.svd(changes, full_matrices=False)
    directions = vectors[singular <= MAX_RELATIVE_CHANGE * singular[0]] / scales
    return directions / np.abs(directions).max(axis=1, keepdims=True)
