"""Variational consensus on the paper's two hard cases, K = 100: how close it comes, and how long it takes.

Errors are medians of relative errors of test functions against a long serial chain; the floor is the error of a second
serial chain. Seconds of combining are given twice: the first time, with compiling, and again, without.

Run: .venv/bin/python benchmarks/variational.py [probit] [mixture]
"""

import sys
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import vcmc
from vcmc.aggregators import VectorFamily
from vcmc.combiners import AbstractCombiner, Average, Consensus, Variational
from vcmc.models import GaussianMixture, Probit
from vcmc.objective import EntropyPower
from vcmc.optimizers import ProjectedGradient
from vcmc.samplers import NUTS, ProbitGibbs

NUM_SHARDS = 100
METHODS: dict[str, AbstractCombiner] = {
    "uniform": Average(),
    "Gaussian, diagonal (the paper's baseline)": Consensus(diagonal=True),
    "Gaussian, full": Consensus(),
    "variational": Variational(),
    "variational, entropy power": Variational(entropy=EntropyPower()),
    "variational, projected gradients": Variational(optimizer=ProjectedGradient()),
}
FULL = {"variational, full weights": Variational(family=VectorFamily(full=True))}


def compare(
    model: vcmc.Model,
    rows: dict[str, np.ndarray],
    tree: "object",
    value: Callable[["object"], np.ndarray],
    references: list["object"],
    methods: dict[str, AbstractCombiner],
) -> None:
    """Combine the same draws by all methods, and print errors and seconds."""
    exact, other = map(value, references)

    def error(found: np.ndarray) -> float:
        return float(np.median(np.abs(found - exact) / np.abs(exact)))

    partition = vcmc.split(rows, NUM_SHARDS, seed=3)
    sys.stdout.write(f"{'floor: a second serial chain':45s} error {error(other):.4f}\n")
    for name, combiner in methods.items():
        trees = [vcmc.combine(tree, combiner=combiner, model=model, rows=partition) for _ in range(2)]
        seconds = [each.attrs["seconds_combine"] for each in trees]
        sys.stdout.write(
            f"{name:45s} error {error(value(trees[1])):.4f}   seconds {seconds[0]:6.2f} first, {seconds[1]:6.2f} again\n"
        )
        sys.stdout.flush()


def probit() -> None:
    dim, num_rows = 50, 20_000
    model = Probit(dim)
    beta = np.random.default_rng(1).normal(size=dim) / np.sqrt(dim)
    rows = model.simulate(0, num_rows, {"beta": beta}).rows
    serial = [
        vcmc.infer(model, rows, num_shards=1, num_draws=5000, seed=seed, sampler=ProbitGibbs())
        for seed in (1, 2)
    ]
    sys.stdout.write(
        f"probit, {num_rows} rows, {dim} coefficients; serial Gibbs chain of 5 000 sweeps and warm-up: "
        f"{serial[1].attrs['seconds_sample']:.2f} s\n"
    )
    tree = vcmc.infer(
        model, rows, num_shards=NUM_SHARDS, num_draws=1000, seed=3, combiner=Average(), sampler=ProbitGibbs()
    )

    def value(tree: "object") -> np.ndarray:
        return tree["posterior"]["beta"].to_numpy()[0].mean(axis=0)

    compare(model, rows, tree, value, serial, METHODS | FULL)


def mixture() -> None:
    num_components, dim, num_rows = 8, 8, 50_000
    model = GaussianMixture(num_components, dim)
    simulated = model.simulate(0, num_rows)
    fresh = jnp.asarray(model.simulate(1, 100, simulated.params).rows["x"])
    serial = [vcmc.infer(model, simulated.rows, num_shards=1, num_draws=1000, seed=seed) for seed in (1, 2)]
    begin = time.perf_counter()
    vcmc.infer(model, simulated.rows, num_shards=1, num_draws=200, seed=1, sampler=NUTS(num_warmup=100))
    nuts = time.perf_counter() - begin
    sys.stdout.write(
        f"mixture, {num_rows} rows, {num_components} centres in {dim} dimensions; serial chain of 1 000 draws: Gibbs "
        f"{serial[1].attrs['seconds_sample']:.2f} s; HMC (NUTS), as in the paper, 300 steps: {nuts:.1f} s with compiling\n"
    )
    tree = vcmc.infer(
        model, simulated.rows, num_shards=NUM_SHARDS, num_draws=1000, seed=3, combiner=Average()
    )

    @jax.jit
    def comembership(centres: jax.Array) -> jax.Array:
        return jax.lax.map(
            lambda one: model.test_functions({"centres": one}, fresh)["comembership"], centres
        ).mean(axis=0)

    def value(tree: "object") -> np.ndarray:
        return np.asarray(comembership(jnp.asarray(tree["posterior"]["centres"].to_numpy()[0])))

    compare(model, simulated.rows, tree, value, serial, METHODS)


if __name__ == "__main__":
    warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
    jobs = {"probit": probit, "mixture": mixture}
    for name in sys.argv[1:] or jobs:
        jobs[name]()
