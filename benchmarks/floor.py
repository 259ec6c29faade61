"""Measure errors of combined draws against the error between two serial chains, the floor.

The reference of a problem is two long serial chains. Errors are those of means, standard
deviations, and 5 % and 95 % quantiles: the median and the largest over all test functions of a
problem. The floor is the error between two serial chains as long as a shard's, the median over the
three pairs of three chains. A Laplace approximation shows the gain of sampling. Seconds are those
of the combination alone, with compilation.

Draws are stored in `.cache/floor`, by the problem's name and a checksum of its rows: remove them if
a model or a sampler changes.

Run (minutes per small problem, hours for all):

    .venv/bin/python benchmarks/floor.py --problems poisson,robust --shards 5,25 --methods default
"""

import argparse
import itertools
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from floor_report import Entry, Errors, Estimate, Report
from jaxtyping import Float
from problems import PROBLEMS, Problem, named_draws
from scipy.optimize import linear_sum_assignment
from timing import say

import vcmc
from vcmc.aggregators import BlockFamily
from vcmc.combiners import AbstractCombiner, Average, Consensus, Variational
from vcmc.data.params import to_params, to_points
from vcmc.density import evaluate
from vcmc.diagnostics.convergence import rhat
from vcmc.linalg.stein import matrix_from_products
from vcmc.samplers.start import common_start, search_starts
from vcmc.space import Point
from vcmc.target import Target

METHODS: dict[str, AbstractCombiner] = {
    "consensus": Consensus(),
    "diagonal": Consensus(diagonal=True),
    "paper": Variational(BlockFamily()),
    "default": Variational(),
}

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "floor"
SERIAL_SEEDS, REFERENCE_SEEDS, SHARD_SEED = (101, 102, 103), (104, 105), 3
ERROR_GROUPS = ("mean_error", "mean_error_se", "sd_error", "sd_error_se")
MAX_STORED_STRETCH = 4  # longer reference chains are thinned to so many times num_draws
GOOD_RHAT = 1.01
NUM_TRUTH_DRAWS = 20  # draws of a shard whose log density is compared with the truth's
MAX_REFINED_DIM = 100  # above, refinement takes minutes on two cores
MAX_LAPLACE_DIM = 1000  # above, the curvature takes too long
MAX_COVARIANCE_BYTES = 2**30  # of all shards: several copies must fit into memory


@dataclass(frozen=True)
class Sample:
    """Draws by name, their seconds, and warnings about them."""

    draws: dict[str, np.ndarray]
    seconds: float
    notes: list[str] = field(default_factory=list)


class Summary(NamedTuple):
    """Means, standard deviations and quantiles of each test function."""

    mean: Float[np.ndarray, " quantity"]
    sd: Float[np.ndarray, " quantity"]
    quantiles: Float[np.ndarray, "level quantity"]


def cached(problem: Problem, name: str, make: Callable[[], Sample]) -> Sample:
    """Return a sample from the cache; make and store it if it is missing."""
    path = CACHE / f"{problem.name}-{_checksum(problem):08x}-{name}.npz"
    if not path.exists():
        sample = make()
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished.npz")
        arrays: Any = sample.draws | {
            "seconds": sample.seconds,
            "notes": np.array(sample.notes, str),
        }
        np.savez(unfinished, **arrays)
        unfinished.rename(path)
        return sample
    with np.load(path) as stored:
        draws = {key: stored[key] for key in stored if key not in ("seconds", "notes")}
        return Sample(draws, float(stored["seconds"]), stored["notes"].tolist())


def _checksum(problem: Problem) -> int:
    total = 0
    for array in problem.rows.values():
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def serial_chain(problem: Problem, seed: int, stretch: int = 1) -> Sample:
    """Return a chain on all rows, `stretch` times as long as a shard's, thinned if very long."""

    def make() -> Sample:
        tree = vcmc.infer(
            problem.model,
            problem.rows,
            num_shards=1,
            shard_draws=stretch * problem.num_draws,
            seed=seed,
            combiner=Average(),
            progress=False,
        )
        step = max(1, stretch // MAX_STORED_STRETCH)
        draws = {name: array[::step] for name, array in named_draws(tree).items()}
        params = {name: draws[name] for name in problem.model.space}
        return Sample(params, tree.attrs["seconds_sample"], tree.attrs["warnings"])

    return cached(problem, f"serial-{seed}-{stretch * problem.num_draws}", make)


def shard_draws(problem: Problem, partition: vcmc.Partition) -> Sample:
    """Return draws (shard, draw, …) of all shards; they do not depend on the combiner."""

    def make() -> Sample:
        tree = vcmc.infer(
            problem.model,
            partition,
            shard_draws=problem.num_draws,
            seed=SHARD_SEED,
            combiner=Average(),
            progress=False,
        )
        group = tree["subposterior"]
        draws = {name: group[name].to_numpy()[:, 0] for name in problem.model.space}
        return Sample(draws, tree.attrs["seconds_sample"], tree.attrs["warnings"])

    return cached(problem, f"shards-{partition.num_shards}-{problem.num_draws}", make)


def laplace(problem: Problem) -> Sample:
    """Draw from the Laplace approximation in unconstrained coordinates."""

    def make() -> Sample:
        begin = time.perf_counter()
        target = _target(problem, vcmc.split(problem.rows, 1))
        density, key = target.pilot, jax.random.key(0)
        model = density.model
        starts = search_starts(density, key)
        mode = common_start(target, starts)
        curvature = _curvature(target, mode)
        # a start need not be the mode: take a Newton step
        closer = mode + jnp.linalg.solve(curvature, target(mode[None])[1][0])
        low, high = target(jnp.stack([mode, closer]))[0]
        if high > low:
            mode, curvature = closer, _curvature(target, closer)
        values, vectors = np.linalg.eigh(curvature)
        notes = [] if values[0] > 0 else [f"{np.sum(values <= 0)} directions of negative curvature"]
        root = vectors / np.sqrt(np.maximum(values, 1e-10 * values[-1]))
        noise = np.random.default_rng(0).normal(size=(problem.num_draws, len(mode)))
        draws = to_params(model.space, mode + jnp.asarray(noise @ root.T))
        return Sample(draws, time.perf_counter() - begin, notes)

    return cached(problem, f"laplace-{problem.num_draws}", make)


def _curvature(target: Target, point: Point) -> np.ndarray:
    return matrix_from_products(
        lambda directions: -np.asarray(target.hessian_products(point, jnp.asarray(directions))),
        point.size,
    )


def _target(problem: Problem, partition: vcmc.Partition) -> Target:
    return Target.fitted(problem.model, partition, vcmc.executors.Local())


def lost_shards(
    problem: Problem, partition: vcmc.Partition, draws: dict[str, np.ndarray]
) -> list[int]:
    """Return the shards in a wrong mode: their log density is far below the truth's."""
    if problem.truth is None:
        return []
    space = problem.model.space
    truth = to_points(space, {name: np.asarray(problem.truth[name])[None] for name in space})
    lost = []
    target = _target(problem, partition)
    for shard in range(target.num_shards):
        density = target.shard_cache.density(shard)
        indices = np.linspace(0, problem.num_draws - 1, NUM_TRUTH_DRAWS).round().astype(int)
        points = to_points(space, {name: draws[name][shard, indices] for name in space})
        log_densities = evaluate(density, jnp.concatenate([truth, points]))[0]
        # in the right mode the difference is about half the dimension
        if log_densities[0] - jnp.mean(log_densities[1:]) > space.dim:
            lost.append(shard)
    return lost


def summary(values: Float[np.ndarray, "draw quantity"]) -> Summary:
    """Summarise all test functions."""
    return Summary(
        values.mean(axis=0), values.std(axis=0, ddof=1), np.quantile(values, [0.05, 0.95], axis=0)
    )


def errors(estimate: Summary, exact: Summary, sds: Float[np.ndarray, " quantity"]) -> Errors:
    """Return errors in units of the posterior sds."""
    mean = np.abs(estimate.mean - exact.mean)
    sd = np.abs(estimate.sd / exact.sd - 1)
    tail = np.abs(estimate.quantiles - exact.quantiles) / sds
    return Errors(
        *map(
            float,
            (
                np.median(mean / np.abs(exact.mean)),
                np.median(mean / sds),
                np.max(mean / sds),
                np.median(sd),
                np.max(sd),
                np.median(tail),
                np.max(tail),
            ),
        )
    )


def _median(several: Sequence[Errors]) -> Errors:
    return Errors(*np.median(several, axis=0).tolist())


def references(problem: Problem, report: Report) -> Summary:
    """Return the reference, and report the rows of the table that need no shards."""
    partition = vcmc.split(problem.rows, 1)
    long = [serial_chain(problem, seed, problem.stretch) for seed in REFERENCE_SEEDS]
    short = [serial_chain(problem, seed) for seed in SERIAL_SEEDS]
    values = np.stack([problem.quantities(sample.draws) for sample in long])
    worst = float(np.nanmax(rhat(values[None])))
    exact = summary(values.reshape(-1, values.shape[2]))
    seconds = sum(sample.seconds for sample in long)
    doubtful = "" if worst < GOOD_RHAT else f", above {GOOD_RHAT}: doubtful"
    report.remark(
        f"{problem.name}: reference of {len(long)} × {problem.stretch * problem.num_draws} draws "
        f"in {seconds:.0f} s, {values.shape[2]} test functions, R-hat up to {worst:.4f}{doubtful}."
    )
    for sample, seed in zip([*long, *short], [*REFERENCE_SEEDS, *SERIAL_SEEDS], strict=True):
        one = {name: array[None] for name, array in sample.draws.items()}
        if lost_shards(problem, partition, one):
            report.remark(f"{problem.name}: the serial chain of seed {seed} is in a wrong mode.")
        for note in sample.notes:
            report.remark(f"{problem.name}, serial chain of seed {seed}: {note}")
    chains = [summary(problem.quantities(sample.draws)) for sample in short]
    pairs = [errors(one, other, exact.sd) for one, other in itertools.combinations(chains, 2)]
    report.add(Entry(problem.name, "", "floor: two serial chains", _median(pairs), 0.0))
    against = [errors(chain, exact, exact.sd) for chain in chains]
    seconds = float(np.median([sample.seconds for sample in short]))
    report.add(Entry(problem.name, "", "serial chain", _median(against), seconds))
    return exact


def report_laplace(problem: Problem, exact: Summary, report: Report) -> None:
    """Report the row of the Laplace approximation."""
    if problem.model.space.dim > MAX_LAPLACE_DIM:
        report.remark(f"{problem.name}: too many coordinates for a Laplace approximation.")
        return
    sample = laplace(problem)
    estimate = summary(problem.quantities(sample.draws))
    report.add(
        Entry(problem.name, "", "Laplace", errors(estimate, exact, exact.sd), sample.seconds)
    )
    for note in sample.notes:
        report.remark(f"{problem.name}, Laplace: {note}.")


def self_estimates(
    problem: Problem, num_shards: int, method: str, tree: Any, reference: dict[str, np.ndarray]
) -> list[Estimate]:
    """Return the estimated and true errors of a tree, parameter by parameter."""
    if "mean_error" not in tree.children:
        return []
    result = []
    posterior = named_draws(tree)
    for name, exact in reference.items():
        mean, sd = exact.mean(axis=0), exact.std(axis=0)
        draws = posterior[name]
        order = _labels(problem, name, draws.mean(axis=0), mean)
        draws = draws[:, order] if len(order) else draws
        ess = vcmc.diagnostics.convergence.ess(
            exact.reshape(1, len(REFERENCE_SEEDS), -1, *exact.shape[1:])
        )[0]
        for index in np.ndindex(mean.shape):
            if not sd[index] > 0 or (len(index) == 2 and index[0] > index[1]):
                continue  # a constant, or the same number again
            own = (int(order[index[0]]), *index[1:]) if len(order) else index
            estimates = [float(tree[group][name].to_numpy()[own]) for group in ERROR_GROUPS]
            if not np.isfinite(estimates).all():
                continue  # a constant, up to rounding
            mean_error = float((draws.mean(axis=0)[index] - mean[index]) / sd[index])
            sd_error = float(draws.std(axis=0)[index] / sd[index] - 1)
            noise = 1 / np.sqrt(float(ess[index])) * max(1.0, abs(mean_error))
            result.append(
                Estimate(
                    problem.name,
                    num_shards,
                    method,
                    tree.attrs["verdict"],
                    f"{name}{list(index)}",
                    estimates[0],
                    estimates[1],
                    mean_error,
                    estimates[2],
                    estimates[3],
                    sd_error,
                    noise,
                )
            )
    return result


def _labels(problem: Problem, name: str, means: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Match exchangeable components to those of the reference."""
    if problem.model.space[name].num_labels is None:
        return np.array([], int)
    distances = np.sum((exact[:, None] - means[None]) ** 2, axis=tuple(range(2, exact.ndim + 1)))
    return np.asarray(linear_sum_assignment(distances)[1])


def report_methods(
    problem: Problem,
    num_shards: int,
    methods: dict[str, AbstractCombiner],
    exact: Summary,
    report: Report,
) -> None:
    """Report the rows of all methods on the draws of `num_shards` shards."""
    partition = vcmc.split(problem.rows, num_shards, seed=SHARD_SEED)
    where = f"{problem.name}, {num_shards} shards"
    chains = [serial_chain(problem, seed, problem.stretch).draws for seed in REFERENCE_SEEDS]
    reference = {
        name: np.concatenate([chain[name] for chain in chains]) for name in problem.model.space
    }
    try:
        sample = shard_draws(problem, partition)
    except Exception as error:
        report.remark(f"{where}: sampling failed, {type(error).__name__}: {error}")
        return
    report.remark(f"{where}: sampled in {sample.seconds:.1f} s. {' '.join(sample.notes)}".strip())
    if lost := lost_shards(problem, partition, sample.draws):
        report.remark(f"{where}: {len(lost)} shards are in a wrong mode.")
    for name, combiner in methods.items():
        if _too_large(combiner, num_shards, problem.model.space.dim):
            report.remark(
                f"{where}, {name}: left out: covariances of the shards do not fit into memory."
            )
            continue
        begin = time.perf_counter()
        try:
            tree: Any = vcmc.combine(
                sample.draws, model=problem.model, rows=partition, combiner=combiner, progress=False
            )
        except Exception as error:
            seconds = time.perf_counter() - begin
            report.add(Entry(problem.name, str(num_shards), name, None, seconds))
            report.remark(f"{where}, {name}: failed, {type(error).__name__}: {error}")
            continue
        results = {name: (tree, tree.attrs["seconds_combine"])}
        if name == "default" and problem.model.space.dim <= MAX_REFINED_DIM:
            refined = vcmc.refine(tree, problem.model, partition, progress=False)
            by = refined.attrs["refined_by"]
            results[f"refined by {by}"] = refined, refined.attrs["seconds_refine"]
        for label, (result, seconds) in results.items():
            result_errors = errors(summary(problem.quantities(result)), exact, exact.sd)
            report.estimates += self_estimates(problem, num_shards, label, result, reference)
            report.add(Entry(problem.name, str(num_shards), label, result_errors, seconds))
            text = result.attrs["verdict_text"] if label.startswith(("default", "refined")) else ""
            report.remark(f"{where}, {label}: {result.attrs['verdict']}. {text}".strip())


def _too_large(combiner: AbstractCombiner, num_shards: int, dim: int) -> bool:
    return (
        isinstance(combiner, Consensus)
        and not combiner.diagonal
        and 8 * num_shards * dim**2 > MAX_COVARIANCE_BYTES
    )


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--problems", type=_names, default=list(PROBLEMS), help="names, separated by commas"
    )
    parser.add_argument(
        "--shards",
        type=_names,
        default=["5", "25", "100"],
        help="numbers, separated by commas; may be empty",
    )
    parser.add_argument(
        "--methods",
        type=_names,
        default=list(METHODS),
        help="names, separated by commas; empty to sample only",
    )
    parser.add_argument("--output", type=Path, help="file of the table")
    options = parser.parse_args()
    if unknown := {*options.problems} - {*PROBLEMS} | {*options.methods} - {*METHODS}:
        parser.error(
            f"unknown names {sorted(unknown)}: problems are {list(PROBLEMS)}, methods "
            f"{list(METHODS)}."
        )
    warnings.simplefilter("ignore", vcmc.DoubtfulWarning)  # the remarks have them
    report = Report(options.output)
    for name in options.problems:
        problem = PROBLEMS[name]()
        exact = references(problem, report)
        report_laplace(problem, exact, report)
        for num_shards in options.shards:
            methods = {method: METHODS[method] for method in options.methods}
            report_methods(problem, int(num_shards), methods, exact, report)
    say()
    say(str(report))
