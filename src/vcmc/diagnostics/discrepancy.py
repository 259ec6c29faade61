r"""The kernel Stein discrepancy: whether draws and scores belong together, in one number.

Liu, Lee and Jordan, *A kernelized Stein discrepancy for goodness-of-fit tests* (2016); Gorham and
Mackey, *Measuring sample quality with kernels* (2017), for the inverse multiquadric kernel
$(1 + \lVert x - y \rVert^2 / d)^{-1/2}$.
"""

import numpy as np
from jaxtyping import Float

NUM_BOOTSTRAPS = 500  # so that a p-value of 0.05 has a standard error of 0.01


def kernel_stein_discrepancy(
    white: Float[np.ndarray, "draw dim"],
    scores: Float[np.ndarray, "draw dim"],
    generator: np.random.Generator,
) -> tuple[float, float]:
    """Return the discrepancy of draws in white coordinates, and its p-value by the wild bootstrap.

    >>> generator = np.random.default_rng(0)
    >>> exact = generator.normal(size=(200, 2))
    >>> for draws in (exact, exact + 0.5):
    ...     print(kernel_stein_discrepancy(draws, -draws, generator)[1] > 0.05)
    True
    False
    """
    kernel = _stein_kernel(white, scores)
    np.fill_diagonal(kernel, 0.0)
    num_pairs = len(white) * (len(white) - 1)
    square = float(kernel.sum() / num_pairs)
    signs = generator.choice([-1.0, 1.0], size=(NUM_BOOTSTRAPS, len(white)))
    bootstrapped = np.sum((signs @ kernel) * signs, axis=1) / num_pairs
    return float(np.sqrt(max(square, 0.0))), float(np.mean(bootstrapped >= square))


def _stein_kernel(
    x: Float[np.ndarray, "draw dim"], scores: Float[np.ndarray, "draw dim"]
) -> Float[np.ndarray, "draw draw"]:
    dim = x.shape[1]
    squares = np.sum(x**2, axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0)
    base = 1 / (1 + distances / dim)
    # As a function of the squared distance: the kernel, and the factors of its derivatives. Its
    # gradients in x and y are -slope (x - y) and slope (x - y).
    kernel, slope, curvature = base**0.5, base**1.5 / dim, 3 * base**2.5 / dim**2
    along = np.sum(scores * x, axis=1)[:, None] - scores @ x.T  # s(x)ᵀ (x - y)
    return np.asarray(
        kernel * (scores @ scores.T)
        + slope * (along + along.T)
        + slope * dim
        - curvature * distances
    )
