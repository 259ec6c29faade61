r"""Normal draws given that they are positive, exact however unlikely that is.

By inversion, $t = m - \Phi^{-1}(u\,\Phi(m))$ for $N(m, 1)$ given $t > 0$. Far in the tail, where $\Phi(m)$
underflows and the difference cancels, the excess $t$ over $a = -m$ solves
$\log \bar\Phi(a) - \log \bar\Phi(a + t) = -\log u$, which Newton's method does in terms of the Mills
ratio $\bar\Phi / \varphi$, without cancellation.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import erfcx, ndtr, ndtri

SMALLEST_UNIFORM = 2.0**-54  # a uniform draw may be 0, whose quantile is infinite
TAIL = -25.0  # below this mean the tail's formula is used; the other is good down to -37
NEWTON_STEPS = 3  # from the start below, errors are under 1e-12 after three
ROOT_HALF = 0.5**0.5


def positive_normal(
    mean: Float[np.ndarray, " row"],
    uniform: Float[np.ndarray, " row"],
    out: Float[np.ndarray, " row"],
) -> None:
    """Write draws of N(mean, 1) given that they are positive to `out`; `uniform` is used up."""
    np.maximum(uniform, SMALLEST_UNIFORM, out=uniform)
    tail = np.flatnonzero(mean < TAIL) if mean.min() < TAIL else None
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
    """The same for compiled code, in float64 or float32."""
    kind = mean.dtype
    cut = jnp.asarray(TAIL if kind == jnp.float64 else -5.0, kind)  # float32 underflows at -13
    uniform = jnp.maximum(uniform, jnp.finfo(kind).eps / 4)
    shallow = jnp.maximum(mean, cut)
    draw = jnp.maximum(
        shallow
        - jax.scipy.special.ndtri(uniform * jax.scipy.special.erfc(-shallow * ROOT_HALF) / 2),
        0,
    )

    def with_tail(draw: Array) -> Array:
        return jnp.where(
            mean < cut,
            _tail_excess(jnp.maximum(-mean, -cut), -jnp.log(uniform), _mills_jax, jnp),
            draw,
        )

    return jax.lax.cond(jnp.any(mean < cut), with_tail, lambda draw: draw, draw)


def _mills_jax(x: Array) -> Array:
    """Thirty terms of the continued fraction of Abramowitz and Stegun, 26.2.14: enough from 5 on."""
    return 1 / jax.lax.fori_loop(0, 30, lambda k, fraction: x + (30 - k) / fraction, x)


def _tail_excess(start: Any, exponential: Any, mills: Callable[[Any], Any], xp: Any) -> Any:
    """Newton's method on NumPy's or JAX's arrays: `xp` is the one module or the other."""
    excess = 2 * exponential / (start + xp.sqrt(start**2 + 2 * exponential))
    for _ in range(NEWTON_STEPS):
        moved = mills(start + excess)
        gap = excess * (start + excess / 2) + xp.log(mills(start) / moved) - exponential
        excess = xp.maximum(excess - gap * moved, 0)
    return excess
