"""Time a Gibbs sweep of a Gaussian mixture against plain NumPy.

50 000 rows, 8 components in 8 dimensions.

Run: .venv/bin/python benchmarks/mixture_sweep.py    (about 20 seconds)
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from timing import in_turns, say

import vcmc
from vcmc.density import Subposterior
from vcmc.samplers import MixtureGibbs

NUM_ROWS, NUM_COMPONENTS, DIM, SWEEPS, REPEATS = 50_000, 8, 8, 20, 15


def plain(x: np.ndarray, centres: np.ndarray, by_gumbel: bool) -> Callable[[], None]:
    """Return the straightforward sweep, vectorised over rows; noise scale 1, prior scale 2."""
    generator = np.random.default_rng(0)

    def run() -> None:
        theta = centres
        for _ in range(SWEEPS):
            logits = x @ theta.T - 0.5 * (theta**2).sum(axis=1)
            if by_gumbel:
                labels = np.argmax(logits + generator.gumbel(size=logits.shape), axis=1)
            else:
                mass = np.exp(logits - logits.max(axis=1, keepdims=True)).cumsum(axis=1)
                labels = (mass < generator.random((len(x), 1)) * mass[:, -1:]).sum(axis=1)
            member = np.eye(NUM_COMPONENTS)[labels]
            precision = 0.25 + member.sum(axis=0)[:, None]
            theta = (member.T @ x) / precision + generator.normal(size=theta.shape) / np.sqrt(
                precision
            )

    return run


def ours(model: vcmc.Model, rows: dict, centres: np.ndarray) -> Callable[[], None]:
    sampler, key = MixtureGibbs(), jax.random.key(0)
    setup = sampler.setup(Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(1.0)))
    state = sampler.init(setup, jnp.asarray(centres.ravel()), key)
    return lambda: sampler.advance(setup, state, key, SWEEPS)


def main() -> None:
    model = vcmc.models.GaussianMixture(NUM_COMPONENTS, DIM)
    params, rows = model.simulate(0, NUM_ROWS)
    functions = {
        "plain NumPy, inverse cdf": plain(rows["x"], params["centres"], by_gumbel=False),
        "plain NumPy, Gumbel": plain(rows["x"], params["centres"], by_gumbel=True),
        "vcmc": ours(model, rows, params["centres"]),
    }
    seconds = in_turns(functions, REPEATS)
    best = min(value for name, value in seconds.items() if name != "vcmc")
    say(f"{NUM_ROWS} rows, {NUM_COMPONENTS} components × {DIM}, median of {REPEATS}, in turns")
    for name, value in seconds.items():
        say(
            f"{name:30s} {1e3 * value / SWEEPS:7.2f} ms per sweep, "
            f"{best / value:5.1f} × the speed of the better plain one"
        )


if __name__ == "__main__":
    main()
