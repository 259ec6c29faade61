"""Time a Gibbs sweep of probit regression, 100 000 × 300, against the passes over X that it needs.

Serial (one shard): X is read range by range, once per sweep. Twenty shards, one after the other,
with many sweeps each: a shard stays in cache.

Run: .venv/bin/python benchmarks/probit_sweep.py    (about a minute)
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from timing import in_turns, say

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import ProbitGibbs
from vcmc.samplers.ranges import generators
from vcmc.samplers.truncated_normal import positive_normal

NUM_ROWS, DIM, NUM_SHARDS, SWEEPS, REPEATS = 100_000, 300, 20, 100, 9


def two_passes(x: np.ndarray, beta: np.ndarray, z: np.ndarray) -> dict[str, Callable[[], None]]:
    """Return X @ β and Xᵀ @ z in three ways: BLAS on either layout, and two threads of our own."""
    fortran = np.asfortranarray(x)
    pool = ThreadPoolExecutor(2)
    halves = [slice(0, len(x) // 2), slice(len(x) // 2, None)]
    out = np.empty(len(x))

    def blas(matrix: np.ndarray) -> Callable[[], None]:
        def run() -> None:
            np.dot(matrix, beta, out=out)
            np.dot(z, matrix)

        return run

    def threads() -> None:
        list(pool.map(lambda half: np.vecdot(x[half], beta, out=out[half]), halves))
        list(pool.map(lambda half: np.einsum("nd,n->d", x[half], z[half]), halves))

    return {
        "two passes, BLAS, rows contiguous": blas(x),
        "two passes, BLAS, columns contiguous": blas(fortran),
        "two passes, two threads, rows contiguous": threads,
    }


def sweeps(
    model: vcmc.Model, rows: dict, num_shards: int, sampler: ProbitGibbs
) -> Callable[[], None]:
    """Return a function that runs `SWEEPS` sweeps of every shard, one shard after the other."""
    partition = vcmc.split(rows, num_shards)
    power = jnp.asarray(1 / num_shards)
    start, key = jnp.zeros(DIM), jax.random.key(0)
    setups = [
        sampler.setup(Subposterior(model, partition.load(k), power)) for k in range(num_shards)
    ]
    states = [sampler.init(setup, start, key) for setup in setups]

    def run() -> None:
        for k, setup in enumerate(setups):
            states[k], points, _ = sampler.advance(setup, states[k], key, SWEEPS)
            np.asarray(points)

    return run


def main() -> None:
    model = vcmc.models.Probit(DIM)
    rows = model.simulate(
        0, NUM_ROWS, {"beta": np.random.default_rng(1).normal(size=DIM) / DIM**0.5}
    ).rows
    z = np.random.default_rng(2).normal(size=NUM_ROWS)
    beta = np.random.default_rng(3).normal(size=DIM) / DIM**0.5
    passes = two_passes(np.ascontiguousarray(rows["x"]), beta, z)
    (generator,) = generators(jax.random.key(0), 1)
    mean, uniform, latent = rows["x"] @ beta, np.empty(NUM_ROWS), np.empty(NUM_ROWS)

    def truncated() -> None:
        generator.random(out=uniform)
        positive_normal(mean, uniform, latent)

    functions = {
        **passes,
        "serial": sweeps(model, rows, 1, ProbitGibbs()),
        "serial, float32": sweeps(model, rows, 1, ProbitGibbs(single=True)),
        f"{NUM_SHARDS} shards": sweeps(model, rows, NUM_SHARDS, ProbitGibbs()),
        f"{NUM_SHARDS} shards, float32": sweeps(model, rows, NUM_SHARDS, ProbitGibbs(single=True)),
        "truncated normals alone, one thread": truncated,
    }
    seconds = in_turns(functions, REPEATS)
    for name in list(seconds)[3:7]:
        seconds[name] /= SWEEPS
    floor = min(seconds[name] for name in passes)
    say(f"{NUM_ROWS} rows × {DIM}, float64 unless noted, both cores, median of {REPEATS}, in turns")
    say(f"{'':45s} {'ms':>7s} {'/ two passes':>13s} {'/ serial':>9s}")
    for name, value in seconds.items():
        say(f"{name:45s} {1e3 * value:7.2f} {value / floor:13.2f} {value / seconds['serial']:9.2f}")


if __name__ == "__main__":
    main()
