"""Compare the rate of the sampling stage with the machine's matrix-product rate.

For the two large regressions of the arena (logistic 10⁶ × 50, probit 10⁵ × 300), one run measures
the rate of matrix products (float64, 1000 × 1000, one thread per core, on all cores) and the rate
of the sampling stage: floating-point operations of its gradients and Hessian products over
seconds. Each takes 4 operations per number of the design matrix.

The rest is split by measuring single parts on one shard in the same run: the bare pair of matrix
products of a batch of gradients, the whole gradients, and the calls of the sampler.

Run: .venv/bin/python benchmarks/sampling_limit.py [logistic] [probit] [share of the rows, e.g. 0.2]
"""

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from timing import say

import vcmc
from vcmc.density import BATCH_SIZE, evaluate, hessian_products
from vcmc.executors import Local
from vcmc.samplers import HMC
from vcmc.samplers.start import common_start, search_starts
from vcmc.target import Target

sys.path.insert(0, str(Path(__file__).parent / "arena"))
import problems

NUM_SHARDS = 20
NUM_DRAWS = 64
NUM_CORES = len(os.sched_getaffinity(0))


def on_all_cores(work: Callable[[int], None], count: int) -> float:
    """Return the seconds of `count` calls, in one thread per core."""
    with ThreadPoolExecutor(NUM_CORES) as pool:
        begin = time.perf_counter()
        list(pool.map(work, range(count)))
        return time.perf_counter() - begin


def product_rate() -> float:
    """Return the operations per second of matrix products."""
    matrix = np.random.default_rng(0).normal(size=(1000, 1000))
    on_all_cores(lambda _: matrix @ matrix, NUM_CORES)
    return 40 * 2e9 / on_all_cores(lambda _: matrix @ matrix, 40)


def sampled(target: Target, start: jax.Array, sampler: HMC) -> tuple[float, int]:
    """Return the seconds of sampling all shards, and the gradients of a shard on average."""
    gradients = []

    def chain(shard: int) -> None:
        density, key = target.shard_cache.density(shard), jax.random.key(shard)
        state, step = sampler.init(density, start, key), 0
        while step < sampler.num_warmup + NUM_DRAWS:
            num_steps = min(vcmc.samplers.BLOCK, sampler.num_warmup + NUM_DRAWS - step)
            state, _, stats = sampler.advance(density, state, key, num_steps)
            gradients.append(float(np.sum(stats["n_steps"])))
            step += num_steps

    seconds = on_all_cores(chain, target.num_shards)
    # and the walkers' first gradients
    return seconds, round(sum(gradients) / target.num_shards) + sampler.num_walkers


def report(problem: problems.Problem) -> None:
    model = vcmc.from_numpyro(problem.model, problem.rows)
    target = Target.fitted(model, vcmc.split(problem.rows, NUM_SHARDS), Local())
    start = common_start(target, search_starts(target.pilot, jax.random.key(0)))
    sampler, dim, pilot = HMC(), start.size, target.pilot
    sampler.prepare(pilot, start)
    limit = product_rate()
    seconds, num_gradients = sampled(target, start, sampler)
    values = problem.num_rows * dim
    operations = 4.0 * values * (num_gradients + dim)
    rate = operations / seconds
    say(
        f"{problem.name}: {problem.num_rows} x {dim}, K = {NUM_SHARDS}: {num_gradients} gradients "
        f"and {dim} Hessian products a shard in {seconds:.2f} s: {rate / 1e9:.0f} of "
        f"{limit / 1e9:.0f} GFlop/s ({rate / limit:.0%} of matrix products)"
    )
    # the parts, on one shard, on all cores at once
    design, per_shard = pilot.shard.rows["x"], values / NUM_SHARDS
    points = start + 0.01 * jax.random.normal(jax.random.key(0), (BATCH_SIZE, dim))
    products = jax.jit(lambda x, points: (x @ points.T).T @ x)
    directions = jnp.asarray(np.eye(dim))
    parts: dict[str, tuple[Callable[[], object], float]] = {
        "bare products of a batch of gradients": (
            lambda: products(design, points),
            4 * per_shard * BATCH_SIZE,
        ),
        "gradients of a batch": (lambda: evaluate(pilot, points), 4 * per_shard * BATCH_SIZE),
        "Hessian": (lambda: hessian_products(pilot, start, directions), 4 * per_shard * dim),
    }
    for name, (part, count) in parts.items():
        jax.block_until_ready(part())
        part_seconds = on_all_cores(lambda _, part=part: jax.block_until_ready(part()), 8) / 8
        part_rate = count / part_seconds
        say(f"  {name}: {part_rate / 1e9:.0f} GFlop/s ({part_rate / limit:.0%})")


def main() -> None:
    arguments = sys.argv[1:]
    shares = [float(word) for word in arguments if word.replace(".", "").isdigit()]
    share = shares[0] if shares else 1.0
    names = [word for word in arguments if word in problems.LARGE] or sorted(problems.LARGE)
    sizes = {"logistic": 1_000_000, "probit": 100_000}
    for name in names:
        report(problems.PROBLEMS[name](int(share * sizes[name])))


if __name__ == "__main__":
    main()
