r"""Jumps between modes: independent proposals from a mixture of Student t, one for every mode.

A jump from $u$ to $u'$ is accepted with the probability
$\min(1, p(u') g(u) / (p(u) g(u')))$, where $g = \sum_j w_j t_j$ (Tjelmeland and Hegstad, *Mode
jumping proposals in MCMC*, 2001, have more elaborate ones). Between jumps, chains explore a mode.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ..linalg.whitening import Whitening
from .proposals import Proposal

FREEDOM = 5.0  # degrees, and the number of coordinates on top: tails wider than a mode's


class ModeMixture(NamedTuple):
    """A Student t for every mode, and the modes' weights."""

    proposals: tuple[Proposal, ...]
    weights: Float[np.ndarray, " mode"]

    @classmethod
    def around(
        cls,
        centres: Float[np.ndarray, "mode dim"],
        precisions: Float[np.ndarray, "mode dim dim"],
        weights: Float[np.ndarray, " mode"],
    ) -> "ModeMixture":
        """Return the mixture around modes with the given precisions."""
        proposals = []
        for centre, precision in zip(centres, precisions, strict=True):
            root = Whitening.from_curvature(centre, precision).root
            proposals.append(Proposal(Whitening(centre, root), FREEDOM + len(centre)))
        return cls(tuple(proposals), weights / weights.sum())

    def draw(self, count: int, generator: np.random.Generator) -> Float[np.ndarray, "draw dim"]:
        """Return independent draws, whose modes are in random order."""
        return self.draw_from(generator.choice(len(self.weights), count, p=self.weights), generator)

    def draw_from(
        self, modes: Sequence[int] | np.ndarray, generator: np.random.Generator
    ) -> Float[np.ndarray, "draw dim"]:
        """Return a draw from each of the given modes."""
        dim = len(self.proposals[0].whitening.centre)
        normal = generator.normal(size=(len(modes), dim))
        freedom = self.proposals[0].freedom
        white = normal / np.sqrt(generator.chisquare(freedom, (len(modes), 1)) / freedom)
        points = np.empty_like(white)
        for mode in np.unique(modes):
            chosen = np.asarray(modes) == mode
            points[chosen] = np.asarray(self.proposals[mode].whitening.unwhiten(white[chosen]))
        return points

    def log_density(self, points: Float[np.ndarray, "point dim"]) -> Float[np.ndarray, " point"]:
        """Return the log density of points."""
        parts = [
            proposal.log_density(points) - proposal.log_normalizer + np.log(weight)
            for proposal, weight in zip(self.proposals, self.weights, strict=True)
            if weight > 0
        ]
        return np.asarray(logsumexp(np.stack(parts), axis=0))
