r"""Importance resampling around the draws of another combiner.

Nemeth and Sherlock, *Merging MCMC subposteriors through Gaussian-process approximations* (2018),
weight draws from an approximation of the merged posterior by the full posterior,

$$w(\theta) \propto p(\theta \mid x) / q(\theta).$$

Their approximation $q$ is a Gaussian process; here it is a Student t with the mean and the
covariance of another combiner's draws (`samplers/proposals.py`). Weights are Pareto-smoothed, which
also tells whether they can be trusted (`diagnostics/importance.py`).
"""

from typing import cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..diagnostics.importance import smoothed_weights
from ..samplers.proposals import Proposal, systematic_resample
from ..space import Product
from ..target import Target
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .consensus import Consensus

MAX_PARETO_K = 0.7  # above, the number of draws that weights need explodes (Vehtari et al. 2024)


class ImportanceResample(AbstractCombiner):
    """Draws from a Student t around another combiner's draws, resampled by importance weights.

    Args:
        start: the combiner around whose draws points are proposed; by default `Consensus()`. Its
            requirements apply here, too.
        num_proposals: points at which the full-data log density is evaluated; by default twice the
            number of draws.
    """

    start: AbstractCombiner
    num_proposals: int | None
    # A field, unlike in other combiners, as it depends on the start.
    needs: Needs = eqx.field(default=Needs(target=True, streams=True), static=True, repr=False)  # type: ignore[misc]

    def __init__(self, start: AbstractCombiner | None = None, num_proposals: int | None = None):
        self.start = Consensus() if start is None else start
        self.num_proposals = num_proposals
        if isinstance(self.start, AbstractCombiner):
            self.needs = self.start.needs._replace(target=True)

    def __check_init__(self) -> None:
        if not isinstance(self.start, AbstractCombiner):
            raise TypeError(
                f"start must be a combiner, e.g. vcmc.combiners.Consensus(); got {self.start!r}."
            )
        if self.num_proposals is not None and not (
            isinstance(self.num_proposals, int) and self.num_proposals > 0
        ):
            raise ValueError(
                f"num_proposals must be a positive integer; got {self.num_proposals!r}."
            )

    def check(self, space: Product) -> None:
        self.start.check(space)

    def combine(self, shards: Subposteriors) -> Combined:
        start = self.start(shards)
        generator = np.random.default_rng((shards.seed, 3))
        proposal = Proposal.of(np.asarray(start.draws))
        count = self.num_proposals or 2 * shards.num_draws
        target = cast(Target, shards.target)
        points, log_ratios = proposal.propose(count, target, generator, shards.advance)
        if not np.isfinite(log_ratios).any():
            note = (
                f"The full-data log density is not finite at any of {count} points near the draws "
                f"of {type(self.start).__name__}, which are returned unchanged. Try another start."
            )
            return Combined(start.draws, notes=[*start.notes, note])
        weights, pareto_k = smoothed_weights(log_ratios - np.max(log_ratios))
        draws = points[systematic_resample(weights, shards.num_draws, generator)]
        warnings = _warnings(pareto_k, 1 / np.sum(weights**2), count)
        return Combined(jnp.asarray(draws), notes=[*start.notes, *warnings] if warnings else [])


def _warnings(pareto_k: float, num_effective: float, count: int) -> list[str]:
    if pareto_k <= MAX_PARETO_K:
        return []
    return [
        f"The importance weights cannot be trusted: their Pareto k is {pareto_k:.2f} (should be "
        f"below {MAX_PARETO_K}), and {count} points are worth {num_effective:.0f} effective draws. "
        "The start's draws are too far from the posterior, or too narrow. Try another start, or "
        "refine."
    ]
