"""What importing vcmc does, and what it must not do."""

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_import_leaves_heavy_packages_for_later():
    """They take longer than the 0.3 s that vcmc may add to JAX and NumPyro (benchmarks/import_time.py)."""
    loaded = run("import vcmc, sys; print(*sys.modules)").split()
    heavy = {
        "blackjax",
        "arviz_base",
        "arviz_stats",
        "xarray",
        "pandas",
        "matplotlib",
        "optax",
        "scipy.stats",
        "vcmc.testing",
    }
    assert not heavy & set(loaded)


def test_import_switches_to_64_bits():
    assert run("import vcmc, jax.numpy as jnp; print(jnp.ones(1).dtype)").strip() == "float64"


def test_batched_eigenvalues_do_not_crawl():
    """As many factorisations one after the other take about as long as in a batch on two cores; with threads inside threads, a hundredth."""
    code = """
import os, time
os.environ.pop("OPENBLAS_NUM_THREADS", None)
import vcmc, jax, jax.numpy as jnp

def seconds(function):
    begin = time.perf_counter()
    jax.block_until_ready(function(many))
    return time.perf_counter() - begin

many = jnp.tile(jnp.eye(100) + 0.1, (40, 1, 1))
batch, one_by_one = jax.jit(jnp.linalg.eigh), jax.jit(lambda all: jax.lax.map(jnp.linalg.eigh, all))
seconds(batch), seconds(one_by_one)
print(seconds(batch) / seconds(one_by_one))
"""
    assert float(run(code)) < 5


def test_batched_linear_algebra_does_not_hang():
    """Three triangular solves at once, in two threads: without more threads than cores, XLA waits for itself."""
    code = """
import vcmc, jax, jax.numpy as jnp
from concurrent.futures import ThreadPoolExecutor

def one(root, x):
    large = [x @ (x.T @ (x @ (root + i))) for i in range(3)]
    return sum(jax.scipy.linalg.solve_triangular(root + i, large[i].T[:, :50], lower=True).sum() for i in range(3))

solve = jax.jit(jax.vmap(one, in_axes=(0, None)))
roots, x = jnp.tile(jnp.eye(100), (20, 1, 1)), jnp.ones((300, 100)) / 300
with ThreadPoolExecutor(2) as pool:
    print(len(list(pool.map(lambda _: solve(roots, x).block_until_ready(), range(4)))))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert found.stdout.strip() == "4"
