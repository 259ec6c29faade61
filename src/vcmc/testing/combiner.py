"""The laws of a combiner.

A single shard is returned unchanged; equal Gaussian shards are combined exactly; unequal numbers of
draws are handled or refused; the same seed gives the same draws; and a combiner that declares that
it streams holds one shard at a time.
"""

from dataclasses import replace

import numpy as np

from ..combiners import AbstractCombiner, Subposteriors
from .gaussians import Gaussian, GaussianShards, LazyShards
from .law import Law, name_of

MAX_ERROR_SE = 4.0  # standard errors of a mean or an sd: exceeded by chance once in 16 000
NUM_RUNS = 8  # independent runs of a combiner that smooths
MAX_RUN_ERROR_SE = 7.0  # of their average: exceeded once in 5 000 by Student's t with 7 degrees
RUN_DRAWS = 1500  # draws per shard in each run
MAX_RMS_ERROR = 0.15  # in sds, of single runs of a combiner that smooths


def check_combiner(
    combiner: AbstractCombiner,
    *,
    smooths: float = 0.0,
    may_refuse: bool = True,
    uses_seed: bool = False,
    num_draws: int = 20_000,
) -> None:
    """Raise `LawError` unless a combiner obeys the laws of combiners.

    Args:
        combiner: the combiner.
        smooths: tolerated bias of a combiner that estimates densities, in sds for means and
            relative for sds; it is averaged over eight runs. By default the combiner must be exact
            up to the Monte Carlo error of its draws.
        may_refuse: whether shards with unequal numbers of draws may be refused by a `ValueError`.
        uses_seed: whether the combiner is random, so that another seed must give other draws.
        num_draws: draws of each of the six Gaussian shards that must be combined exactly.
    """
    one_shard(combiner)
    same_seed(combiner, uses_seed)
    unequal_counts(combiner, may_refuse)
    if combiner.needs.streams:
        streaming(combiner)
    if smooths:
        right_on_average(combiner, GaussianShards.random(1, 4, seed=4).repeated(6), smooths)
    else:
        for dim in (1, 4):
            exact(combiner, GaussianShards.random(1, dim, seed=dim).repeated(6), num_draws)


def _law(combiner: AbstractCombiner, statement: str, hint: str) -> Law:
    return Law(name_of(combiner), statement, hint)


def one_shard(combiner: AbstractCombiner) -> None:
    """Check that a single shard is returned unchanged."""
    law = _law(
        combiner,
        "a single shard is returned unchanged",
        "implement combine, for two shards or more, and do not override __call__.",
    )
    shards = GaussianShards.random(1, 3).subposteriors(100)
    law.close(combiner(shards).draws, np.asarray(shards.draws[0]), rtol=1e-9, atol=1e-12)


def moment_errors(draws: np.ndarray, posterior: Gaussian) -> np.ndarray:
    """Return the errors of means, in sds, followed by the relative errors of sds."""
    sds = np.sqrt(np.diag(posterior.covariance))
    return np.concatenate(
        [(np.mean(draws, axis=0) - posterior.mean) / sds, np.std(draws, axis=0) / sds - 1]
    )


def _posterior(combiner: AbstractCombiner, shards: GaussianShards) -> Gaussian:
    """Return the posterior of equal shards; each shard with a powered likelihood is one itself."""
    if combiner.needs.prior == "powered":
        return Gaussian(shards.means[0], shards.covariances[0])
    return shards.product()


def exact(combiner: AbstractCombiner, shards: GaussianShards, num_draws: int) -> None:
    """Equal Gaussian shards, whose draws have the moments of the shards, are combined exactly."""
    law = _law(
        combiner,
        f"exact on {len(shards.means)} equal Gaussian shards of dimension {shards.dim} "
        "(errors of means in sds, then relative errors of sds)",
        "compare means and sds of the combined draws with those of the product; for a combiner "
        "that estimates densities pass e.g. smooths=0.03.",
    )
    draws = np.asarray(combiner(shards.subposteriors(num_draws)).draws)
    law.has_shape(draws, (num_draws, shards.dim), "draws")
    bound = MAX_ERROR_SE / np.sqrt(num_draws * np.repeat([1, 2], shards.dim))
    law.close(
        moment_errors(draws, _posterior(combiner, shards)), np.zeros(2 * shards.dim), atol=bound
    )


def right_on_average(combiner: AbstractCombiner, shards: GaussianShards, allowance: float) -> None:
    """Check that errors average to zero over runs, up to Monte Carlo error and an allowance."""
    law = _law(
        combiner,
        f"right on average on {len(shards.means)} Gaussian shards of dimension {shards.dim} "
        "(errors of means in sds, then relative errors of sds)",
        "compare means and sds of the combined draws with those of the product; a smaller "
        "bandwidth smooths less.",
    )
    posterior, runs = _posterior(combiner, shards), []
    target = shards.target() if combiner.needs.target else None
    for seed in range(NUM_RUNS):
        subposteriors = replace(shards.independent(RUN_DRAWS, seed), target=target)
        draws = np.asarray(combiner(subposteriors).draws)
        law.has_shape(draws, (RUN_DRAWS, shards.dim), "draws")
        runs.append(moment_errors(draws, posterior))
    noise = np.std(runs, axis=0, ddof=1) / np.sqrt(NUM_RUNS)
    tolerance = MAX_RUN_ERROR_SE * noise + allowance
    law.close(np.mean(runs, axis=0), np.zeros(2 * shards.dim), atol=tolerance)
    rms = float(np.sqrt(np.mean(np.square(runs))))
    law.holds(rms < MAX_RMS_ERROR, f"errors of a run below {MAX_RMS_ERROR}", f"{rms:.3g}")


def unequal_counts(combiner: AbstractCombiner, may_refuse: bool) -> None:
    """Check that unequal numbers of draws are handled, or refused by a `ValueError`."""
    law = _law(
        combiner,
        "unequal numbers of draws are handled, or refused with a ValueError",
        "iterate over shards, which gives each shard's own draws, or use shards.stacked, which "
        "repeats draws of shorter shards; return shards.num_draws draws.",
    )
    full = GaussianShards.random(4, 2).subposteriors(2000)
    counts = [2000, 700, 1300, 2000]
    unequal = [draws[:count] for draws, count in zip(full, counts, strict=True)]
    try:
        combined = combiner(Subposteriors(unequal, full.space, full.target))
    except Exception as error:
        if may_refuse and isinstance(error, ValueError):
            return
        raise law.broken(
            "draws" + " or a ValueError" * may_refuse, f"{type(error).__name__}: {error}"
        ) from error
    equal = np.asarray(combiner(full).draws)
    law.has_shape(combined.draws, (2000, 2), "draws")
    mean_errors = (np.mean(combined.draws, axis=0) - equal.mean(axis=0)) / equal.std(axis=0)
    # the standard error of a mean of 700 draws is 1/26 sd; four times that of a difference of two
    law.close(mean_errors, np.zeros(2), atol=4 * np.sqrt(2 / 700) * np.sqrt(len(counts)))


def same_seed(combiner: AbstractCombiner, uses_seed: bool) -> None:
    """Check that draws depend on the seed alone, and do depend on it if it is used."""
    same = _law(
        combiner,
        "the same seed gives the same draws",
        "draw all random numbers from np.random.default_rng(shards.seed) or "
        "jax.random.key(shards.seed).",
    )
    shards = GaussianShards.random(3, 2).subposteriors(500)
    first = np.asarray(combiner(shards).draws)
    same.holds(
        first.shape == (500, 2) and np.isfinite(first).all(),
        "500 finite draws of 2 coordinates",
        f"shape {first.shape}, {(~np.isfinite(first)).sum()} numbers not finite",
    )
    same.close(combiner(shards).draws, first)
    if uses_seed:
        other = np.asarray(combiner(replace(shards, seed=shards.seed + 1)).draws)
        law = _law(
            combiner, "another seed gives other draws", "derive all randomness from shards.seed."
        )
        law.holds(not np.array_equal(first, other), "other draws", "the same")


def streaming(combiner: AbstractCombiner) -> None:
    """Check that a combiner that streams holds one shard at a time."""
    law = _law(
        combiner,
        "a combiner with needs.streams holds one shard at a time",
        "iterate over shards and keep no draws (the loop variable keeps the last shard's, and "
        "num_draws may load all); or set streams=False.",
    )
    shards = GaussianShards.random(8, 2).subposteriors(100)
    loaded = LazyShards(shards.draws)
    draws = combiner(replace(shards, draws=loaded)).draws
    # the next shard is loaded before the last one is released
    law.holds(
        loaded.most <= 2, "the draws of two shards in memory at most", f"those of {loaded.most}"
    )
    law.close(draws, combiner(shards).draws, rtol=1e-12)
