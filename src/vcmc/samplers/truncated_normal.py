r"""Draws of a normal distribution truncated to positive values, exact far into the tail.

By inversion, $t = m - \Phi^{-1}(u\,\Phi(m))$ for $N(m, 1)$ given $t > 0$. Far in the tail, where
$\Phi(m)$ underflows and the difference cancels, the excess $t$ over $a = -m$ solves
$\log \bar\Phi(a) - \log \bar\Phi(a + t) = -\log u$, by Newton's method in terms of the Mills ratio
$\bar\Phi / \varphi$, without cancellation.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import erfcx, ndtr, ndtri

MIN_UNIFORM = 2.0**-54  # a uniform draw may be 0, whose quantile is infinite
TAIL_MEAN = -25.0  # below it the tail formula is used; inversion is accurate down to -37
TAIL_MEAN_FLOAT32 = -5.0  # float32 underflows at -13
NUM_NEWTON_STEPS = 3  # errors are then below 1e-12
ROOT_HALF = 0.5**0.5


def positive_normal(
    mean: Float[np.ndarray, " row"],
    uniform: Float[np.ndarray, " row"],
    out: Float[np.ndarray, " row"],
) -> None:
    """Write draws of N(mean, 1), truncated to positive values, to `out`; overwrite `uniform`."""
    np.maximum(uniform, MIN_UNIFORM, out=uniform)
    tail = np.flatnonzero(mean < TAIL_MEAN) if mean.min() < TAIL_MEAN else None
    if tail is not None:
        excess = _tail_excess(-mean[tail], -np.log(uniform[tail]), _mills, np)
    ndtr(mean, out=out)
    np.multiply(out, uniform, out=out)
    ndtri(out, out=out)
    np.subtract(mean, out, out=out)
    np.maximum(out, 0.0, out=out)  # rounding, where the uniform is within 1e-12 of 1
    if tail is not None:
        out[tail] = excess


def _mills(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.pi / 2) * erfcx(x * ROOT_HALF)


def positive_normal_jax(
    mean: Float[Array, " row"], uniform: Float[Array, " row"]
) -> Float[Array, " row"]:
    """Return draws of N(mean, 1), truncated to positive values, in float64 or float32."""
    dtype = mean.dtype
    tail_mean = jnp.asarray(TAIL_MEAN if dtype == jnp.float64 else TAIL_MEAN_FLOAT32, dtype)
    uniform = jnp.maximum(uniform, jnp.finfo(dtype).eps / 4)
    body_mean = jnp.maximum(mean, tail_mean)
    probability = uniform * jax.scipy.special.erfc(-body_mean * ROOT_HALF) / 2
    draw = jnp.maximum(body_mean - jax.scipy.special.ndtri(probability), 0)

    def with_tail(draw: Array) -> Array:
        excess = _tail_excess(jnp.maximum(-mean, -tail_mean), -jnp.log(uniform), _mills_jax, jnp)
        return jnp.where(mean < tail_mean, excess, draw)

    return jax.lax.cond(jnp.any(mean < tail_mean), with_tail, lambda draw: draw, draw)


def _mills_jax(x: Array) -> Array:
    """Return the Mills ratio for x >= 5: thirty terms of Abramowitz and Stegun's 26.2.14."""
    return 1 / jax.lax.fori_loop(0, 30, lambda k, fraction: x + (30 - k) / fraction, x)


def _tail_excess(start: Any, exponential: Any, mills: Callable[[Any], Any], xp: Any) -> Any:
    """Solve for the excess by Newton's method; `xp` is NumPy or jax.numpy."""
    excess = 2 * exponential / (start + xp.sqrt(start**2 + 2 * exponential))
    for _ in range(NUM_NEWTON_STEPS):
        ratio = mills(start + excess)
        residual = excess * (start + excess / 2) + xp.log(mills(start) / ratio) - exponential
        excess = xp.maximum(excess - residual * ratio, 0)
    return excess
