r"""Points that fill the unit cube evenly: a Kronecker sequence with a random shift.

$$x_n = (s + n \alpha) \bmod 1, \qquad \alpha_j = \varphi^{-j}, \qquad \varphi^{d + 1} = \varphi + 1.$$

The error of a mean over them falls almost like one over their number (Niederreiter, *Random number
generation and quasi-Monte Carlo methods*, 1992); $\alpha$ generalizes the golden ratio (Roberts,
*The unreasonable effectiveness of quasirandom sequences*, 2018).
"""

import numpy as np
from jaxtyping import Float

NUM_ROOT_STEPS = 50  # of a contraction, to the last digit of φ
MIN_LEVEL = 1e-12  # distance of points from the ends, whose normal quantiles are infinite


def kronecker_points(
    count: int, dim: int, generator: np.random.Generator
) -> Float[np.ndarray, "count dim"]:
    """Return points of the open unit cube.

    >>> points = kronecker_points(1000, 2, np.random.default_rng(0))
    >>> bool(np.abs(points.mean(axis=0) - 0.5).max() < 0.002)
    True
    """
    ratio = 2.0
    for _ in range(NUM_ROOT_STEPS):
        ratio = (1 + ratio) ** (1 / (dim + 1))
    steps = ratio ** -np.arange(1.0, dim + 1)
    points = (generator.uniform(size=dim) + np.arange(1, count + 1)[:, None] * steps) % 1
    return np.clip(points, MIN_LEVEL, 1 - MIN_LEVEL)
