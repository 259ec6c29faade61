"""Time products of subposterior densities against plain NumPy written from the papers.

20 shards of 10 000 draws in 50 dimensions. The plain semiparametric product is one chain with
running sums, one proposal at a time and one sweep over all shards per draw, as in the paper's
algorithm 1. It is run in coordinates of unit variance, as the paper's formulas stand, and in
coordinates that whiten its Gaussian, as a careful user might choose. The first call of vcmc is
timed separately. Errors are relative errors of variances, the root mean square over coordinates.

Run: .venv/bin/python benchmarks/density_products.py    (about a minute)
"""

import argparse
import time

import jax.numpy as jnp
import numpy as np
from timing import in_turns, say

import vcmc
from vcmc.combiners import Consensus, Parametric, Semiparametric, Subposteriors
from vcmc.space import Product


def consensus(draws: np.ndarray) -> np.ndarray:
    """Average the shards with weights given by inverse covariances."""
    precisions = [np.linalg.inv(np.cov(own.T)) for own in draws]
    total = np.linalg.inv(sum(precisions))
    merged = np.zeros(draws.shape[1:])
    for own, precision in zip(draws, precisions, strict=True):
        merged += own @ (total @ precision).T
    return merged


def gaussian_product(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the product of Gaussians."""
    precisions = [np.linalg.inv(np.cov(own.T)) for own in draws]
    covariance = np.linalg.inv(sum(precisions))
    weighted = sum(
        precision @ own.mean(axis=0) for own, precision in zip(draws, precisions, strict=True)
    )
    return covariance @ weighted, covariance


def parametric(draws: np.ndarray) -> np.ndarray:
    """Draw from the product of Gaussians."""
    mean, covariance = gaussian_product(draws)
    noise = np.random.default_rng(0).normal(size=draws.shape[1:])
    return mean + noise @ np.linalg.cholesky(covariance).T


def minus_log_gaussians(draws: np.ndarray) -> np.ndarray:
    """Return the negative log density of draws under their shard's Gaussian, up to a constant."""
    values = []
    for own in draws:
        centred = own - own.mean(axis=0)
        values.append(0.5 * np.einsum("ij,ij->i", centred @ np.linalg.inv(np.cov(own.T)), centred))
    return np.stack(values)


def semiparametric(draws: np.ndarray) -> np.ndarray:
    """Run algorithm 1 with the weights of section 3.3, where the Gaussian product is white."""
    generator = np.random.default_rng(0)
    num_shards, num_draws, dim = draws.shape
    mean, covariance = gaussian_product(draws)
    root = np.linalg.cholesky(covariance * num_shards)
    white = (draws - mean) @ np.linalg.inv(root).T
    squares = np.einsum("kij,kij->ki", white, white)
    extras = minus_log_gaussians(white)
    indices = generator.integers(num_draws, size=num_shards)
    total = white[np.arange(num_shards), indices].sum(axis=0)
    norm = total @ total
    merged = np.empty((num_draws, dim))
    for step in range(num_draws):
        square = (step + 1) ** (-2 / (4 + dim))
        by_norm = (1 / square - 1 / (1 + square)) / (2 * num_shards)
        proposals = generator.integers(num_draws, size=num_shards)
        levels = np.log(generator.random(num_shards))
        for shard in range(num_shards):
            now, other = indices[shard], proposals[shard]
            moved = total + (white[shard, other] - white[shard, now])
            new = moved @ moved
            gain = (
                extras[shard, other]
                - extras[shard, now]
                - (squares[shard, other] - squares[shard, now]) / (2 * square)
                + by_norm * (new - norm)
            )
            if levels[shard] < gain:
                indices[shard], total, norm = other, moved, new
        narrower = 1 + square
        merged[step] = total / (num_shards * narrower)
        merged[step] += generator.normal(size=dim) * np.sqrt(square / (num_shards * narrower))
    return mean + merged @ root.T


def semiparametric_as_printed(draws: np.ndarray) -> np.ndarray:
    """Run algorithm 1 with the weights of section 3.3."""
    generator = np.random.default_rng(0)
    num_shards, num_draws, dim = draws.shape
    scales = draws.std(axis=1).mean(axis=0)
    scaled = draws / scales
    mean, covariance = gaussian_product(scaled)
    precision = np.linalg.inv(covariance)
    squares = np.einsum("kij,kij->ki", scaled, scaled)
    extras = minus_log_gaussians(scaled)
    indices = generator.integers(num_draws, size=num_shards)
    total = scaled[np.arange(num_shards), indices].sum(axis=0)
    merged = np.empty((num_draws, dim))

    def log_gaussian(total: np.ndarray, wide: np.ndarray) -> float:
        off = total / num_shards - mean
        return -0.5 * (off @ wide @ off)

    for step in range(num_draws):
        square = (step + 1) ** (-2 / (4 + dim))
        wide = np.linalg.inv(covariance + square / num_shards * np.eye(dim))
        norm, gaussian = total @ total, log_gaussian(total, wide)
        proposals = generator.integers(num_draws, size=num_shards)
        levels = np.log(generator.random(num_shards))
        for shard in range(num_shards):
            now, other = indices[shard], proposals[shard]
            moved = total + (scaled[shard, other] - scaled[shard, now])
            new, new_gaussian = moved @ moved, log_gaussian(moved, wide)
            gain = (
                extras[shard, other]
                - extras[shard, now]
                - (squares[shard, other] - squares[shard, now] - (new - norm) / num_shards)
                / (2 * square)
                + new_gaussian
                - gaussian
            )
            if levels[shard] < gain:
                indices[shard], total, norm, gaussian = other, moved, new, new_gaussian
        component = np.linalg.inv(num_shards / square * np.eye(dim) + precision)
        centre = component @ (total / square + precision @ mean)
        merged[step] = centre + np.linalg.cholesky(component) @ generator.normal(size=dim)
    return merged * scales


CASES = {
    "Consensus": (Consensus(), [consensus]),
    "Parametric": (Parametric(), [parametric]),
    "Semiparametric": (Semiparametric(), [semiparametric_as_printed, semiparametric]),
}


def main(num_shards: int, num_draws: int, dim: int, repeats: int) -> None:
    generator = np.random.default_rng(0)
    roots = np.eye(dim) + 0.3 * generator.normal(size=(num_shards, dim, dim)) / np.sqrt(dim)
    draws = generator.normal(size=(num_shards, num_draws, dim)) @ roots
    draws += 0.3 * generator.normal(size=(num_shards, 1, dim))
    shards = Subposteriors(jnp.asarray(draws), Product({"theta": vcmc.Real(dim)}))
    mean, covariance = gaussian_product(draws)
    whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T

    def error(merged: np.ndarray) -> float:
        return float(np.sqrt(np.mean((((merged - mean) @ whiten).var(axis=0) - 1) ** 2)))

    say(f"{num_shards} shards, {num_draws} draws, {dim} dimensions; seconds, medians of {repeats}")
    say("| | first call | later | plain | plain / first | plain / later | error | error of plain |")
    say("|---|---|---|---|---|---|---|---|")
    for name, (combiner, plains) in CASES.items():
        begin = time.perf_counter()
        own_error = error(np.asarray(combiner(shards).draws))
        first = time.perf_counter() - begin
        functions = {"vcmc": lambda combiner=combiner: combiner(shards).draws.block_until_ready()}
        functions |= {plain.__name__: lambda plain=plain: plain(draws) for plain in plains}
        seconds = in_turns(functions, repeats)
        for plain in plains:
            ours, theirs = seconds["vcmc"], seconds[plain.__name__]
            say(
                f"| {name}, {plain.__name__} | {first:.3f} | {ours:.3f} | {theirs:.3f} | "
                f"{theirs / first:.1f} | {theirs / ours:.1f} | {own_error:.3f} | "
                f"{error(plain(draws)):.3f} |"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=20, help="number of shards")
    parser.add_argument("--draws", type=int, default=10_000, help="draws per shard")
    parser.add_argument("--dim", type=int, default=50, help="number of dimensions")
    parser.add_argument("--repeats", type=int, default=3, help="runs whose median is taken")
    options = parser.parse_args()
    main(options.shards, options.draws, options.dim, options.repeats)
