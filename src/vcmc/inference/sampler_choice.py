"""The sampler of a run's chains, and what a shard has of prior and likelihood."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ..combiners import Prior
from ..density import Subposterior
from ..diagnostics.prior_tails import falls_off
from ..samplers import HMC, NUTS, AbstractSampler, Independence
from ..samplers.hmc import ADAPTIVE_WARMUP, MAX_NON_NORMALITY, MAX_NORMAL
from ..samplers.independence import MAX_FITTED_DIM, acceptance_rate
from ..samplers.whitening import MAX_WHITENED_DIM, non_normality
from ..space import Point
from ..target import Target
from .request import Request, supports_prior
from .shard_count import MAX_SHARD_NON_NORMALITY, check_normality

# Of independence sampling with local parameters, whose gradients are costly: an effective draw
# takes seven values; and without them, where it takes two.
MIN_COSTLY_ACCEPTANCE_RATE, MIN_ACCEPTANCE_RATE = 0.25, 0.7
# Of a shard: above, independent proposals seldom reach its tails. Scores correct the moments of
# several shards' combined draws, and their shapes.
MAX_COSTLY_NON_NORMALITY, MAX_INDEPENDENT_NON_NORMALITY = 1.0, 0.25
UNWHITENED_WARMUP = 300  # steps of NUTS, where the curvature does not give it a metric


class SamplerChoice(NamedTuple):
    """How shards are sampled.

    Attributes:
        sampler: the sampler.
        prior_power: the power of the prior, or those of prior and Jacobian.
        likelihood_power: the power of the likelihood.
    """

    sampler: AbstractSampler
    prior_power: float | tuple[float, float]
    likelihood_power: float


def choose_sampler(
    target: Target, request: Request, own_sampler: Any, start: Point
) -> SamplerChoice:
    """Return the sampler that the user named or the model brings, or else one for the first shard.

    Args:
        target: the full-data target.
        request: the arguments of the run.
        own_sampler: the sampler that the model brings, if it has one.
        start: the start of the chains.
    """
    prior_power, likelihood_power = shard_powers(target, request)
    sampler = request.sampler or own_sampler
    if request.sampler is not None or not (sampler is None or isinstance(sampler, NUTS)):
        return SamplerChoice(sampler, prior_power, likelihood_power)
    measure = np.inf  # unknown
    if start.size <= MAX_WHITENED_DIM:
        density = target.shard_cache.density(0, prior_power, likelihood_power)
        measure = non_normality(density, start)
        if request.may_reduce_shards:
            check_normality(measure, target.num_shards, request.executor)
        other = _other_prior_power(target, request, measure, np.asarray(start))
        if other is not None:
            changed = target.shard_cache.density(0, other, likelihood_power)
            if (closer := non_normality(changed, start)) < measure:
                measure, prior_power, density = closer, other, changed
    chosen = _nuts_or_hmc(sampler or NUTS(), measure, start.size)
    if np.isfinite(measure) and may_be_independent(target, request):
        is_one = request.total_shards(target) == 1
        chosen = _independence(density, start, measure, is_one) or chosen
    return SamplerChoice(chosen, prior_power, likelihood_power)


def shard_powers(target: Target, request: Request) -> tuple[float | tuple[float, float], float]:
    """Return the powers of the prior and of the likelihood of a shard."""
    num_shards, prior = request.total_shards(target), request.prior
    if prior == "subposterior":
        share = 1 / num_shards
        # A shard of few groups says little about their spread. Its density in log coordinates would
        # fall off like the K-th root of the Jacobian towards zero; with the Jacobian itself, the
        # shard is the subposterior of the params, and full-data scores correct for the difference.
        return share if target.model.local is None else (share, 1.0), 1.0
    return 1.0, float(num_shards) if prior == "powered" else 1.0


def _other_prior_power(
    target: Target, request: Request, non_normality: float, start: np.ndarray
) -> tuple[float, float] | None:
    """Return powers of prior and Jacobian for shards that are hard to sample, if there are any.

    A shard without an event has the K-th root of the prior of a rate, and in log coordinates a left
    tail K times as long. With the whole Jacobian it has the K-th root of the prior of the
    parameter, which must fall off: that of a heavy-tailed one does not. Full-data scores correct
    for the difference.
    """
    num_shards = request.total_shards(target)
    is_hard = non_normality > MAX_SHARD_NON_NORMALITY and num_shards > 1
    if not (is_hard and request.prior == "subposterior" and request.combiner.needs.scores):
        return None
    powers = 1 / num_shards, 1.0
    return powers if falls_off(target.model, powers, start, np.eye(len(start))).all() else None


def own_sampler_of(target: Target, prior: Prior) -> Any:
    """Return the sampler that the model brings, unless it cannot use the prior or weights."""
    sampler = target.model.suited_sampler(target.shard_cache.shards)
    if target.shard_cache.partition.is_weighted and not getattr(sampler, "takes_powers", False):
        return None
    return sampler if supports_prior(sampler, prior) else None


def _nuts_or_hmc(nuts: NUTS, non_normality: float, dim: int) -> AbstractSampler:
    """Return HMC if the first shard is close to normal, else NUTS."""
    if non_normality <= MAX_NORMAL:
        return HMC()
    if non_normality <= MAX_NON_NORMALITY:
        return HMC(num_warmup=ADAPTIVE_WARMUP)
    if nuts.whitens(dim):
        return nuts
    return eqx.tree_at(lambda sampler: sampler.num_warmup, nuts, UNWHITENED_WARMUP)


def may_be_independent(target: Target, request: Request) -> bool:
    """Return whether independence sampling may take the fewest evaluations.

    It needs no gradient and hardly a warm-up, but its draws are worth fewer: it is for few draws,
    whose moments scores correct, or for costly evaluations, with local parameters.
    """
    if request.was_independent is not None:
        return request.was_independent
    if target.model.space.dim > MAX_FITTED_DIM:
        return False
    is_brief = request.shard_draws is None and request.total_shards(target) > 1
    return target.model.local is not None or (is_brief and request.combiner.needs.scores)


def _independence(
    density: Subposterior, start: Point, non_normality: float, is_one: bool
) -> Independence | None:
    """Return independence sampling if a shard is so close to normal that it is efficient."""
    is_costly = density.model.local is not None
    may_be_far = is_costly and not is_one
    if non_normality > (MAX_COSTLY_NON_NORMALITY if may_be_far else MAX_INDEPENDENT_NON_NORMALITY):
        return None
    rate = acceptance_rate(density, start)
    least = MIN_COSTLY_ACCEPTANCE_RATE if is_costly else MIN_ACCEPTANCE_RATE
    return Independence.for_rate(rate) if rate >= least else None
