"""Posteriors that no affine map fits: marginal total variation of the default call's draws.

Two published problems, K = 10 shards of N = 1 000 rows and 10 000 combined draws:

- `banana`: y ~ t₅(θ₁ + θ₂², √2), θ ~ N(0, I), rows simulated at θ = (0.5, 0): a thin bent ridge,
  whose density along the ridge is flat or has two shallow humps. Truth: a grid.
- `rare`: counts of three categories with probabilities (1/N, 1/N, 1 - 2/N) and the prior
  Dirichlet(1/3). Truth: the Dirichlet posterior, whose marginals are Beta distributions.

The total variation of a marginal is that of two histograms with 20 bins, which have equal
probability under the truth, so that a spike at zero is resolved. Exact independent draws have one
of about 0.018; their mean over the same data sets is in the table.

Run: .venv/bin/python benchmarks/shapes.py [--sets 20] [--problems banana,rare]
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm, t
from scipy.stats import beta

import vcmc

NUM_ROWS, NUM_SHARDS, NUM_DRAWS = 1000, 10, 10_000
NUM_BINS = 20
SCALE, DOF = 2**0.5, 5.0
PRIOR_COUNT = 1 / 3

Marginals = list[np.ndarray]  # for every scalar, the ends of bins of equal probability


class Problem(NamedTuple):
    """A model, how its rows are simulated, and the truth.

    Attributes:
        model: the model.
        parameter: the name of its parameter.
        simulate: the rows of a data set.
        bins: the inner ends of the bins, by scalar.
    """

    model: vcmc.Model
    parameter: str
    simulate: Callable[[np.random.Generator], dict[str, np.ndarray]]
    bins: Callable[[dict[str, np.ndarray]], Marginals]


BANANA = vcmc.Model(
    {"theta": vcmc.Real(2)},
    lambda params: jnp.sum(norm.logpdf(params["theta"])),
    lambda params, rows: t.logpdf(
        rows["y"], DOF, params["theta"][0] + params["theta"][1] ** 2, SCALE
    ),
)
LEVELS = np.arange(1, NUM_BINS) / NUM_BINS


def banana_rows(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Simulate rows at θ = (0.5, 0)."""
    return {"y": 0.5 + SCALE * generator.standard_t(DOF, size=NUM_ROWS)}


def banana_bins(rows: dict[str, np.ndarray]) -> Marginals:
    """Integrate over a grid of θ₂ and θ₁ + θ₂², of which alone the likelihood depends."""
    location = np.linspace(-1, 2, 1501)
    residuals = (rows["y"][:, None] - location) / SCALE
    log_likelihood = -0.5 * (DOF + 1) * np.log1p(residuals**2 / DOF).sum(axis=0)
    second = np.linspace(-3.5, 3.5, 1401)
    first = location[:, None] - second**2
    log_density = log_likelihood[:, None] - 0.5 * first**2 - 0.5 * second**2
    density = np.exp(log_density - log_density.max())
    order = np.argsort(first.ravel())
    return [
        _quantiles(first.ravel()[order], density.ravel()[order]),
        _quantiles(second, density.sum(axis=0)),
    ]


def _quantiles(values: np.ndarray, density: np.ndarray) -> np.ndarray:
    shares = np.cumsum(density) - 0.5 * density
    return np.interp(LEVELS, shares / density.sum(), values)


RARE = vcmc.Model(
    {"share": vcmc.Simplex(3)},
    lambda params: (PRIOR_COUNT - 1) * jnp.sum(jnp.log(params["share"])),
    lambda params, rows: jnp.log(params["share"])[rows["category"]],
)


def rare_rows(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Simulate categories, of which the first two come once in a data set, on average."""
    shares = [1 / NUM_ROWS, 1 / NUM_ROWS, 1 - 2 / NUM_ROWS]
    return {"category": generator.choice(3, size=NUM_ROWS, p=shares)}


def rare_bins(rows: dict[str, np.ndarray]) -> Marginals:
    """Return quantiles of the Beta marginals of the Dirichlet posterior."""
    counts = PRIOR_COUNT + np.bincount(rows["category"], minlength=3)
    return [beta.ppf(LEVELS, count, counts.sum() - count) for count in counts]


PROBLEMS = {
    "banana": Problem(BANANA, "theta", banana_rows, banana_bins),
    "rare": Problem(RARE, "share", rare_rows, rare_bins),
}


def total_variation(values: np.ndarray, bins: np.ndarray) -> float:
    """Return that of the histograms of draws and of the truth, in bins of equal probability."""
    counts = np.bincount(np.searchsorted(bins, values), minlength=NUM_BINS)
    return float(0.5 * np.abs(counts / len(values) - 1 / NUM_BINS).sum())


def run(problem: Problem, seed: int) -> tuple[float, float, float, Any]:
    """Return mean marginal total variation, that of exact draws, seconds, and the result."""
    generator = np.random.default_rng((seed, 27))
    rows = problem.simulate(generator)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        tree = vcmc.infer(
            problem.model,
            rows,
            num_shards=NUM_SHARDS,
            num_draws=NUM_DRAWS,
            seed=seed,
            progress=False,
        )
    seconds = time.perf_counter() - begin
    draws = np.asarray(vcmc.posterior_draws(tree)[problem.parameter])
    bins = problem.bins(rows)
    found = [total_variation(draws[:, j], bins[j]) for j in range(len(bins))]
    levels = generator.uniform(size=(NUM_DRAWS, len(bins)))
    floor = [total_variation(levels[:, j], LEVELS) for j in range(len(bins))]
    return float(np.mean(found)), float(np.mean(floor)), seconds, tree


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=20, help="data sets of each problem")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--problems", default="banana,rare")
    arguments = parser.parse_args()
    print("| problem | data set | total variation | exact draws | seconds | verdict |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in arguments.problems.split(","):
        results = []
        for seed in range(arguments.first, arguments.first + arguments.sets):
            *numbers, tree = run(PROBLEMS[name], seed)
            results.append(numbers)
            verdict = tree.attrs["verdict"]
            print(f"| {name} | {seed} | {_cells(numbers)} | {verdict} |", flush=True)
        means = np.mean(results, axis=0)
        print(f"| {name} | mean | {_cells(means)} | |", flush=True)


def _cells(numbers: Any) -> str:
    found, floor, seconds = numbers
    return f"{found:.4f} | {floor:.4f} | {seconds:.1f}"


if __name__ == "__main__":
    main()
