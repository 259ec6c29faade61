"""The laws of a combiner: one shard is left alone; Gaussian shards are combined exactly; unequal numbers of draws are handled or refused; the
same seed gives the same draws; and one that says that it streams does.
"""

from dataclasses import replace

import numpy as np

from ..combiners import AbstractCombiner, Subposteriors
from .gaussians import Gaussian, GaussianShards, Lazy
from .law import Law, name_of

ERRORS = 4.0  # Monte Carlo errors that a mean or an sd may be off: passed once in 16 000
NUM_RUNS, RUN_ERRORS = 8, 7.0  # by Student's t of seven degrees of freedom, passed once in 5 000
MOST_OFF = 0.15  # in sds, of a single run of a method that smooths


def check_combiner(
    combiner: AbstractCombiner,
    *,
    smooths: float = 0.0,
    may_refuse: bool = True,
    uses_seed: bool = False,
    num_draws: int = 20_000,
) -> None:
    """Raise `LawError` unless a combiner keeps its laws.

    Args:
        combiner: the combiner.
        smooths: by how many sds means, and by what share sds, may be off on average, as the combiner estimates densities; it is then
            judged by eight runs. By default it must be exact, up to the Monte Carlo error of its draws.
        may_refuse: whether shards with different numbers of draws may be refused with a `ValueError`.
        uses_seed: whether it draws random numbers, so that another seed must give other draws.
        num_draws: how many draws each of six Gaussian shards has where the result must be exact.
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


def _law(combiner: AbstractCombiner, says: str, hint: str) -> Law:
    return Law(name_of(combiner), says, hint)


def one_shard(combiner: AbstractCombiner) -> None:
    """One shard is left alone."""
    law = _law(
        combiner,
        "one shard is left alone",
        "implement combine, for two shards or more, and leave __call__ as it is.",
    )
    shards = GaussianShards.random(1, 3).subposteriors(100)
    law.close(combiner(shards).draws, np.asarray(shards.draws[0]), rtol=1e-9, atol=1e-12)


def off(draws: np.ndarray, posterior: Gaussian) -> np.ndarray:
    """By how many sds means of draws are off, and by what share sds are, one after the other."""
    sds = np.sqrt(np.diag(posterior.covariance))
    return np.concatenate(
        [(np.mean(draws, axis=0) - posterior.mean) / sds, np.std(draws, axis=0) / sds - 1]
    )


def _posterior(combiner: AbstractCombiner, shards: GaussianShards) -> Gaussian:
    """What equal shards stand for: each of powered ones is the posterior."""
    if combiner.needs.prior == "powered":
        return Gaussian(shards.means[0], shards.covariances[0])
    return shards.product()


def exact(combiner: AbstractCombiner, shards: GaussianShards, num_draws: int) -> None:
    """Equal Gaussian shards, whose draws have the moments of the shards, are combined exactly."""
    law = _law(
        combiner,
        f"exact on {len(shards.means)} equal Gaussian shards of dimension {shards.dim} (means in sds, then sds as shares)",
        "compare means and sds of combined draws with those of the product; what estimates densities may say smooths=0.03.",
    )
    draws = np.asarray(combiner(shards.subposteriors(num_draws)).draws)
    law.has_shape(draws, (num_draws, shards.dim), "draws")
    bound = ERRORS / np.sqrt(num_draws * np.repeat([1, 2], shards.dim))
    law.close(off(draws, _posterior(combiner, shards)), np.zeros(2 * shards.dim), atol=bound)


def right_on_average(combiner: AbstractCombiner, shards: GaussianShards, allowance: float) -> None:
    """Over independent runs, errors are zero within their own Monte Carlo error, but for what smoothing may leave."""
    law = _law(
        combiner,
        f"right on average on {len(shards.means)} Gaussian shards of dimension {shards.dim} (means in sds, then sds as shares)",
        "compare means and sds of combined draws with those of the product; a smaller bandwidth smooths less.",
    )
    posterior, runs = _posterior(combiner, shards), []
    target = shards.target() if combiner.needs.target else None
    for seed in range(NUM_RUNS):
        draws = np.asarray(combiner(replace(shards.independent(1500, seed), target=target)).draws)
        law.has_shape(draws, (1500, shards.dim), "draws")
        runs.append(off(draws, posterior))
    noise = np.std(runs, axis=0, ddof=1) / np.sqrt(NUM_RUNS)
    law.close(np.mean(runs, axis=0), np.zeros(2 * shards.dim), atol=RUN_ERRORS * noise + allowance)
    size = float(np.sqrt(np.mean(np.square(runs))))
    law.holds(size < MOST_OFF, f"errors of a run below {MOST_OFF}", f"{size:.3g}")


def unequal_counts(combiner: AbstractCombiner, may_refuse: bool) -> None:
    """Shards may have unequal numbers of draws, or are refused."""
    law = _law(
        combiner,
        "unequal numbers of draws are handled, or refused with a ValueError",
        "iterate over shards, which gives each shard's draws, or use shards.stacked, which repeats those of shards with fewer; make "
        "shards.num_draws draws.",
    )
    full = GaussianShards.random(4, 2).subposteriors(2000)
    counts = [2000, 700, 1300, 2000]
    some = [draws[:count] for draws, count in zip(full, counts, strict=True)]
    try:
        combined = combiner(Subposteriors(some, full.space, full.target))
    except Exception as error:
        if may_refuse and isinstance(error, ValueError):
            return
        raise law.broken(
            "draws" + " or a ValueError" * may_refuse, f"{type(error).__name__}: {error}"
        ) from error
    same = np.asarray(combiner(full).draws)
    law.has_shape(combined.draws, (2000, 2), "draws")
    gap = (np.mean(combined.draws, axis=0) - same.mean(axis=0)) / same.std(axis=0)
    # a mean of 700 draws is off by a 26th of an sd; four errors of two such means
    law.close(gap, np.zeros(2), atol=4 * np.sqrt(2 / 700) * np.sqrt(len(counts)))


def same_seed(combiner: AbstractCombiner, uses_seed: bool) -> None:
    """The same seed gives the same draws, and another one others, where it is used."""
    same = _law(
        combiner,
        "the same seed gives the same draws",
        "draw all random numbers from np.random.default_rng(shards.seed) or jax.random.key(shards.seed).",
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
            combiner, "another seed gives other draws", "let randomness follow from shards.seed."
        )
        law.holds(not np.array_equal(first, other), "other draws", "the same")


def streaming(combiner: AbstractCombiner) -> None:
    """One that streams holds one shard at a time."""
    law = _law(
        combiner,
        "a combiner whose needs say streams holds one shard at a time",
        "iterate over shards and keep no draws (the variable of a loop keeps the last shard's, and num_draws may load all); or leave streams=False.",
    )
    shards = GaussianShards.random(8, 2).subposteriors(100)
    loaded = Lazy(shards.draws)
    merged = combiner(replace(shards, draws=loaded)).draws
    # the next is loaded before the last is let go
    law.holds(
        loaded.most <= 2, "the draws of two shards in memory at most", f"those of {loaded.most}"
    )
    law.close(merged, combiner(shards).draws, rtol=1e-12)
