r"""Proposals for importance sampling: a Student t with the mean and the scale of draws, and resampling of its points.

$$\log w(u) = \log p(u) - \log q(u), \qquad \log q(u) = -\frac{\nu + d}{2} \log \Bigl(1 + \frac{\lVert z \rVert^2}{\nu}\Bigr) + \text{const},$$

where $z$ is the point $u$ in coordinates in which the draws are white. Draws that were combined have no density that is known;
those of the Student t do, so that weights are right.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..linalg.stein import Draws
from ..linalg.whitening import Whitening
from ..target import Target

NUM_AT_ONCE = 500  # points of one evaluation of the target


class Proposals(NamedTuple):
    """Points, and the logarithms of their importance ratios; minus infinity where the target is not finite."""

    points: Draws
    log_ratios: Float[np.ndarray, " draw"]


class Proposal(NamedTuple):
    """A Student t, whose tails are a little heavier than a Gaussian's, in any number of dimensions."""

    frame: Whitening
    freedom: float

    @classmethod
    def of(cls, draws: Draws) -> "Proposal":
        """The one that lies where draws do, and is as wide."""
        return cls(Whitening.from_draws(draws), 10.0 + draws.shape[1])

    def propose(
        self,
        count: int,
        target: Target,
        generator: np.random.Generator,
        advance: Callable[[], None] = lambda: None,
    ) -> Proposals:
        """Points and their ratios."""
        parts = []
        for first in range(0, count, NUM_AT_ONCE):
            parts.append(self._propose(min(NUM_AT_ONCE, count - first), target, generator))
            advance()
        return Proposals(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _propose(self, count: int, target: Target, generator: np.random.Generator) -> Proposals:
        dim = len(self.frame.centre)
        normal = generator.normal(size=(count, dim))
        white = normal / np.sqrt(generator.chisquare(self.freedom, size=(count, 1)) / self.freedom)
        points = self.frame.unwhiten(white)
        values, _ = target(jnp.asarray(points))
        log_density = (
            -0.5 * (self.freedom + dim) * np.log1p(np.sum(white**2, axis=1) / self.freedom)
        )
        log_ratios = np.asarray(values) - log_density
        return Proposals(points, np.where(np.isfinite(log_ratios), log_ratios, -np.inf))


def resampled(
    weights: Float[np.ndarray, " draw"], count: int, generator: np.random.Generator
) -> Int[np.ndarray, " chosen"]:
    """Which are chosen by their weights: systematic resampling, in random order."""
    cumulative = np.cumsum(weights)
    places = (generator.uniform() + np.arange(count)) / count * cumulative[-1]
    chosen = np.searchsorted(cumulative, places).clip(max=len(weights) - 1)
    return generator.permutation(chosen)
