"""Compare all combiners on five problems: the tables and pictures of `docs/choosing.md`.

Run: .venv/bin/python benchmarks/choosing.py [--problems bernoulli,bimodal] [--output docs/pictures]
(some minutes in total)
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from problems import PROBLEMS
from timing import say

import vcmc
from vcmc.combiners import (
    Average,
    Barycenter,
    Consensus,
    ImportanceResample,
    Median,
    Nonparametric,
    Parametric,
    PartitionTree,
    Semiparametric,
    Swiss,
    Variational,
    Weierstrass,
)
from vcmc.results.comparison import Comparison

MENU = [
    Average(),
    Consensus(),
    Parametric(),
    Nonparametric(),
    Semiparametric(),
    Weierstrass(),
    PartitionTree(),
    Barycenter(),
    Median(),
    Swiss(),
    ImportanceResample(),
    Variational(),
]


def bernoulli() -> Comparison:
    """Compare on 10 000 trials with about thirty successes, in 15 shards."""
    y = np.random.default_rng(1).random(10_000) < 0.003
    model = vcmc.Model(
        space={"p": vcmc.Interval(0.0, 1.0)},
        log_prior=lambda _: jnp.zeros(()),
        log_likelihood=lambda params, rows: jnp.where(
            rows["y"], jnp.log(params["p"]), jnp.log1p(-params["p"])
        ),
    )
    successes = int(y.sum())
    exact = np.random.default_rng(2).beta(successes + 1, len(y) - successes + 1, size=200_000)
    return vcmc.compare(
        model, {"y": y}, num_shards=15, shard_draws=4000, combiners=MENU, reference={"p": exact}
    )


def bimodal() -> Comparison:
    """Compare on a mean of which only the absolute value is identified, up to its prior.

    Every shard has both modes; its draws are exact.
    """
    num_shards, num_rows = 8, 160
    y = 0.35 + np.random.default_rng(3).normal(size=num_rows)
    grid = np.linspace(-3, 3, 20_001)

    def log_density(rows: np.ndarray, power: float) -> np.ndarray:
        squares = (rows[:, None] - np.abs(grid)) ** 2
        return -0.5 * squares.sum(axis=0) + power * (-0.5 * (grid - 0.5) ** 2)

    def draw(logs: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
        cumulative = np.cumsum(np.exp(logs - logs.max()))
        return np.interp(generator.random(count), cumulative / cumulative[-1], grid)

    generator = np.random.default_rng(4)
    parts = np.array_split(y, num_shards)
    draws = np.stack([draw(log_density(part, 1 / num_shards), 4000, generator) for part in parts])
    exact = draw(log_density(y, 1.0), 200_000, generator)
    menu = [
        combiner
        for combiner in MENU
        if not combiner.needs.target and combiner.needs.prior == "subposterior"
    ]
    return vcmc.compare({"x": draws}, combiners=menu, reference={"x": exact})


def serial_case(name: str, num_shards: int) -> Callable[[], Comparison]:
    """Return a comparison on a problem of `problems.py`, against a serial chain."""

    def run() -> Comparison:
        problem = PROBLEMS[name]()
        return vcmc.compare(
            problem.model, problem.rows, num_shards=num_shards, combiners=MENU, reference="serial"
        )

    return run


CASES: dict[str, Callable[[], Any]] = {
    "bernoulli": bernoulli,
    "bimodal": bimodal,
    "rare-probit-5": serial_case("rare-probit-5", 20),
    "poisson": serial_case("poisson", 25),
    "probit-50": serial_case("probit-50", 25),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(CASES), help="names, separated by commas")
    parser.add_argument("--output", type=Path, default=None, help="folder of the pictures")
    options = parser.parse_args()
    for name in options.problems.split(","):
        begin = time.perf_counter()
        comparison = CASES[name]()
        say(f"\n## {name}: {time.perf_counter() - begin:.0f} s\n\n{comparison.markdown()}\n")
        for entry in comparison.entries:
            if entry.verdict == "failed":
                say(f"{entry.name}: {entry.remark}")
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            comparison.plot(options.output / f"{name}.png")


if __name__ == "__main__":
    main()
