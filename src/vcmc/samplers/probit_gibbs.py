r"""Gibbs sampling of probit regression with parameter expansion.

Albert and Chib (1993): with $z_n \sim N(x_n^\top \beta, 1)$ and $y_n = 1[z_n > 0]$, a sweep draws
$z$ given $\beta$, then $\beta \mid z \sim N(V X^\top z, V)$, $V = (X^\top X + \lambda I)^{-1}$.

Between the two, $z$ is rescaled, the parameter expansion of Liu and Wu (1999): with $\beta$
integrated out, $p(z \mid y) \propto e^{-Q(z)/2} 1[\operatorname{sign} z = y]$,
$Q(z) = z^\top z - z^\top X V X^\top z$. Scaling keeps the signs, so by Liu and Sabatti (2000) the
move $z \to g z$ with $g^2 \sim \Gamma(N/2, \text{rate } Q(z)/2)$ leaves $p(z \mid y)$ invariant,
for any precision $\lambda > 0$ of the prior. It costs next to nothing and removes the slow mixing
along $\beta$.

With $L L^\top = X^\top X + \lambda I$ and $\gamma = L^\top \beta$,
$\gamma \mid z \sim N(L^{-1} X^\top z, I)$ and $Q(z) = |z|^2 - |L^{-1} X^\top z|^2$.

A shard that fits in cache is sampled by a compiled program on whitened rows $X L^{-\top}$. Larger
shards are read in ranges: both products with a range are computed while it is in cache, so that
memory is read once per sweep, not twice.
"""

import copy
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.random import Generator
from scipy.linalg import solve_triangular

from ..density import Subposterior
from ..space import Point
from .base import BLOCK, AbstractSampler
from .ranges import cut, generators, on_each
from .truncated_normal import positive_normal, positive_normal_jax

CACHE_BYTES = 6_000_000  # of rows that stay in a core's caches, even if all cores are busy
RANGE_BYTES = 4_800_000  # of rows in a range: two, one per core, fit into the shared cache
RANGE_ROWS = (512, 8192)  # above 500, NumPy releases the lock; vectors of the most fit into L2


class ProbitGibbs(AbstractSampler):
    """Gibbs sampler of `vcmc.models.Probit`.

    Args:
        num_warmup: sweeps to discard.
        num_chains: chains per shard.
        single: store the covariates in 32 bits: about half the time, the same posterior.
    """

    takes_powers: ClassVar[bool] = False

    num_warmup: int = 100
    num_chains: int = 1
    single: bool = False

    def setup(self, density: Subposterior) -> "Cached | Streamed":
        model: Any = density.model
        if model.exact_sampler is not ProbitGibbs:
            raise TypeError(
                f"ProbitGibbs needs a vcmc.models.Probit; got {model!r}. "
                "Use vcmc.samplers.NUTS() for other models."
            )
        precision = float(density.prior_power) / model.prior_scale**2
        x = np.asarray(density.shard.rows["x"], float)
        sign = np.where(np.asarray(density.shard.rows["y"]) > 0, 1.0, -1.0)
        weights = np.asarray(density.shard.weights)
        dtype = np.float32 if self.single else np.float64
        if x.shape[0] * x.shape[1] * dtype().itemsize <= CACHE_BYTES:
            return Cached.prepare(x, sign, weights, precision, dtype)
        is_row = weights > 0
        return Streamed.prepare(x[is_row], sign[is_row], precision, dtype)

    def init(self, setup: "Cached | Streamed", start: Point, key: Array) -> Any:
        return setup.init(np.asarray(start), key)

    def advance(
        self, setup: "Cached | Streamed", state: Any, key: Array, num_steps: int
    ) -> tuple[Any, Float[Array | np.ndarray, "step dim"], dict[str, Array]]:
        state, draws = setup.advance(state, key, num_steps)
        return state, draws, {}


def _whitener(x: np.ndarray, precision: float) -> Float[np.ndarray, "dim dim"]:
    """Return the inverse of the lower Cholesky factor of X'X + precision."""
    gram = x.T @ x + precision * np.eye(x.shape[1])
    return solve_triangular(np.linalg.cholesky(gram), np.eye(x.shape[1]), lower=True)


class CachedState(NamedTuple):
    """The state between sweeps: their number, and the whitened coefficients."""

    step: Int[Array, ""]
    white: Float[Array, " dim"]


class Cached(NamedTuple):
    """A shard in cache: whitened rows times the sign of their label, as two halves.

    XLA runs independent products in parallel, but does not split one product among threads: so two
    halves use two cores for one shard.
    """

    halves: tuple[Array, Array]
    weights: tuple[Array, Array]
    unwhiten: Array

    @classmethod
    def prepare(
        cls, x: np.ndarray, sign: np.ndarray, weights: np.ndarray, precision: float, dtype: Any
    ) -> "Cached":
        """Whiten the rows; padded rows become zeros."""
        x = weights[:, None] * x
        unwhiten = _whitener(x, precision)
        white = sign[:, None] * (x @ unwhiten.T)
        middle = len(x) // 2
        halves = jnp.asarray(white[:middle], dtype), jnp.asarray(white[middle:], dtype)
        weight_halves = jnp.asarray(weights[:middle], dtype), jnp.asarray(weights[middle:], dtype)
        return cls(halves, weight_halves, jnp.asarray(unwhiten, dtype))

    def init(self, start: np.ndarray, key: Array) -> CachedState:
        """Return the initial state."""
        del key
        white = solve_triangular(np.asarray(self.unwhiten, float).T, start, lower=False)
        return CachedState(jnp.asarray(0), jnp.asarray(white, self.unwhiten.dtype))

    def advance(
        self, state: CachedState, key: Array, num_steps: int
    ) -> tuple[CachedState, Float[Array, "step dim"]]:
        """Run sweeps in a compiled program."""
        first = int(state.step) % BLOCK
        state, draws = _sweeps(self, state, key, jnp.asarray(num_steps))
        return state, draws[first : first + num_steps].astype(float)


@jax.jit
def _sweeps(
    shard: Cached, state: CachedState, key: Array, num_steps: Int[Array, ""]
) -> tuple[CachedState, Float[Array, "block dim"]]:
    dtype, dim = shard.unwhiten.dtype, shard.unwhiten.shape[0]
    shape = sum(jnp.sum(weights) for weights in shard.weights) / 2

    def half_sweep(white: Array, half: Array, weights: Array, key: Array) -> tuple[Array, Array]:
        uniform = jax.random.uniform(key, weights.shape, dtype)
        latent = weights * positive_normal_jax(half @ white, uniform)
        return latent @ half, latent @ latent

    # Random numbers of a whole block are drawn at once: one by one they would cost a tenth of a
    # sweep. The block starts at a multiple of BLOCK, wherever a call starts, as the last bit of a
    # number depends on its position in the array.
    first = state.step % BLOCK
    keys = jax.vmap(
        lambda index: jax.random.split(jax.random.fold_in(key, state.step - first + index), 4)
    )(jnp.arange(BLOCK))
    gammas = jax.vmap(lambda key: jax.random.gamma(key, shape, dtype=dtype))(keys[:, 2])
    noise = jax.vmap(lambda key: jax.random.normal(key, (dim,), dtype))(keys[:, 3])

    def sweep(index: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
        white, draws = carry
        (sum_1, square_1), (sum_2, square_2) = (
            half_sweep(white, *half)
            for half in zip(shard.halves, shard.weights, keys[index, :2], strict=True)
        )
        mean = sum_1 + sum_2
        scale = jnp.sqrt(2 * gammas[index] / (square_1 + square_2 - mean @ mean))
        white = scale * mean + noise[index]
        return white, draws.at[index].set(white)

    carry = (state.white, jnp.zeros((BLOCK, dim), dtype))
    white, draws = jax.lax.fori_loop(first, first + num_steps, sweep, carry)
    return CachedState(state.step + num_steps, white), draws @ shard.unwhiten


class StreamedState(NamedTuple):
    """The state between sweeps: the coefficients, and all random generators."""

    beta: Float[np.ndarray, " dim"]
    rng: Generator
    range_rngs: list[Generator]


class Streamed(NamedTuple):
    """A shard too large for cache, read in ranges on all cores, once per sweep.

    `np.vecdot` and `np.einsum` release Python's lock and use no threads of their own.
    """

    x: Float[np.ndarray, "row dim"]
    sign: Float[np.ndarray, " row"]
    whiten: Float[np.ndarray, "dim dim"]
    whiten_t: Float[np.ndarray, "dim dim"]

    @classmethod
    def prepare(cls, x: np.ndarray, sign: np.ndarray, precision: float, dtype: Any) -> "Streamed":
        """Compute the Cholesky factor."""
        whiten = _whitener(x, precision)
        x = np.ascontiguousarray(x, dtype)
        return cls(
            x, sign.astype(dtype), np.ascontiguousarray(whiten), np.ascontiguousarray(whiten.T)
        )

    def ranges(self) -> list[slice]:
        """Return the ranges of rows."""
        return cut(len(self.x), int(np.clip(RANGE_BYTES // self.x[0].nbytes, *RANGE_ROWS)))

    def init(self, start: np.ndarray, key: Array) -> StreamedState:
        """Return the initial state."""
        rng, *range_rngs = generators(key, 1 + len(self.ranges()))
        return StreamedState(start.astype(float), rng, range_rngs)

    def advance(
        self, state: StreamedState, key: Array, num_steps: int
    ) -> tuple[StreamedState, Float[np.ndarray, "step dim"]]:
        """Run sweeps in NumPy."""
        del key
        beta, rng, range_rngs = copy.deepcopy(state)
        parts = [
            Range(self, rows, range_rng)
            for rows, range_rng in zip(self.ranges(), range_rngs, strict=True)
        ]
        draws = np.empty((num_steps, self.x.shape[1]))
        for step in range(num_steps):
            on_each(partial(Range.draw, beta=beta.astype(self.x.dtype, copy=False)), parts)
            white = np.vecdot(
                self.whiten, np.sum([part.sum for part in parts], axis=0, dtype=float)
            )
            square = sum(part.square for part in parts) - white @ white
            scale = np.sqrt(2 * rng.standard_gamma(len(self.x) / 2) / square)
            noise = rng.standard_normal(len(white))
            beta = draws[step] = np.vecdot(self.whiten_t, scale * white + noise)
        return StreamedState(beta, rng, range_rngs), draws


class Range:
    """One range of rows, its generator, and buffers for its latent values."""

    def __init__(self, shard: Streamed, rows: slice, rng: Generator):
        self.x, self.sign, self.rng = shard.x[rows], shard.sign[rows], rng
        self.mean, self.uniform, self.latent = (np.empty(rows.stop - rows.start) for _ in range(3))
        self.sum, self.square = np.zeros(shard.x.shape[1]), 0.0

    def draw(self, beta: Float[np.ndarray, " dim"]) -> None:
        """Draw the latent values of these rows, and reduce them to X'z and z'z."""
        np.vecdot(self.x, beta, out=self.latent, casting="same_kind")
        np.multiply(self.latent, self.sign, out=self.mean)
        self.rng.random(out=self.uniform)
        positive_normal(self.mean, self.uniform, out=self.latent)
        self.square = float(np.vecdot(self.latent, self.latent))
        np.multiply(self.latent, self.sign, out=self.latent)
        self.sum = np.einsum("nd,n->d", self.x, self.latent.astype(self.x.dtype, copy=False))
