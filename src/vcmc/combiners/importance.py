"""Importance sampling on top of another combiner: points near its draws, weighed by the full-data log density.

Nemeth and Sherlock, *Merging MCMC subposteriors through Gaussian-process approximations* (2018), weigh draws of an approximation to
the merged posterior by the full posterior. Their approximation is a Gaussian process; here it is a Student t with the mean and the
covariance of another combiner's draws (`proposals.py`). Weights are Pareto-smoothed, which also tells whether they can be trusted
(`diagnostics/importance.py`).
"""

from typing import cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..diagnostics.importance import smoothed_weights
from ..samplers.proposals import Proposal, resampled
from ..space import Product
from ..target import Target
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .consensus import Consensus

MAX_K = (
    0.7  # shape of the ratios' tail: above, the number of draws that weights need grows out of hand
)


class ImportanceResample(AbstractCombiner):
    """Points near another combiner's draws, resampled by their importance weights.

    Args:
        start: the combiner whose draws say where to propose points; by default `Consensus()`. What it needs of the shards is
            needed here too.
        num_proposals: points at which the full-data log density is evaluated; by default twice the number of draws.
    """

    start: AbstractCombiner
    num_proposals: int | None
    # not of the class, as in other combiners: it depends on the start
    needs: Needs = eqx.field(default=Needs(target=True, streams=True), static=True, repr=False)  # type: ignore[misc]

    def __init__(self, start: AbstractCombiner | None = None, num_proposals: int | None = None):
        self.start = Consensus() if start is None else start
        self.num_proposals = num_proposals
        if isinstance(self.start, AbstractCombiner):
            self.needs = self.start.needs._replace(target=True)

    def __check_init__(self) -> None:
        if not isinstance(self.start, AbstractCombiner):
            raise TypeError(
                f"start must be such as vcmc.combiners.Consensus(); got {self.start!r}."
            )
        if self.num_proposals is not None and not (
            isinstance(self.num_proposals, int) and self.num_proposals > 0
        ):
            raise ValueError(
                f"num_proposals must be a whole number above 0; got {self.num_proposals!r}."
            )

    def check(self, space: Product) -> None:
        self.start.check(space)

    def combine(self, shards: Subposteriors) -> Combined:
        begun = self.start(shards)
        generator = np.random.default_rng((shards.seed, 3))
        proposal = Proposal.of(np.asarray(begun.draws))
        count = self.num_proposals or 2 * shards.num_draws
        points, log_ratios = proposal.propose(
            count, cast(Target, shards.target), generator, shards.advance
        )
        if not np.isfinite(log_ratios).any():
            note = (
                f"the full-data log density is not finite at any of {count} points near the draws of {type(self.start).__name__}, "
                "which were left as they are: try another start."
            )
            return Combined(begun.draws, notes=[*begun.notes, note])
        weights, shape = smoothed_weights(log_ratios - np.max(log_ratios))
        chosen = points[resampled(weights, shards.num_draws, generator)]
        doubts = _doubts(shape, 1 / np.sum(weights**2), count)
        return Combined(jnp.asarray(chosen), notes=[*begun.notes, *doubts] if doubts else [])


def _doubts(shape: float, num_effective: float, count: int) -> list[str]:
    if shape <= MAX_K:
        return []
    return [
        f"importance weights are not to be trusted: their Pareto k is {shape:.2f} (good: below {MAX_K}), and {count} points are worth "
        f"{num_effective:.0f} effective draws. The start's draws are too far from the posterior, or too narrow: try another start, or refine."
    ]
