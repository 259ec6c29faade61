r"""The kernel Stein discrepancy: whether draws and scores belong together, in one number.

Liu, Lee and Jordan, *A kernelized Stein discrepancy for goodness-of-fit tests* (2016); Gorham and Mackey, *Measuring sample
quality with kernels* (2017), for the inverse multiquadric kernel $(1 + \lVert x - y \rVert^2 / d)^{-1/2}$.
"""

import numpy as np
from jaxtyping import Float

NUM_SIGNS = 500


def kernel_stein_discrepancy(
    white: Float[np.ndarray, "draw dim"],
    scores: Float[np.ndarray, "draw dim"],
    generator: np.random.Generator,
) -> tuple[float, float]:
    """The discrepancy of draws in white coordinates, and the share of random signs that give a larger one.

    >>> generator = np.random.default_rng(0)
    >>> right = generator.normal(size=(200, 2))
    >>> [kernel_stein_discrepancy(draws, -draws, generator)[1] > 0.05 for draws in (right, right + 0.5)]
    [True, False]
    """
    kernel = _stein_kernel(white, scores)
    np.fill_diagonal(kernel, 0.0)
    pairs = len(white) * (len(white) - 1)
    square = float(kernel.sum() / pairs)
    signs = generator.choice([-1.0, 1.0], size=(NUM_SIGNS, len(white)))
    others = np.sum((signs @ kernel) * signs, axis=1) / pairs
    return float(np.sqrt(max(square, 0.0))), float(np.mean(others >= square))


def _stein_kernel(
    x: Float[np.ndarray, "draw dim"], scores: Float[np.ndarray, "draw dim"]
) -> Float[np.ndarray, "draw draw"]:
    dim = x.shape[1]
    squares = np.sum(x**2, axis=1)
    distances = np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0)
    base = 1 / (1 + distances / dim)
    kernel, slope, hessian_products = base**0.5, base**1.5 / dim, 3 * base**2.5 / dim**2
    # gradients of the kernel are -+ slope (x - y)
    inside = scores @ x.T
    own = np.sum(scores * x, axis=1)
    along = own[:, None] - inside  # s(x)ᵀ (x - y)
    return np.asarray(
        kernel * (scores @ scores.T)
        + slope * (along + along.T)
        + slope * dim
        - hessian_products * distances
    )
