r"""Whether a prior falls off far away, so that it can be a probability density.

The prior of a shard is $\pi(\theta)^a \, |J(u)|^b$, in unconstrained coordinates $u$. With $a = b$
it is a power of a proper density. With $a < b$ that of a heavy-tailed parameter may rise without
end: the fourth root of a half-Cauchy, times the Jacobian of its logarithm, grows like $e^{u / 2}$.
"""

import numpy as np
from jaxtyping import Bool, Float

from ..density import log_prior_parts
from ..model import Model

# Distances in real coordinates at which a log prior is compared with that near the draws. A proper
# prior falls to minus infinity; powers and exponentials overflow at different distances.
FAR = (30.0, 300.0, 1e4, 1e8, 1e12)
MIN_FALL = 1.0  # nats, at the largest distance with a finite value


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
