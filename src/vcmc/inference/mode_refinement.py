"""Refine draws of a posterior with several modes: chains on all rows that jump between them."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..diagnostics import convergence
from ..diagnostics.mode_regions import ModeDraws, ModeRegions
from ..diagnostics.sampling_error import DrawSource
from ..linalg.whitening import Whitening
from ..samplers.mixture import ModeMixture
from ..target import Target
from .ensemble import Goal, Jumps, Run, run_chains

NUM_PROPOSALS = 200  # per mode, to estimate the weights with which chains start and jump
Points = Float[np.ndarray, "chain draw dim"]


def jumping_chains(
    regions: ModeRegions,
    target: Target,
    goal: Goal,
    seed: int,
    advance: Callable[[], None],
) -> Run:
    """Run chains that start at the modes, by their weights, and jump between them."""
    generator = np.random.default_rng((seed, 7))
    mixture = ModeMixture.around(
        regions.centres, regions.precisions, _weights(regions, target, generator)
    )
    starts = np.resize(np.arange(len(mixture.weights)), goal.num_chains)
    by_weight = np.repeat(
        np.arange(len(mixture.weights)), np.floor(mixture.weights * goal.num_chains).astype(int)
    )
    starts[: len(by_weight)] = by_weight
    points = mixture.draw_from(starts, generator)
    return run_chains(target, points, goal, seed, advance, points, Jumps(mixture, _scale(regions)))


def _weights(
    regions: ModeRegions, target: Target, generator: np.random.Generator
) -> Float[np.ndarray, " mode"]:
    """Return rough weights of the modes, by importance sampling from their Student t."""
    even = ModeMixture.around(regions.centres, regions.precisions, np.ones(len(regions.centres)))
    points = even.draw(NUM_PROPOSALS * len(regions.centres), generator)
    log_ratios = np.asarray(target(jnp.asarray(points))[0]) - even.log_density(points)
    log_ratios = np.where(np.isfinite(log_ratios), log_ratios, -np.inf)
    ratios = np.exp(log_ratios - log_ratios.max())
    shares = np.exp(regions.log_shares(points))
    weights = ratios @ shares
    # chains start in every mode, and may jump to it
    return np.maximum(weights / weights.sum(), 0.5 / NUM_PROPOSALS)


def _scale(regions: ModeRegions) -> Whitening:
    """Return coordinates in which the hills have unit width, on average of their precisions."""
    precision = np.mean(regions.precisions, axis=0)
    return Whitening.from_curvature(regions.centres.mean(axis=0), precision)


def visited_modes(points: Points, regions: ModeRegions, seed: int) -> ModeDraws:
    """Return the modes of draws of chains, with the shares of draws as weights.

    A draw is from mode j with the probability $r_j$, so that those with the label j are draws of
    the part of the target near it.
    """
    flat = points.reshape(-1, points.shape[2])
    shares = np.exp(regions.log_shares(flat))
    uniform = np.random.default_rng((seed, 8)).uniform(size=(len(flat), 1))
    labels = np.minimum((np.cumsum(shares, axis=1) < uniform).sum(axis=1), shares.shape[1] - 1)
    counts = np.bincount(labels, minlength=shares.shape[1])
    indicators = shares.reshape(*points.shape[:2], -1)
    ess = np.nan_to_num(convergence.ess(indicators[None])[0], nan=1.0)
    weights = shares.mean(axis=0)
    errors = np.sqrt(weights * (1 - weights) / np.maximum(ess, 1.0))
    ess_of_all = float(np.nanmin(convergence.ess(points[None])))
    sources = tuple(DrawSource(max(1.0, ess_of_all * count / len(flat))) for count in counts)
    return ModeDraws(
        labels, regions, weights, errors, np.zeros(len(weights)), sources, ("",) * len(weights)
    )


def visits(points: Points, modes: ModeDraws) -> str:
    """Return a sentence on how many chains have visited every mode."""
    labels = modes.labels.reshape(points.shape[:2])
    parts = [
        f"mode {mode} by {int((labels == mode).any(axis=1).sum())} of {len(labels)} chains"
        for mode in range(len(modes.weights))
    ]
    return f"The chains have visited {', '.join(parts)}."
