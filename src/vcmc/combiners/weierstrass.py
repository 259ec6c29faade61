r"""The Weierstrass sampler: smooth the shards' draws, and keep pairs of draws that agree.

Wang and Dunson, *Parallelizing MCMC via Weierstrass sampler* (2013). Shards are multiplied in a
tree of pairs. With Gaussian kernels of covariance $H_1$ and $H_2$ on the draws of two shards, the
product of the smoothed densities is a mixture over all pairs of draws,

$$\sum_{t_1, t_2} e^{-\frac 1 2 d^\top (H_1 + H_2)^{-1} d} \,
N\bigl(\theta \mid t_1 + H_1 (H_1 + H_2)^{-1} d, \; H_1 (H_1 + H_2)^{-1} H_2\bigr),
\qquad d = t_2 - t_1,$$

so that pairs are kept by how close their draws are, and a point between them is drawn. The paper
keeps a pair with probability $e^{\cdots}$; here this is divided by the largest of all pairs tried,
as shards that lie apart would keep none.

Kernels would widen the shards. So draws are first shrunk towards their mean by $\sqrt{1 - h^2}$,
where the kernel has a share $h^2$ of the shard's covariance, so that both together have the shard's
covariance (West, *Approximating posterior distributions by mixtures*, 1993). Gaussian shards are
unchanged for any $h$, and $h = 1$ gives the product of Gaussians. Along directions in which a shard
is wider than its partner, by a factor of $1 / \lambda$ in variance, its kernel has a share of only
$\lambda h^2 / (1 - h^2 + \lambda h^2)$: what matters is its shape where the partner has draws.

Given the model, the draws can be refined (`auxiliary.py`).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..samplers.proposals import systematic_resample
from .auxiliary import check_partition, refine
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussian, Gaussians
from .pairs import multiply_pairs

NUM_PILOT_PAIRS = 2**13  # by which the bandwidth is chosen
NUM_BISECTIONS = 10  # of the range of bandwidths
MAX_PAIR_SD = 5.0  # of two kernels: pairs farther apart have weights below e^-12
BATCH_PAIRS = 2**17  # evaluated at once
MAX_BANDWIDTH = 0.7  # above, a shard keeps less than √(1 - 0.7²)³ = 36 % of its skewness
MAX_DISTANCE_SD = 6.0  # between shards: beyond, they contradict each other


class Weierstrass(AbstractCombiner):
    """Draws from the product of the smoothed shards, made of pairs of nearby draws.

    Args:
        num_tries: pairs tried per draw. The more, the narrower kernels can be in many dimensions.
        refinement: rounds of Gibbs sampling on the shards' own log densities, which need the model.
        refinement_bandwidth: width of the kernel in these rounds, in sds of a shard. The smaller,
            the less bias remains, and the more rounds are needed: about 1 / bandwidth².
    """

    num_tries: int = 100
    refinement: int = 0
    refinement_bandwidth: float = 0.3

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """The target is needed for refinement only."""
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
                "refinement_bandwidth must be above 0 and at most 1; got "
                f"{self.refinement_bandwidth}. Try 0.3."
            )

    def combine(self, shards: Subposteriors) -> Combined:
        if self.refinement:
            check_partition(shards)
        generator = np.random.default_rng(shards.seed)
        gaussians = Gaussians.of(shards)
        bandwidths, distances = [], []

        def product(first: _Node, second: _Node, count: int) -> _Node:
            pair = _ShardPair.of(first, second, self.num_tries, shards.num_draws, generator)
            bandwidth = _bandwidth(pair)
            bandwidths.append(bandwidth)
            distances.append(_distance(first.gaussian, second.gaussian))
            draws = _sample(pair.pairs(bandwidth), count, generator)
            shards.advance()
            return _Node.of(draws)

        leaves = _leaves(shards, gaussians)
        draws = multiply_pairs(leaves, shards.num_draws, _log_volume, product).draws
        if self.refinement:
            draws = refine(
                draws, shards, gaussians, self.refinement, self.refinement_bandwidth, generator
            )
        notes = _distance_warnings(max(distances))
        if not (notes or self.refinement):
            notes = _bandwidth_warnings(float(np.median(bandwidths)), shards.space.dim)
        return Combined(jnp.asarray(draws), notes=notes)


class _Node(NamedTuple):
    """Draws of a shard or of a product, and their Gaussian approximation."""

    draws: Float[np.ndarray, "draw dim"]
    gaussian: Gaussian

    @classmethod
    def of(cls, draws: Float[np.ndarray, "draw dim"]) -> "_Node":
        return cls(draws, Gaussian(draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))))


class _Kernel(NamedTuple):
    """The kernels of one shard: diagonal in `basis`, whose columns span its covariance.

    `ratios` are the λ of the module's docstring.
    """

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
        """Return the kernel's shares of the shard's variances."""
        narrow = bandwidth**2 * self.ratios
        return narrow / (1 - bandwidth**2 + narrow)

    def covariance(self, bandwidth: float) -> Float[np.ndarray, "dim dim"]:
        return self.basis * self.shares(bandwidth) @ self.basis.T

    def shrink(
        self, draws: Float[np.ndarray, "draw dim"], bandwidth: float
    ) -> Float[np.ndarray, "draw dim"]:
        """Shrink draws to the remaining shares of the shard's variances."""
        matrix = self.basis * np.sqrt(1 - self.shares(bandwidth)) @ self.inverse
        return self.mean + (draws - self.mean) @ matrix.T


def _leaves(shards: Subposteriors, gaussians: Gaussians) -> list[_Node]:
    """Return the shards, widened as the bias of precisions from few draws requires."""
    covariances = np.linalg.inv(gaussians.precisions)
    leaves = []
    for shard, draws in enumerate(shards):
        mean = gaussians.means[shard]
        factor = np.sqrt(covariances[shard, 0, 0] / gaussians.covariances[shard, 0, 0])
        leaves.append(_Node(mean + factor * (draws - mean), Gaussian(mean, covariances[shard])))
    return leaves


def _log_volume(node: _Node) -> float:
    """Return the log determinant of the covariance."""
    return float(np.linalg.slogdet(node.gaussian.covariance)[1])


class _Pairs(NamedTuple):
    """Candidate pairs: draw i of one shard and draw i + shift of the other, for every shift."""

    left: Float[np.ndarray, "left dim"]
    right: Float[np.ndarray, "right dim"]
    covariances: list[Float[np.ndarray, "dim dim"]]
    shifts: Int[np.ndarray, " shift"]

    @property
    def total(self) -> Float[np.ndarray, "dim dim"]:
        """The sum of the kernels' covariances."""
        return self.covariances[0] + self.covariances[1]

    def weights(self) -> Float[np.ndarray, " pair"]:
        """Return the weight of every pair, relative to the closest."""
        whitening = np.linalg.inv(np.linalg.cholesky(self.total)).T
        left, right = self.left @ whitening, self.right @ whitening
        squares = np.empty((len(self.shifts), len(left)))
        num_shifts = max(1, BATCH_PAIRS // len(left))
        for start in range(0, len(self.shifts), num_shifts):
            shifts = self.shifts[start : start + num_shifts, None]
            differences = left - right[(np.arange(len(left)) + shifts) % len(right)]
            squares[start : start + num_shifts] = np.einsum("sni,sni->sn", differences, differences)
        return np.exp(-0.5 * (squares - squares.min())).ravel()

    def at(
        self, indices: Int[np.ndarray, " pair"]
    ) -> tuple[Float[np.ndarray, "pair dim"], Float[np.ndarray, "pair dim"]]:
        """Return both draws of some pairs."""
        shifts, positions = np.divmod(indices, len(self.left))
        partners = (positions + self.shifts[shifts]) % len(self.right)
        return self.left[positions], self.right[partners]


class _ShardPair(NamedTuple):
    """Two shards to be multiplied, with their draws in random order.

    Attributes:
        draws: draws of both shards.
        kernels: kernels of both shards.
        order: random order of the shifts of `_Pairs`.
        num_tries: number of shifts.
        num_original: draws of the shards that the tree started from.
    """

    draws: list[Float[np.ndarray, "_ dim"]]
    kernels: list[_Kernel]
    order: Int[np.ndarray, " shift"]
    num_tries: int
    num_original: int

    @classmethod
    def of(
        cls,
        first: _Node,
        second: _Node,
        num_tries: int,
        num_original: int,
        generator: np.random.Generator,
    ) -> "_ShardPair":
        precisions = [np.linalg.inv(node.gaussian.covariance) for node in (first, second)]
        common = 2 * np.linalg.inv(precisions[0] + precisions[1])
        return cls(
            [generator.permutation(node.draws) for node in (first, second)],
            [_Kernel.of(node.gaussian, common) for node in (first, second)],
            generator.permutation(max(len(first.draws), len(second.draws))),
            num_tries,
            num_original,
        )

    def pairs(self, bandwidth: float) -> _Pairs:
        """Return pairs of shrunk draws, without draws out of reach of the other shard."""
        covariances = [kernel.covariance(bandwidth) for kernel in self.kernels]
        shrunk = [
            kernel.shrink(draws, bandwidth)
            for kernel, draws in zip(self.kernels, self.draws, strict=True)
        ]
        margin = MAX_PAIR_SD * np.sqrt(np.diag(covariances[0] + covariances[1]))
        near = [
            _near(draws, partner, margin)
            for draws, partner in zip(shrunk, reversed(shrunk), strict=True)
        ]
        left, right = near if min(len(draws) for draws in near) else shrunk
        if len(left) < len(right):
            left, right, covariances = right, left, covariances[::-1]
        shifts = self.order[self.order < len(right)][: self.num_tries]
        return _Pairs(left, right, covariances, shifts)


def _near(
    draws: Float[np.ndarray, "draw dim"],
    partner: Float[np.ndarray, "partner dim"],
    margin: Float[np.ndarray, " dim"],
) -> Float[np.ndarray, "near dim"]:
    """Return the draws within a margin of the partner's bounding box."""
    low, high = partner.min(axis=0) - margin, partner.max(axis=0) + margin
    return draws[((draws >= low) & (draws <= high)).all(axis=1)]


def _sample(
    pairs: _Pairs, num_draws: int, generator: np.random.Generator
) -> Float[np.ndarray, "draw dim"]:
    """Draw pairs by their weights, and a point between the two draws of each."""
    left, right = pairs.at(systematic_resample(pairs.weights(), num_draws, generator))
    matrix = np.linalg.solve(pairs.total, pairs.covariances[0])
    covariance = pairs.covariances[1] @ matrix
    noise = Gaussian(np.zeros(len(covariance)), (covariance + covariance.T) / 2)
    return left + (right - left) @ matrix + noise.draws(num_draws, generator)


def _bandwidth(shards: _ShardPair) -> float:
    """Return Silverman's rule, or the least bandwidth with as many distinct pairs as draws."""
    dim = len(shards.kernels[0].mean)

    def silverman(count: int) -> float:
        return float(min(count, shards.num_original) ** (-1 / (4 + dim)))

    def suffices(bandwidth: float) -> bool:
        pairs = shards.pairs(bandwidth)
        num_shifts = max(1, NUM_PILOT_PAIRS // len(pairs.left))
        pilot = pairs._replace(left=pairs.left[:NUM_PILOT_PAIRS], shifts=pairs.shifts[:num_shifts])
        return bool(np.mean(pilot.weights()) * len(pairs.shifts) >= 1)

    low = silverman(min(len(draws) for draws in shards.draws))
    low, high = silverman(len(shards.pairs(low).right)), 1.0
    if suffices(low):
        return low
    for _ in range(NUM_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _distance(first: Gaussian, second: Gaussian) -> float:
    """Return the distance of two shards in sds, corrected for the dimension."""
    difference = first.mean - second.mean
    square = difference @ np.linalg.solve(first.covariance + second.covariance, difference)
    return float(np.sqrt(max(0.0, square - 2 * len(difference))))


def _distance_warnings(distance: float) -> list[str]:
    """Return a warning if some shards had hardly any draws in common."""
    if distance <= MAX_DISTANCE_SD:
        return []
    return [
        f"Some shards lie {distance:.0f} standard deviations apart: no pair of their draws agrees, "
        "and the result depends on the shape of the kernels. Do not rely on it; were the rows "
        "shuffled?"
    ]


def _bandwidth_warnings(bandwidth: float, dim: int) -> list[str]:
    """Return a warning if the kernels were so wide that they hid the shards' shapes."""
    if bandwidth <= MAX_BANDWIDTH:
        return []
    return [
        f"In {dim} dimension{'s' * (dim > 1)}, pairs of draws hardly ever agree: kernels had to be "
        f"{bandwidth:.2f} times as wide as the shards, and the result is hardly better than a "
        "product of Gaussians. Try more draws, more num_tries, or Variational()."
    ]
