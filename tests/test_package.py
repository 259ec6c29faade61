"""What importing vcmc does, and what it must not do."""

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


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
    }
    assert not heavy & set(loaded)


def test_import_switches_to_64_bits():
    assert run("import vcmc, jax.numpy as jnp; print(jnp.ones(1).dtype)").strip() == "float64"
