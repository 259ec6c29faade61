"""Effects of `import vcmc` on the process, in fresh interpreters."""

import subprocess
import sys

MAX_SECONDS = 120


def run(code: str) -> str:
    """Return what the code prints in an interpreter of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=MAX_SECONDS
    ).stdout


def test_import_leaves_heavy_packages_for_later():
    """They would take more than the 0.3 s that vcmc may add to JAX's and NumPyro's imports.

    `benchmarks/import_time.py` measures it.
    """
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


def test_batched_eigenvalues_are_not_slower_than_one_by_one():
    """On two cores both take as long; with BLAS threads inside XLA threads, a batch takes 100x."""
    code = """
import os, time
os.environ.pop("OPENBLAS_NUM_THREADS", None)
import vcmc, jax, jax.numpy as jnp

def seconds(function):
    begin = time.perf_counter()
    jax.block_until_ready(function(many))
    return time.perf_counter() - begin

many = jnp.tile(jnp.eye(100) + 0.1, (40, 1, 1))
batch = jax.jit(jnp.linalg.eigh)
one_by_one = jax.jit(lambda matrices: jax.lax.map(jnp.linalg.eigh, matrices))
seconds(batch), seconds(one_by_one)
print(seconds(batch) / seconds(one_by_one))
"""
    assert float(run(code)) < 5


def test_batched_linear_algebra_does_not_hang():
    """Three triangular solves at once, in two threads: XLA deadlocks with a thread per core."""
    code = """
import vcmc, jax, jax.numpy as jnp
from concurrent.futures import ThreadPoolExecutor

def one(root, x):
    large = [x @ (x.T @ (x @ (root + i))) for i in range(3)]
    solutions = [
        jax.scipy.linalg.solve_triangular(root + i, large[i].T[:, :50], lower=True)
        for i in range(3)
    ]
    return sum(solution.sum() for solution in solutions)

solve = jax.jit(jax.vmap(one, in_axes=(0, None)))
roots, x = jnp.tile(jnp.eye(100), (20, 1, 1)), jnp.ones((300, 100)) / 300
with ThreadPoolExecutor(2) as pool:
    print(len(list(pool.map(lambda _: solve(roots, x).block_until_ready(), range(4)))))
"""
    assert run(code).strip() == "4"


def test_dir_shows_public_names_only():
    public = run("import vcmc; print(*dir(vcmc))").split()
    assert set(public) == {*run("import vcmc; print(*vcmc.__all__)").split(), "__version__"}
