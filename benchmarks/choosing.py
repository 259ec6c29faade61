"""All combiners side by side on five problems that differ: the tables and pictures of `docs/choosing.md`.

Run: .venv/bin/python benchmarks/choosing.py [--problems bernoulli,bimodal] [--output docs/pictures]
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
    """10 000 trials, of which about thirty succeed, in 15 shards."""
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
        model, {"y": y}, num_shards=15, num_draws=4000, combiners=MENU, reference={"p": exact}
    )


def bimodal() -> Comparison:
    """One number of which only the distance from zero is seen, by rows that all see both signs; eight shards, drawn exactly."""
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
    menu = [each for each in MENU if not each.needs.target and each.needs.prior == "subposterior"]
    return vcmc.compare({"x": draws}, combiners=menu, reference={"x": exact})


def of(name: str, num_shards: int) -> Callable[[], Comparison]:
    """One of the problems of `problems.py`, against a serial chain."""

    def run() -> Comparison:
        problem = PROBLEMS[name]()
        return vcmc.compare(
            problem.model, problem.rows, num_shards=num_shards, combiners=MENU, reference="serial"
        )

    return run


CASES: dict[str, Callable[[], Any]] = {
    "bernoulli": bernoulli,
    "bimodal": bimodal,
    "rare-probit-5": of("rare-probit-5", 20),
    "poisson": of("poisson", 25),
    "probit-50": of("probit-50", 25),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", default=",".join(CASES))
    parser.add_argument("--output", type=Path, default=None)
    chosen = parser.parse_args()
    for name in chosen.problems.split(","):
        begin = time.perf_counter()
        comparison = CASES[name]()
        say(f"\n## {name}: {time.perf_counter() - begin:.0f} s\n\n{comparison.markdown()}\n")
        for entry in comparison.entries:
            if entry.verdict == "failed":
                say(f"{entry.name}: {entry.remark}")
        if chosen.output:
            chosen.output.mkdir(parents=True, exist_ok=True)
            comparison.plot(chosen.output / f"{name}.png")


if __name__ == "__main__":
    main()
