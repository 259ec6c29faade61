r"""The Weierstrass sampler: smooth the shards' draws, and keep what pairs of shards agree on.

Wang and Dunson, *Parallelizing MCMC via Weierstrass sampler* (2013). Shards are multiplied two by two, and the products again, as in
a tree. With Gaussian kernels of covariance $H_1$ and $H_2$ on the draws of two shards, the product of the smoothed densities is a
mixture over all pairs of draws,

$$\sum_{t_1, t_2} e^{-\frac 1 2 d^\top (H_1 + H_2)^{-1} d} \, N\bigl(\theta \mid t_1 + H_1 (H_1 + H_2)^{-1} d, \; H_1 (H_1 + H_2)^{-1} H_2\bigr),
\qquad d = t_2 - t_1,$$

so that pairs are kept by how near their draws are, and a point between them is drawn. The paper keeps a pair with the probability
$e^{\cdots}$; here that is divided by the largest of all pairs tried, as shards that lie apart would keep none.

Kernels would make shards wider than they are. So draws are first pulled towards their mean, by $\sqrt{1 - h^2}$ where the kernel has
$h^2$ of the shard's covariance, which the two together then keep (West, *Approximating posterior distributions by mixtures*, 1993).
Gaussian shards stay as they are for any $h$, and with $h = 1$ the product is that of Gaussians. Along directions in which a shard is
wider than its partner, by a factor of $1 / \lambda$ in variance, its kernel has only $\lambda h^2 / (1 - h^2 + \lambda h^2)$ of its
covariance: what matters is how it looks where the partner has its draws.

Where the model is at hand, the draws can be refined (`auxiliary.py`).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..samplers.proposals import resampled
from .auxiliary import check_partition, refined
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussian, Gaussians
from .pairs import multiplied

NUM_PILOT = 2**13  # pairs by which the bandwidth is chosen
NUM_HALVINGS = 10
REACH = 5.0  # standard deviations of two kernels, beyond which a pair counts for less than e^-12
BLOCK = 2**17  # pairs at once
WIDE = 0.7  # bandwidth above which a shard keeps less than √(1 - 0.7²)³ = 36 % of its skewness
FAR = 6.0  # standard deviations between two shards that say different things


class Weierstrass(AbstractCombiner):
    """Draws of the product of smoothed shards, from pairs of draws that lie near each other.

    Args:
        num_tries: pairs tried for every draw that is made. The more, the narrower kernels can be in many dimensions.
        refinement: rounds of Gibbs sampling on the shards' own log densities, which need the model.
        refinement_bandwidth: the kernel's width in these rounds, in standard deviations of a shard. The smaller, the less bias
            is left, and the more rounds are needed: about 1 / bandwidth².
    """

    num_tries: int = 100
    refinement: int = 0
    refinement_bandwidth: float = 0.3

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """The model only if there is something to refine."""
        return Needs(target=self.refinement > 0)

    def __check_init__(self) -> None:
        if self.num_tries < 1:
            raise ValueError(f"num_tries must be at least 1; got {self.num_tries}.")
        if self.refinement < 0:
            raise ValueError(
                f"refinement must be a number of rounds, or 0 for none; got {self.refinement}."
            )
        if not 0 < self.refinement_bandwidth <= 1:
            raise ValueError(
                f"refinement_bandwidth must lie above 0 and not above 1; got {self.refinement_bandwidth}. Try 0.3."
            )

    def combine(self, shards: Subposteriors) -> Combined:
        if self.refinement:
            check_partition(shards)
        generator = np.random.default_rng(shards.seed)
        gaussians = Gaussians.of(shards)
        bandwidths, distances = [], []

        def product(first: _Cloud, second: _Cloud, count: int) -> _Cloud:
            draws, bandwidth = _product(
                first, second, (shards.num_draws, count), self.num_tries, generator
            )
            bandwidths.append(bandwidth)
            distances.append(_distance(first.gaussian, second.gaussian))
            shards.advance()
            return _Cloud.of(draws)

        draws = multiplied(_leaves(shards, gaussians), shards.num_draws, _log_volume, product).draws
        if self.refinement:
            draws = refined(
                draws, shards, gaussians, self.refinement, self.refinement_bandwidth, generator
            )
        notes = _far_apart(max(distances))
        if not (notes or self.refinement):
            notes = _hidden(float(np.median(bandwidths)), shards.space.dim)
        return Combined(jnp.asarray(draws), notes=notes)


class _Cloud(NamedTuple):
    """Draws, and the Gaussian that they look like."""

    draws: Float[np.ndarray, "draw dim"]
    gaussian: Gaussian

    @classmethod
    def of(cls, draws: Float[np.ndarray, "draw dim"]) -> "_Cloud":
        return cls(draws, Gaussian(draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))))


class _Kernel(NamedTuple):
    """The kernels of one shard: in `basis`, whose columns span its covariance, they are diagonal."""

    mean: Float[np.ndarray, " dim"]
    basis: Float[np.ndarray, "dim dim"]
    inverse: Float[np.ndarray, "dim dim"]
    ratios: Float[np.ndarray, " dim"]

    @classmethod
    def of(cls, gaussian: Gaussian, common: Float[np.ndarray, "dim dim"]) -> "_Kernel":
        root = np.linalg.cholesky(gaussian.covariance)
        inverse = np.linalg.inv(root)
        ratios, vectors = np.linalg.eigh(inverse @ common @ inverse.T)
        return cls(gaussian.mean, root @ vectors, vectors.T @ inverse, np.clip(ratios, 1e-12, 1.0))

    def shares(self, bandwidth: float) -> Float[np.ndarray, " dim"]:
        """The kernel's share of the shard's variance."""
        narrow = bandwidth**2 * self.ratios
        return narrow / (1 - bandwidth**2 + narrow)

    def covariance(self, bandwidth: float) -> Float[np.ndarray, "dim dim"]:
        return self.basis * self.shares(bandwidth) @ self.basis.T

    def pulled(
        self, draws: Float[np.ndarray, "draw dim"], bandwidth: float
    ) -> Float[np.ndarray, "draw dim"]:
        """Draws with the rest of the variance."""
        pull = self.basis * np.sqrt(1 - self.shares(bandwidth)) @ self.inverse
        return self.mean + (draws - self.mean) @ pull.T


def _leaves(shards: Subposteriors, gaussians: Gaussians) -> list[_Cloud]:
    """The shards, spread by as much as the covariance of few draws makes products too narrow."""
    covariances = np.linalg.inv(gaussians.precisions)
    leaves = []
    for shard, draws in enumerate(shards):
        mean = gaussians.means[shard]
        widening = np.sqrt(covariances[shard, 0, 0] / gaussians.covariances[shard, 0, 0])
        leaves.append(_Cloud(mean + widening * (draws - mean), Gaussian(mean, covariances[shard])))
    return leaves


def _log_volume(cloud: _Cloud) -> float:
    """How much room a shard takes."""
    return float(np.linalg.slogdet(cloud.gaussian.covariance)[1])


def _product(
    first: _Cloud,
    second: _Cloud,
    num_draws: tuple[int, int],
    num_tries: int,
    generator: np.random.Generator,
) -> tuple[Float[np.ndarray, "draw dim"], float]:
    """Draws of the product of two shards, and the bandwidth; as many as are known of a shard, or more inside the tree."""
    num_known, num_made = num_draws
    precisions = [np.linalg.inv(cloud.gaussian.covariance) for cloud in (first, second)]
    common = 2 * np.linalg.inv(precisions[0] + precisions[1])
    smooth = _Smooth(
        [generator.permutation(cloud.draws) for cloud in (first, second)],
        [_Kernel.of(cloud.gaussian, common) for cloud in (first, second)],
        generator.permutation(max(len(first.draws), len(second.draws))),
        num_tries,
        num_known,
    )
    bandwidth = _bandwidth(smooth)
    pairs = smooth.pairs(bandwidth)
    left, right = pairs.at(resampled(pairs.weights(), num_made, generator))
    towards = np.linalg.solve(pairs.total, pairs.covariances[0])
    between = pairs.covariances[1] @ towards
    noise = Gaussian(np.zeros(len(between)), (between + between.T) / 2).draws(num_made, generator)
    return left + (right - left) @ towards + noise, bandwidth


class _Pairs(NamedTuple):
    """Pairs to try: draw i of the one and draw i + shift of the other, for every shift."""

    left: Float[np.ndarray, "left dim"]
    right: Float[np.ndarray, "right dim"]
    covariances: list[Float[np.ndarray, "dim dim"]]
    shifts: Int[np.ndarray, " shift"]

    @property
    def total(self) -> Float[np.ndarray, "dim dim"]:
        return self.covariances[0] + self.covariances[1]

    def weights(self) -> Float[np.ndarray, " pair"]:
        """How near the draws of every pair are, relative to the nearest."""
        whiten = np.linalg.inv(np.linalg.cholesky(self.total)).T
        left, right = self.left @ whiten, self.right @ whiten
        squares = np.empty((len(self.shifts), len(left)))
        at_once = max(1, BLOCK // len(left))
        for start in range(0, len(self.shifts), at_once):
            shifts = self.shifts[start : start + at_once, None]
            difference = left - right[(np.arange(len(left)) + shifts) % len(right)]
            squares[start : start + at_once] = np.einsum("sni,sni->sn", difference, difference)
        return np.exp(-0.5 * (squares - squares.min())).ravel()

    def at(
        self, pairs: Int[np.ndarray, " pair"]
    ) -> tuple[Float[np.ndarray, "pair dim"], Float[np.ndarray, "pair dim"]]:
        """The two draws of some pairs."""
        shifts, numbers = np.divmod(pairs, len(self.left))
        return self.left[numbers], self.right[(numbers + self.shifts[shifts]) % len(self.right)]


class _Smooth(NamedTuple):
    """Two shards to be smoothed, their draws in random order."""

    draws: list[Float[np.ndarray, "_ dim"]]
    kernels: list[_Kernel]
    order: Int[np.ndarray, " number"]
    num_tries: int
    num_known: int

    def pairs(self, bandwidth: float) -> _Pairs:
        """Pairs of pulled draws, without those draws that are out of reach for all of the other shard."""
        covariances = [kernel.covariance(bandwidth) for kernel in self.kernels]
        pulled = [
            kernel.pulled(each, bandwidth)
            for kernel, each in zip(self.kernels, self.draws, strict=True)
        ]
        margin = REACH * np.sqrt(np.diag(covariances[0] + covariances[1]))
        near = [
            each[
                ((each >= other.min(axis=0) - margin) & (each <= other.max(axis=0) + margin)).all(
                    axis=1
                )
            ]
            for each, other in zip(pulled, reversed(pulled), strict=True)
        ]
        left, right = near if min(len(each) for each in near) else pulled
        if len(left) < len(right):
            left, right, covariances = right, left, covariances[::-1]
        return _Pairs(
            left, right, covariances, self.order[self.order < len(right)][: self.num_tries]
        )


def _bandwidth(smooth: _Smooth) -> float:
    """Silverman's rule, or the least bandwidth at which there are as many different pairs to keep as draws."""
    dim = len(smooth.kernels[0].mean)

    def silverman(count: int) -> float:
        return float(min(count, smooth.num_known) ** (-1 / (4 + dim)))

    def enough(bandwidth: float) -> bool:
        pairs = smooth.pairs(bandwidth)
        some = pairs._replace(
            left=pairs.left[:NUM_PILOT], shifts=pairs.shifts[: max(1, NUM_PILOT // len(pairs.left))]
        )
        return bool(np.mean(some.weights()) * len(pairs.shifts) >= 1)

    low = silverman(min(len(draws) for draws in smooth.draws))
    low, high = silverman(len(smooth.pairs(low).right)), 1.0
    if enough(low):
        return low
    for _ in range(NUM_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _distance(first: Gaussian, second: Gaussian) -> float:
    """How many standard deviations two shards lie apart, beyond what is usual in so many dimensions."""
    difference = first.mean - second.mean
    square = difference @ np.linalg.solve(first.covariance + second.covariance, difference)
    return float(np.sqrt(max(0.0, square - 2 * len(difference))))


def _far_apart(distance: float) -> list[str]:
    """A warning if there were shards with hardly any draws in common."""
    if distance <= FAR:
        return []
    return [
        f"some shards lie {distance:.0f} standard deviations apart: no pair of their draws agrees, and the result rests on the shape "
        "of kernels. Check whether rows are shuffled, and doubt the result."
    ]


def _hidden(bandwidth: float, dim: int) -> list[str]:
    """A warning if kernels were so wide that they hid the shards' shapes."""
    if bandwidth <= WIDE:
        return []
    return [
        f"in {dim} dimension{'s' * (dim > 1)}, pairs of draws hardly ever agree: kernels had to be {bandwidth:.2f} as wide as the shards, and the "
        "result is hardly better than a product of Gaussians. Try more draws, more num_tries, or Variational()."
    ]
