"""Posteriors with several modes against truth on a grid, or in closed form.

Run: python benchmarks/shapes_modes.py [four | targets | ten] [number of data sets]

`four`: two parameters with four modes, N = 1000, K = 10, the default call. `targets`: densities of
one shard, a mixture of 20 normals in four clusters and a thin ring, by `infer` and by `refine`.
`ten`: two modes of ten coordinates, K = 10. Total variation is that of histograms of the marginals,
averaged over the two; its floor is that of as many independent draws of the truth.
"""

import sys
import time
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import vcmc

NUM_ROWS, NUM_SHARDS, NUM_DRAWS = 1000, 10, 10_000
NUM_BINS = 40  # of a histogram, over the range of the grid
NOISE_SD, PRIOR_SD = 0.25, 0.25
THETA = (0.6, -0.6)  # at which the rows of `four` are drawn: one of its modes


class Problem(NamedTuple):
    """A model with its rows, and the log density on a grid (None: known otherwise)."""

    model: vcmc.Model
    rows: dict
    grid: np.ndarray
    density: np.ndarray


def polynomial(x):
    """Return (0.6 - x)(-0.6 - x)."""
    return (0.6 - x) * (-0.6 - x)


FOUR = vcmc.Model(
    {"theta": vcmc.Real(2)},
    lambda params: norm.logpdf(params["theta"], 0, PRIOR_SD).sum(),
    lambda params, rows: jax.nn.logsumexp(
        norm.logpdf(rows["y"][:, None], polynomial(params["theta"]), NOISE_SD), axis=1
    ),
)


def four(seed: int) -> Problem:
    """Return y ~ ½ N(P(θ₁), 1/16) + ½ N(P(θ₂), 1/16), θ ~ N(0, I/16)."""
    generator = np.random.default_rng(seed)
    centres = polynomial(np.array(THETA))[generator.integers(2, size=NUM_ROWS)]
    y = centres + NOISE_SD * generator.normal(size=NUM_ROWS)
    grid = np.linspace(-1.2, 1.2, 800, endpoint=False) + 1.2 / 800
    densities = np.asarray(norm.pdf(y[:, None], polynomial(grid), NOISE_SD))
    log_density = np.stack(
        [np.log(column[:, None] + densities).sum(axis=0) for column in densities.T]
    )
    log_density = log_density - 0.5 * (grid[:, None] ** 2 + grid**2) / PRIOR_SD**2
    return Problem(FOUR, {"y": y}, grid, _normalized(log_density))


def one_row(log_density) -> vcmc.Model:
    """Return a model of one row whose posterior is a given density."""
    return vcmc.Model(
        {"theta": vcmc.Real(2)},
        lambda params: 0.0 * jnp.sum(params["theta"]),
        lambda params, rows: rows["one"] * log_density(params["theta"]),
    )


def twenty_normals() -> Problem:
    """Return twenty equal normals of sd 0.4 in four clusters, whose centres are five apart."""
    generator = np.random.default_rng(0)
    corners = 2.5 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    centres = np.repeat(corners, 5, axis=0) + 0.8 * generator.normal(size=(20, 2))

    def log_density(theta):
        return jax.nn.logsumexp(norm.logpdf(theta, centres, 0.4).sum(axis=1))

    return _on_grid(log_density, 6.0)


def ring() -> Problem:
    """Return a ring of radius 2 and width 0.1."""
    return _on_grid(lambda theta: -0.5 * ((jnp.linalg.norm(theta) - 2) / 0.1) ** 2, 2.8)


def _on_grid(log_density, end: float) -> Problem:
    grid = np.linspace(-end, end, 800, endpoint=False) + end / 800
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    values = np.asarray(jax.vmap(log_density)(jnp.asarray(points))).reshape(800, 800)
    return Problem(one_row(log_density), {"one": np.ones(1)}, grid, _normalized(values))


def _normalized(log_density: np.ndarray) -> np.ndarray:
    density = np.exp(log_density - log_density.max())
    return density / density.sum()


def total_variation(draws: np.ndarray, problem: Problem) -> float:
    """Return the total variation of the marginals' histograms, averaged over both."""
    width = problem.grid[1] - problem.grid[0]
    edges = np.linspace(problem.grid[0] - width / 2, problem.grid[-1] + width / 2, NUM_BINS + 1)
    edges[0], edges[-1] = -np.inf, np.inf
    distances = []
    for axis in (0, 1):
        truth = np.histogram(problem.grid, edges, weights=problem.density.sum(axis=1 - axis))[0]
        found = np.histogram(draws[:, axis], edges)[0] / len(draws)
        distances.append(0.5 * np.abs(found - truth).sum())
    return float(np.mean(distances))


def floor(problem: Problem, seed: int) -> float:
    """Return the total variation of independent draws of the truth."""
    generator = np.random.default_rng((seed, 1))
    count = len(problem.grid)
    cells = generator.choice(count * count, NUM_DRAWS, p=problem.density.ravel())
    draws = np.stack([problem.grid[cells // count], problem.grid[cells % count]], axis=1)
    return total_variation(draws, problem)


def draws_of(tree) -> np.ndarray:
    """Return the draws of theta."""
    theta = tree["posterior"]["theta"].to_numpy()
    return theta.reshape(-1, theta.shape[-1])


def run_four(num_sets: int) -> None:
    """Print total variation, floor, verdict and seconds by data set, and the means."""
    found = []
    for seed in range(num_sets):
        problem = four(seed)
        begin = time.perf_counter()
        tree = vcmc.infer(
            FOUR, problem.rows, num_shards=NUM_SHARDS, num_draws=NUM_DRAWS, progress=False
        )
        seconds = time.perf_counter() - begin
        num_modes = len(tree["mode_weights"]["weight"]) if "mode_weights" in tree.children else 1
        found.append((total_variation(draws_of(tree), problem), floor(problem, seed)))
        print(
            f"{seed:2d}: TV {found[-1][0]:.4f}, floor {found[-1][1]:.4f}, {num_modes} modes, "
            f"{tree.attrs['verdict']}, {seconds:.1f} s",
            flush=True,
        )
    mean, mean_floor = np.mean(found, axis=0)
    print(f"mean TV {mean:.4f} (largest {np.max(found, axis=0)[0]:.4f}), floor {mean_floor:.4f}")


def run_targets() -> None:
    """Print total variation by `infer` and by `refine` for densities of one shard."""
    problems = ("20 normals", twenty_normals(), 5000), ("ring", ring(), 400)
    for name, problem, min_ess in problems:
        options = {"num_shards": 1, "num_draws": NUM_DRAWS, "progress": False}
        tree = vcmc.infer(problem.model, problem.rows, **options)
        refined = vcmc.refine(tree, problem.model, problem.rows, min_ess=min_ess, progress=False)
        for how, result in (("infer", tree), ("refine", refined)):
            draws = draws_of(result)
            print(
                f"{name}, {how}: TV {total_variation(draws, problem):.4f} "
                f"({len(draws)} draws; floor of {NUM_DRAWS}: {floor(problem, 0):.4f}), "
                f"{result.attrs['verdict']}. {result.attrs.get('refined_modes', '')}",
                flush=True,
            )
            print(result.attrs["verdict_text"][:600])


def ten(seed: int, dim: int = 10, share: float = 0.3) -> tuple:
    """Return two normals, ten sds of the first apart, as a model of a thousand rows."""
    generator = np.random.default_rng(seed)
    covariances = []
    for scale in (1.0, 0.6):
        axes = np.linalg.qr(generator.normal(size=(dim, dim)))[0]
        covariances.append(scale**2 * (axes * generator.uniform(0.5, 2.0, dim)) @ axes.T)
    direction = generator.normal(size=dim)
    step = 10 * np.linalg.cholesky(covariances[0]) @ direction / np.linalg.norm(direction)
    means = np.stack([-0.7 * step, 0.3 * step])
    precisions = np.linalg.inv(np.stack(covariances))
    log_weights = np.log([share, 1 - share]) + 0.5 * np.linalg.slogdet(precisions)[1]

    def log_likelihood(params, rows):
        steps = params["theta"] - means
        squares = jnp.einsum("mi,mij,mj->m", steps, precisions, steps)
        return jax.nn.logsumexp(log_weights - squares / 2) / NUM_ROWS + rows["x"] @ params["theta"]

    # shards differ, and the rows' slopes cancel
    x = 0.02 * generator.normal(size=(NUM_ROWS, dim))
    model = vcmc.Model(
        {"theta": vcmc.Real(dim)}, lambda params: 0.0 * params["theta"].sum(), log_likelihood
    )
    return model, {"x": x - x.mean(axis=0)}, means, np.stack(covariances)


def run_ten(num_sets: int) -> None:
    """Print weights, and the largest errors of means and sds of the draws of each mode."""
    for seed in range(num_sets):
        model, rows, means, covariances = ten(seed)
        tree = vcmc.infer(model, rows, num_shards=NUM_SHARDS, progress=False, seed=seed)
        labels = tree["draw_modes"]["mode"].to_numpy().ravel()
        weights = tree["mode_weights"]
        for mode in range(len(weights["weight"])):
            draws = draws_of(tree)[labels == mode]
            true = int(np.argmin(np.sum((means - draws.mean(axis=0)) ** 2, axis=1)))
            sds = np.sqrt(np.diag(covariances[true]))
            print(
                f"{seed}: weight {(0.3, 0.7)[true]}: {float(weights['weight'][mode]):.3f} ± "
                f"{float(weights['standard_error'][mode]):.3f}, means off by "
                f"{np.max(np.abs(draws.mean(axis=0) - means[true]) / sds):.3f} sd, sds by "
                f"{100 * np.max(np.abs(draws.std(axis=0) / sds - 1)):.1f} %, "
                f"{tree.attrs['verdict']}",
                flush=True,
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
    chosen = sys.argv[1] if len(sys.argv) > 1 else "all"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    if chosen in ("four", "all"):
        run_four(count)
    if chosen in ("targets", "all"):
        run_targets()
    if chosen in ("ten", "all"):
        run_ten(min(count, 5))
