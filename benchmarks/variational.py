"""Errors and seconds of variational consensus on the paper's hard cases, K = 100.

Errors are medians of relative errors of test functions against a long serial chain; the floor is
the error of a second serial chain. Seconds of the combination are given twice: of the first call,
with compilation, and of later ones.

Run: .venv/bin/python benchmarks/variational.py [probit] [mixture] [large [refined]] (some minutes
each; `refined` adds four)
"""

import statistics
import sys
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from timing import say

import vcmc
from vcmc.aggregators import AffineFamily, BlockFamily, Precision, VectorFamily
from vcmc.aggregators.base import aggregate
from vcmc.combiners import AbstractCombiner, Average, Consensus, Subposteriors, Variational
from vcmc.inference.diagnosis import diagnose_draws
from vcmc.inference.refinement import refine_draws
from vcmc.models import GaussianMixture, Probit
from vcmc.samplers import NUTS
from vcmc.target import Target
from vcmc.variational import ProjectedGradient
from vcmc.variational.entropies import EntropyPower

NUM_SHARDS = 100
METHODS: dict[str, AbstractCombiner] = {
    "uniform": Average(),
    "Gaussian, diagonal (the paper's baseline)": Consensus(diagonal=True),
    "Gaussian, full": Consensus(),
    "variational, the paper's family": Variational(BlockFamily()),
    "variational, entropy power": Variational(BlockFamily(), entropy=EntropyPower()),
    "variational, projected gradients": Variational(BlockFamily(), optimizer=ProjectedGradient()),
    "affine, the default": Variational(),
}
FULL_WEIGHTS = {"variational, full weights": Variational(family=VectorFamily(full=True))}


def compare(
    model: vcmc.Model,
    rows: dict[str, np.ndarray],
    value: Callable[[np.ndarray], np.ndarray],
    references: list[np.ndarray],
    methods: dict[str, AbstractCombiner],
    serial_seconds: float,
) -> None:
    """Sample the shards, combine their draws by all methods, and print errors and seconds."""
    partition = vcmc.split(rows, NUM_SHARDS, seed=3)
    tree = vcmc.infer(model, partition, shard_draws=1000, seed=3, combiner=Average())
    (name,) = model.space  # unconstrained, so that points are the values themselves
    draws = tree["subposterior"][name].to_numpy().reshape(NUM_SHARDS, 1000, model.space.dim)
    target = Target(
        model, [partition.load(shard) for shard in range(NUM_SHARDS)], vcmc.executors.Local()
    )
    shards = Subposteriors(jnp.asarray(draws), model.space, target)
    exact, other = map(value, references)

    def error(estimate: np.ndarray) -> float:
        return float(np.median(np.abs(estimate - exact) / np.abs(exact)))

    say(f"{'floor: a second serial chain':45s} error {error(other):.4f}")
    for name, combiner in methods.items():
        seconds = []
        for _ in range(4):
            begin = time.perf_counter()
            combined = np.asarray(combiner(shards).draws)
            seconds.append(time.perf_counter() - begin)
        again = statistics.median(seconds[1:])
        say(
            f"{name:45s} error {error(value(combined)):.4f}   seconds {seconds[0]:6.2f} first, "
            f"{again:6.2f} later ({again / serial_seconds:.3f} of the serial chain)"
        )


def probit() -> None:
    dim, num_rows = 50, 20_000
    model = Probit(dim)
    beta = np.random.default_rng(1).normal(size=dim) / np.sqrt(dim)
    rows = model.simulate(0, num_rows, {"beta": beta}).rows
    serial = [vcmc.infer(model, rows, num_shards=1, shard_draws=5000, seed=seed) for seed in (1, 2)]
    seconds = serial[1].attrs["seconds_sample"]
    say(
        f"probit, {num_rows} rows, {dim} coefficients; serial Gibbs chain, 5 000 sweeps and "
        f"warm-up: {seconds:.2f} s"
    )
    references = [np.concatenate(tree["posterior"]["beta"].to_numpy()) for tree in serial]
    compare(
        model, rows, lambda draws: draws.mean(axis=0), references, METHODS | FULL_WEIGHTS, seconds
    )


def mixture() -> None:
    num_components, dim, num_rows = 8, 8, 50_000
    model = GaussianMixture(num_components, dim)
    simulated = model.simulate(0, num_rows)
    fresh = jnp.asarray(model.simulate(1, 100, simulated.params).rows["x"])
    serial = [
        vcmc.infer(model, simulated.rows, num_shards=1, shard_draws=1000, seed=seed)
        for seed in (1, 2)
    ]
    nuts = vcmc.infer(
        model, simulated.rows, num_shards=1, shard_draws=200, sampler=NUTS(num_warmup=100)
    )
    gibbs_seconds, nuts_seconds = (tree.attrs["seconds_sample"] for tree in (serial[1], nuts))
    say(
        f"mixture, {num_rows} rows, {num_components} centres in {dim} dimensions; serial Gibbs "
        f"chain, 1 000 draws: {gibbs_seconds:.2f} s; NUTS, since the paper uses HMC, 300 steps: "
        f"{nuts_seconds:.2f} s, so 1 300 steps {nuts_seconds * 1300 / 300:.1f} s"
    )

    @jax.jit
    def comembership(centres: jax.Array) -> jax.Array:
        return jax.lax.map(
            lambda draw: model.test_functions({"centres": draw}, fresh)["comembership"], centres
        ).mean(axis=0)

    def value(draws: np.ndarray) -> np.ndarray:
        return np.asarray(comembership(jnp.asarray(draws.reshape(-1, num_components, dim))))

    references = [np.concatenate(tree["posterior"]["centres"].to_numpy()) for tree in serial]
    compare(model, simulated.rows, value, references, METHODS, gibbs_seconds)


def large() -> None:
    """Time every stage of the paper's large probit regression, against the paper's serial chain."""
    dim, num_rows, num_sweeps = 300, 100_000, 5100
    model = Probit(dim)
    beta = np.random.default_rng(1).normal(size=dim) / np.sqrt(dim)
    rows = model.simulate(0, num_rows, {"beta": beta}).rows
    serial = vcmc.infer(
        model, rows, num_shards=1, shard_draws=num_sweeps - 100, seed=1, combiner=Average()
    )
    seconds = serial.attrs["seconds_sample"]
    exact = np.concatenate(serial["posterior"]["beta"].to_numpy())
    say(
        f"probit, {num_rows} rows, {dim} coefficients; serial Gibbs chain, {num_sweeps} sweeps: "
        f"{seconds:.1f} s"
    )
    partition = vcmc.split(rows, NUM_SHARDS, seed=3)
    tree = vcmc.infer(model, partition, shard_draws=1000, seed=3, combiner=Average())
    shard_seconds = tree.attrs["seconds_sample"]
    say(
        f"{NUM_SHARDS} shards, 1 000 draws each: {shard_seconds:.1f} s, "
        f"{shard_seconds / seconds:.3f} of the serial chain"
    )
    draws = jnp.asarray(tree["subposterior"]["beta"].to_numpy().reshape(NUM_SHARDS, 1000, dim))
    target = Target(
        model, [partition.load(shard) for shard in range(NUM_SHARDS)], vcmc.executors.Local()
    )
    shards = Subposteriors(draws, model.space, target)

    def report(name: str, run: Callable[[], np.ndarray], times: int) -> np.ndarray:
        elapsed = []
        for _ in range(times):
            begin = time.perf_counter()
            merged = run()
            elapsed.append(time.perf_counter() - begin)
        sds = exact.std(axis=0)
        mean_error = np.median(np.abs(merged.mean(axis=0) - exact.mean(axis=0)) / sds)
        sd_error = np.median(np.abs(merged.std(axis=0) / sds - 1))
        later = statistics.median(elapsed[1:] or elapsed)
        say(
            f"{name:30s} errors: means {mean_error:.3f} sd, sds {sd_error:.3f}; seconds "
            f"{elapsed[0]:6.2f} first, {later:6.2f} later "
            f"({later / seconds:.3f} of the serial chain)"
        )
        return merged

    report("consensus, full", lambda: np.asarray(Consensus()(shards).draws), 2)
    family, start = AffineFamily(), Precision()
    report(
        "affine, before optimisation",
        lambda: np.asarray(aggregate(family.fit(model.space, draws, start), draws)),
        4,
    )
    merged = report("affine, the default", lambda: np.asarray(Variational()(shards).draws), 4)
    begin = time.perf_counter()
    diagnosis = diagnose_draws(merged[None], target, [], 0)
    say(f"diagnosis: {time.perf_counter() - begin:.2f} s. {diagnosis.text}")
    if "refined" in sys.argv:  # takes minutes
        report("refined", lambda: refine_draws(merged[None], target).draws.reshape(-1, dim), 1)


if __name__ == "__main__":
    warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
    jobs = {"probit": probit, "mixture": mixture, "large": large}
    for name in [job for job in jobs if job in sys.argv] or jobs:
        jobs[name]()
