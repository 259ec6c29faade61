r"""Student-t proposals for importance sampling, and systematic resampling.

$$\log w(u) = \log p(u) - \log q(u), \qquad
  \log q(u) = -\frac{\nu + d}{2} \log \Bigl(1 + \frac{\lVert z \rVert^2}{\nu}\Bigr)
  + \text{const},$$

where $z$ is the point $u$ in coordinates in which the draws are white. Weights need a
known density: that of combined draws is unknown, so points are drawn from a Student t with their
mean and covariance.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from ..linalg.stein import Draws
from ..linalg.whitening import Whitening
from ..target import Target

MAX_POINTS = 500  # per evaluation of the target


class Proposals(NamedTuple):
    """Points and their log importance ratios, -inf where the target is not finite."""

    points: Draws
    log_ratios: Float[np.ndarray, " draw"]


class Proposal(NamedTuple):
    """A multivariate Student t with tails slightly heavier than a Gaussian's in any dimension.

    Attributes:
        whitening: the location and the scale of the draws.
        freedom: degrees of freedom.
        wide: if not zero, every other point is drawn from a t that is so many times as wide, and
            the density is that of the mixture: it sees mass that the draws miss.
    """

    whitening: Whitening
    freedom: float
    wide: float = 0.0

    @classmethod
    def of(cls, draws: Draws, wide: float = 0.0) -> "Proposal":
        """Return the proposal with the location and the scale of draws."""
        return cls(Whitening.from_draws(draws), 10.0 + draws.shape[1], wide)

    def propose(
        self,
        count: int,
        target: Target,
        generator: np.random.Generator,
        advance: Callable[[], None] = lambda: None,
    ) -> Proposals:
        """Draw points and compute their log ratios; `advance` is called after each evaluation."""
        batches = []
        for first in range(0, count, MAX_POINTS):
            batches.append(self._propose(min(MAX_POINTS, count - first), target, generator))
            advance()
        return Proposals(*(np.concatenate(part) for part in zip(*batches, strict=True)))

    def _propose(self, count: int, target: Target, generator: np.random.Generator) -> Proposals:
        dim = len(self.whitening.centre)
        normal = generator.normal(size=(count, dim))
        white = normal / np.sqrt(generator.chisquare(self.freedom, size=(count, 1)) / self.freedom)
        if self.wide:
            white[::2] *= self.wide
        points = self.whitening.unwhiten(white)
        values, _ = target(jnp.asarray(points))
        log_ratios = np.asarray(values) - self._log_density(white)
        return Proposals(points, np.where(np.isfinite(log_ratios), log_ratios, -np.inf))

    def log_density(self, points: Draws) -> Float[np.ndarray, " draw"]:
        """Return the log density of points, up to the constant in `log_normalizer`."""
        return self._log_density(np.asarray(self.whitening.whiten(points)))

    @property
    def log_normalizer(self) -> float:
        """The logarithm of the integral of the density over all points."""
        dim = len(self.whitening.centre)
        half = 0.5 * self.freedom
        log_student = (
            gammaln(half) - gammaln(half + 0.5 * dim) + 0.5 * dim * np.log(self.freedom * np.pi)
        )
        log_det = np.linalg.slogdet(self.whitening.root_rows)[1]
        return float(log_student + log_det + (np.log(2.0) if self.wide else 0.0))

    def _log_density(self, white: Draws) -> Float[np.ndarray, " draw"]:
        """Return the log density of whitened points, up to a constant."""
        dim = white.shape[1]

        def student(squares: np.ndarray) -> np.ndarray:
            return -0.5 * (self.freedom + dim) * np.log1p(squares / self.freedom)

        squares = np.sum(white**2, axis=1)
        if not self.wide:
            return student(squares)
        return np.logaddexp(
            student(squares), student(squares / self.wide**2) - dim * np.log(self.wide)
        )


def systematic_resample(
    weights: Float[np.ndarray, " draw"], count: int, generator: np.random.Generator
) -> Int[np.ndarray, " chosen"]:
    """Return indices chosen by their weights: systematic resampling, in random order."""
    cumulative = np.cumsum(weights)
    positions = (generator.uniform() + np.arange(count)) / count * cumulative[-1]
    chosen = np.searchsorted(cumulative, positions).clip(max=len(weights) - 1)
    return generator.permutation(chosen)
