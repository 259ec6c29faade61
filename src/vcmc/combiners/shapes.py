r"""Give combined draws the shape of the target, where averages and affine maps lack it.

Where evaluating the target is cheap, a triangular map of a normal is learned
(`variational/bends.py`). Its density $q$ is known, so the posterior's draws are proposals of it,
resampled by their weights $p / q$, which corrects what the map lacks. The base of proposals is a
Student t, whose tails cover more than the map's, at evenly spaced points, and resampling is
systematic in the order of the first coordinate: marginals are then closer to the target's than
those of independent draws.

The draws replace the averages only if the map's objective is higher than the affine map's, if the
Pareto k of the weights is below 0.7, if they are worth a good share of independent ones, and if
neither the shards' draws nor lines along the coordinates show mass that the map misses. Elsewhere,
and where evaluating the target is not cheap, draws are moved to the target's marginal shapes
(`variational/marginal_shapes.py`).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, stdtrit

from ..diagnostics.importance import smoothed_weights
from ..linalg.sobol import sobol_points
from ..linalg.stein import Draws
from ..samplers.proposals import systematic_resample
from ..target import Target
from ..variational.bends import MIN_GAIN, BentFit, fit_bend, lack_bends, orders
from ..variational.marginal_shapes import MAX_SHAPED_DIM, shape_draws
from ..variational.triangular import TriangularMap
from .base import Subposteriors

MAX_BENT_DIM = 10  # coordinates: bends have a parameter for all pairs of those before
MAX_BENT_BYTES = 2**22  # of all rows: learning a map and resampling takes some 30 000 evaluations
NUM_TEST_POINTS = 128  # draws whose scores suggest an order of the coordinates
NUM_PILOT = 512  # proposals by which a map is judged before all are evaluated
MAX_PROPOSALS = 20_000
GOOD_DIVERGENCE = 0.1  # nats between the map and the target, below which no other order is tried
MAX_PARETO_K = 0.7  # below it, smoothed weights can be trusted
EVEN_WEIGHT = 5.0  # times the mean: where no weight is larger, the shape of their tail is noise
MIN_EFFECTIVE_SHARE = 0.3  # of the proposals
BASE_FREEDOM = 5.0  # degrees of freedom of the base of proposals, and one more for every coordinate
NUM_SHARD_POINTS = 256  # draws of the shards at which the map's density is compared
# Nats, of weights at points where the density is not negligible. A slab that was missed, which made
# an sd wrong by 16 %, showed weights of 2.5 to 7 along its line.
MAX_MISSED_RATIO = 2.0
NEGLIGIBLE_FALL = 5.0  # nats below the median log density of the draws
MAX_MISSED_SHARE = 0.01  # of the mass and the variance along a line, at points with such weights
LINE_NODES = np.sinh(np.linspace(-5.0, 5.0, 41))  # sds from the draws' mean

BENT_SETTINGS = ("bent_pareto_k", "bent_ess", "bent_gain", "bent_evaluations")

LogRatios = Float[np.ndarray, " draw"]


@dataclass(frozen=True)
class Shaped:
    """Draws with the target's shape.

    Attributes:
        draws: the draws.
        exact: how they were made, if they are exact up to Monte Carlo error.
        settings: what the result records.
    """

    draws: Draws
    exact: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def shaped(draws: Draws, shards: Subposteriors, evaluated: tuple[Draws, Draws] | None) -> Shaped:
    """Return combined draws with the target's shape, if they lack it.

    Args:
        draws: the combined draws.
        shards: what they were combined from.
        evaluated: points at which the target was evaluated before, and its scores there.
    """
    target = cast(Target, shards.target)
    if is_cheap(target):
        # an optimizer that did not settle has evaluated nothing near its end
        if evaluated is not None and not lack_bends(draws, *evaluated):
            return Shaped(draws)
        try:
            points, scores = evaluated or _scores_at_some(draws, target, shards.seed)
            bent = _bent(draws, points, scores, shards)
        except np.linalg.LinAlgError:  # degenerate draws have no affine map to start from
            bent = None
        if bent is not None:
            return bent
    is_labelled = bool(shards.space.labelled())
    if evaluated is None or is_labelled or draws.shape[1] > MAX_SHAPED_DIM:
        return Shaped(draws)
    return Shaped(shape_draws(draws, *evaluated, target=target, seed=shards.seed))


def is_cheap(target: Target) -> bool:
    """Return whether a bent map of a target can be learned in seconds."""
    is_small = target.shard_cache.partition.is_small(MAX_BENT_BYTES)
    return is_small and target.model.local is None and target.model.space.dim <= MAX_BENT_DIM


def _scores_at_some(draws: Draws, target: Target, seed: int) -> tuple[Draws, Draws]:
    chosen = np.random.default_rng((seed, 6)).permutation(len(draws))[:NUM_TEST_POINTS]
    return draws[chosen], np.asarray(target(jnp.asarray(draws[chosen]))[1])


def _bent(draws: Draws, points: Draws, scores: Draws, shards: Subposteriors) -> Shaped | None:
    """Return resampled draws of a bent map, or None if none is good enough."""
    target = cast(Target, shards.target)
    fits: list[BentFit] = []
    is_close = False
    for order in orders(draws, points, scores):
        fits.append(fit_bend(draws, order, target, np.random.default_rng((shards.seed, 7))))
        pilot = _Proposals.of(fits[-1].map, target, NUM_PILOT, shards.seed)
        is_close = pilot.are_good and pilot.log_mean - fits[-1].objective < GOOD_DIVERGENCE
        if is_close:
            break
    best = fits[-1] if is_close else max(fits, key=_finite_objective)
    # where the affine map is far off, single points make the difference noisy
    if not (best.is_better or (is_close and best.gain[0] > MIN_GAIN)):
        return None
    if not is_close and not _Proposals.of(best.map, target, NUM_PILOT, shards.seed).are_good:
        return None
    proposals = _Proposals.of(best.map, target, min(len(draws), MAX_PROPOSALS), shards.seed)
    if not proposals.are_good or _misses_mass(best.map, proposals, shards):
        return None
    num_evaluations = sum(fit.num_evaluations for fit in fits) + len(proposals.points)
    exact = (
        f"The draws are resampled from {len(proposals.points)} proposals of a bent map (Pareto k "
        f"{proposals.pareto_k:.2f}, {proposals.ess:.0f} effective draws)."
    )
    numbers = proposals.pareto_k, proposals.ess, best.gain[0], num_evaluations
    settings = dict(zip(BENT_SETTINGS, numbers, strict=True))
    return Shaped(proposals.resampled(len(draws), shards.seed), exact, settings)


def _finite_objective(fit: BentFit) -> float:
    return fit.objective if np.isfinite(fit.objective) else -np.inf


class _Proposals(NamedTuple):
    """Points of a map with a Student t base, and their weights.

    Attributes:
        base: base points.
        points: the points.
        values: log densities of the target there.
        weights: normalized weights, smoothed.
        pareto_k: the shape of their tail.
        log_mean: the logarithm of the mean ratio of the densities.
    """

    base: Draws
    points: Draws
    values: LogRatios
    weights: LogRatios
    pareto_k: float
    log_mean: float

    @classmethod
    def of(cls, bent: TriangularMap, target: Target, count: int, seed: int) -> "_Proposals":
        """Evaluate the target at proposals of a map."""
        dim = len(bent.order)
        levels = sobol_points(count, dim, np.random.default_rng((seed, 8)))
        base = stdtrit(BASE_FREEDOM + dim, levels)
        with np.errstate(all="ignore"):  # far from all mass
            points, log_det = bent(base)
            values = np.asarray(target(jnp.asarray(points))[0])
            log_ratios = values + log_det - _base_log_density(base)
        log_ratios = np.where(np.isfinite(log_ratios), log_ratios, -np.inf)
        if not np.isfinite(log_ratios).any():
            return cls(base, points, values, np.full(count, 1 / count), np.inf, -np.inf)
        largest = log_ratios.max()
        weights, shape = smoothed_weights(log_ratios - largest)
        log_mean = float(largest + np.log(np.mean(np.exp(log_ratios - largest))))
        return cls(base, points, values, weights, shape, log_mean)

    @property
    def ess(self) -> float:
        """The number of independent draws that the proposals are worth."""
        return float(1 / np.sum(self.weights**2))

    @property
    def are_good(self) -> bool:
        """Whether the weights can be trusted, and are even."""
        count = len(self.points)
        is_even = self.weights.max() * count < EVEN_WEIGHT
        is_even = is_even or self.pareto_k < MAX_PARETO_K
        is_known = np.isfinite(self.log_mean)
        return bool(is_known and is_even and self.ess / count > MIN_EFFECTIVE_SHARE)

    def resampled(self, count: int, seed: int) -> Draws:
        """Return draws by systematic resampling along the first coordinate, in random order."""
        order = np.argsort(self.base[:, 0])
        generator = np.random.default_rng((seed, 9))
        return self.points[order[systematic_resample(self.weights[order], count, generator)]]


def _base_log_density(base: Draws) -> LogRatios:
    """Return the log density of base points: independent Student t coordinates."""
    freedom = BASE_FREEDOM + base.shape[1]
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(freedom * np.pi)
    logs = constant - 0.5 * (freedom + 1) * np.log1p(base**2 / freedom)
    return np.asarray(logs.sum(axis=1))


def _misses_mass(bent: TriangularMap, proposals: _Proposals, shards: Subposteriors) -> bool:
    """Return whether the target has density elsewhere that the map hardly has.

    Shards are wider than the posterior, so that their draws reach what a map that has settled on
    one part of the posterior does not. Lines along the coordinates reach slabs and heavy tails.
    """
    stacked = np.asarray(shards.stacked).reshape(-1, shards.space.dim)
    generator = np.random.default_rng((shards.seed, 10))
    near = stacked[generator.permutation(len(stacked))[:NUM_SHARD_POINTS]]
    points = np.concatenate([near, _lines(proposals)])
    target = cast(Target, shards.target)
    with np.errstate(all="ignore"):
        values = np.asarray(target(jnp.asarray(points))[0])
        base, log_det = bent.inverse(points)
        log_ratios = values + log_det - _base_log_density(base) - proposals.log_mean
    falls = values - np.median(proposals.values)
    is_missed = np.isfinite(falls) & ~(log_ratios < MAX_MISSED_RATIO)
    if np.any(is_missed[: len(near)] & (falls[: len(near)] > -NEGLIGIBLE_FALL)):
        return True
    masses = np.exp(np.nan_to_num(falls[len(near) :], nan=-np.inf)).reshape(len(LINE_NODES), -1)
    # mass and variance between nodes, whose distances grow
    masses *= ((1 + LINE_NODES**2) ** 1.5)[:, None]
    missed = masses * is_missed[len(near) :].reshape(masses.shape)
    return bool(np.any(missed.sum(axis=0) > MAX_MISSED_SHARE * masses.sum(axis=0)))


def _lines(proposals: _Proposals) -> Draws:
    """Return points on lines through the mean, along which others follow a coordinate."""
    mean = proposals.weights @ proposals.points
    deviations = proposals.points - mean
    covariance = (deviations * proposals.weights[:, None]).T @ deviations
    directions = covariance / np.sqrt(np.diag(covariance))[:, None]
    return np.asarray((mean + LINE_NODES[:, None, None] * directions).reshape(-1, len(mean)))
