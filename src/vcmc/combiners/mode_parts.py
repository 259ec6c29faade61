r"""Draws of the posterior near one mode, and their mass.

The draws of a shard near mode j are its draws, resampled with the weights $r_j(u)^{1/K}$: those of
K shards multiply to $p \, r_j$ (`diagnostics/mode_regions.py`). A shard with hardly a draw there,
because its own rows prefer another mode, or because nobody has sampled it there, gets draws of the
mode's Gaussian, K times as flat. The full-data scores of $p \, r_j$ correct means, covariances and
marginal shapes of what is combined of them.

The mass is estimated by importance sampling from a Student t that is fitted to these draws. Where
the ratios show that the part is not Gaussian, and can be trusted, the part's draws are proposals,
resampled; where they cannot be trusted, the mass comes from bridge sampling.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..diagnostics.bridge import LogIntegral, bridge_estimate, importance_estimate
from ..diagnostics.convergence import ess
from ..diagnostics.importance import smoothed_weights
from ..diagnostics.mode_regions import ModeRegions, RegionTarget
from ..diagnostics.sampling_error import DrawSource
from ..linalg.whitening import MIN_DRAWS_PER_DIM, Whitening
from ..samplers.proposals import Proposal, Proposals, systematic_resample
from ..target import Target
from .base import Subposteriors
from .variational import Variational

MIN_LOCAL_DRAWS = 30  # effective draws of a shard near a mode
MIN_LOCAL_SHARE = 0.05  # largest r_j^(1/K) of a shard's draws: below, it has none near the mode
NUM_GAUSSIAN_DRAWS = 400  # in place of a shard's
NUM_PILOT_PROPOSALS = 500  # evaluated to estimate the mass
WIDTHS = (2.0, 3.0)  # of every other proposal, where a part is not Gaussian
MIN_FITTED = 20.0  # effective proposals, per coordinate, for a fit
MAX_PARETO_K = 0.5  # below it, the variance of the ratios is finite
# Sd, in nats, of the log ratio of a part and a Gaussian, up to which the part is taken for one: its
# distance in total variation is 0.4 times that, and combined draws have some of the part's shape.
MAX_DEVIATION = 0.1
MIN_RESAMPLED = 400.0  # effective proposals, for draws made of them
PROPOSAL_MARGIN = 1.1  # factor on their number that the pilot implies

Draws = Float[np.ndarray, "draw dim"]


class ModePart(NamedTuple):
    """Draws near a mode.

    Attributes:
        draws: the draws.
        log_mass: the log of the integral of the part.
        pareto_k: the Pareto k of the importance ratios.
        exact: how the draws were made, if they are exact up to Monte Carlo error.
        resampled: proposals and their weights, if draws are made of them.
        source: where the draws come from, if they are combined ones.
        notes: warnings.
    """

    draws: Draws
    log_mass: LogIntegral
    pareto_k: float
    exact: str = ""
    resampled: tuple[Draws, Float[np.ndarray, " draw"]] | None = None
    source: DrawSource | None = None
    notes: tuple[str, ...] = ()

    def take(self, count: int, generator: np.random.Generator) -> tuple[Draws, DrawSource]:
        """Return some draws, and where they come from."""
        if self.resampled is not None:
            points, weights = self.resampled
            effective = min(float(count), 1 / float(np.sum(weights**2)))
            chosen = systematic_resample(weights, count, generator)
            return points[chosen], DrawSource(effective)
        indices = generator.permutation(len(self.draws))
        indices = np.resize(indices, count)
        source = self.source or DrawSource(float(count))
        return _with_moments(self.draws[indices], self.draws), source.subset(indices)


def part_near(
    shards: Subposteriors, target: Target, regions: ModeRegions, mode: int, budget: int, goal: float
) -> ModePart:
    """Return draws near a mode, and its mass.

    Args:
        shards: the shards' draws.
        target: the full-data target.
        regions: the regions of all modes.
        mode: the number of the mode.
        budget: the largest number of proposals that draws are made of.
        goal: effective draws to reach, where draws are made of proposals.
    """
    generator = np.random.default_rng((shards.seed, 5, mode))
    region = RegionTarget(target, regions, mode)
    local = [
        near_draws(np.asarray(draws), regions, mode, shards.num_shards, generator)
        for draws in shards
    ]
    num_draws = shards.num_posterior_draws or shards.num_draws
    seed = shards.seed + mode
    notes: tuple[str, ...] = ()
    if len(local) == 1:
        draws = local[0]
        effective = ess(draws[None, None])
        source = DrawSource(max(1.0, float(np.nanmin(effective))))
    else:
        near = Subposteriors(local, shards.space, region, seed, shards.advance, None, num_draws)
        combined = Variational()(near)
        draws, notes = np.asarray(combined.draws), tuple(combined.notes)
        counts = np.array(near.counts, dtype=float)
        source = DrawSource(float(len(draws)), combined.pairs, counts)
    part = _weighed(draws, region, generator, budget, goal)
    return part._replace(source=source, notes=() if part.exact else notes)


def near_draws(
    draws: Draws, regions: ModeRegions, mode: int, num_shards: int, generator: np.random.Generator
) -> Draws:
    """Return a shard's draws near a mode, or draws of the mode's Gaussian in their place."""
    log_weights = regions.log_shares(draws)[:, mode] / num_shards
    weights = np.exp(log_weights)
    effective = weights.sum() ** 2 / max(np.sum(weights**2), 1e-300)
    fewest = max(MIN_LOCAL_DRAWS, int(2 * MIN_DRAWS_PER_DIM * draws.shape[1] / num_shards))
    if weights.max() > MIN_LOCAL_SHARE and effective >= fewest:
        chosen = systematic_resample(weights, int(effective), generator)
        return draws[np.sort(chosen)]  # in order, so that their autocorrelation can be seen
    root = np.linalg.cholesky(num_shards * np.linalg.inv(regions.precisions[mode]))
    count = max(NUM_GAUSSIAN_DRAWS, 2 * draws.shape[1])
    return regions.centres[mode] + generator.normal(size=(count, draws.shape[1])) @ root.T


def _weighed(
    draws: Draws, region: RegionTarget, generator: np.random.Generator, budget: int, goal: float
) -> ModePart:
    """Estimate the mass of a part, and make its draws of proposals if it is not Gaussian."""
    proposal = Proposal.of(draws)
    proposals = proposal.propose(NUM_PILOT_PROPOSALS, region, generator)
    if not np.isfinite(proposals.log_ratios).any():
        return ModePart(draws, LogIntegral(-np.inf, np.inf), np.inf)
    weights, shape = smoothed_weights(proposals.log_ratios)
    if shape < MAX_PARETO_K and _deviation(proposal, proposals, weights) <= MAX_DEVIATION:
        return ModePart(draws, _log_mass(proposal, proposals), shape)
    for wide in WIDTHS:
        if 1 / np.sum(weights**2) < MIN_FITTED * draws.shape[1]:
            break
        proposal = _fitted(proposals.points, weights)._replace(wide=wide)
        proposals = proposal.propose(NUM_PILOT_PROPOSALS, region, generator)
        weights, shape = smoothed_weights(proposals.log_ratios)
        share = 1 / np.sum(weights**2) / NUM_PILOT_PROPOSALS
        count = min(int(PROPOSAL_MARGIN * max(goal, MIN_RESAMPLED) / share), budget)
        if shape < MAX_PARETO_K and count > NUM_PILOT_PROPOSALS:
            more = proposal.propose(count - NUM_PILOT_PROPOSALS, region, generator)
            pairs = zip(proposals, more, strict=True)
            proposals = Proposals(*(np.concatenate(parts) for parts in pairs))
            weights, shape = smoothed_weights(proposals.log_ratios)
        effective = 1 / np.sum(weights**2)
        if shape < MAX_PARETO_K and effective >= MIN_RESAMPLED:
            exact = (
                f"The draws are resampled from {len(weights)} proposals (Pareto k {shape:.2f}, "
                f"{effective:.0f} effective draws)."
            )
            resampled = proposals.points, weights
            return ModePart(draws, _log_mass(proposal, proposals), shape, exact, resampled)
    return _bridged(draws, proposal, proposals, region, generator, shape)


def _log_mass(proposal: Proposal, proposals: Proposals) -> LogIntegral:
    return importance_estimate(proposals.log_ratios + proposal.log_normalizer)[0]


def _fitted(points: Draws, weights: Float[np.ndarray, " draw"]) -> Proposal:
    """Return a Student t with the moments of weighted points."""
    centre = weights @ points
    steps = points - centre
    covariance = steps.T @ (weights[:, None] * steps)
    whitening = Whitening.from_curvature(centre, np.linalg.inv(covariance))
    whitening = Whitening(centre, whitening.root)
    return Proposal(whitening, 10.0 + points.shape[1])


def _deviation(
    proposal: Proposal, proposals: Proposals, weights: Float[np.ndarray, " draw"]
) -> float:
    """Return the sd of the log ratio of a part and the Gaussian of the proposals' moments."""
    white = np.asarray(proposal.whitening.whiten(proposals.points))
    gaussian = -0.5 * np.sum(white**2, axis=1) - proposal.log_density(proposals.points)
    differences = np.where(weights > 0, proposals.log_ratios - gaussian, 0.0)
    return float(np.sqrt(weights @ (differences - weights @ differences) ** 2))


def _bridged(
    draws: Draws,
    proposal: Proposal,
    proposals: Proposals,
    region: RegionTarget,
    generator: np.random.Generator,
    shape: float,
) -> ModePart:
    """Return a part whose mass is estimated by bridge sampling: it needs draws that are right."""
    chosen = draws[generator.permutation(len(draws))[:NUM_PILOT_PROPOSALS]]
    at_draws = np.asarray(region(jnp.asarray(chosen))[0]) - proposal.log_density(chosen)
    at_draws = np.where(np.isfinite(at_draws), at_draws, -np.inf)
    shift = proposal.log_normalizer
    log_mass = bridge_estimate(at_draws + shift, proposals.log_ratios + shift, float(len(chosen)))
    return ModePart(draws, log_mass, shape)


def _with_moments(draws: Draws, like: Draws) -> Draws:
    """Return draws moved to the mean and the covariance of others."""
    if not len(draws):  # of a mode with less mass than half a draw
        return draws
    own, other = Whitening.from_draws(draws), Whitening.from_draws(like)
    if not (own.is_dense and other.is_dense):
        return draws
    return np.asarray(other.unwhiten(own.whiten(draws)))
