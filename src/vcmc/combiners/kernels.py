r"""Draws of a product of kernel densities, by Metropolis steps over which draw of every shard is taken.

A shard's density is smoothed by kernels that have the shape of the shard, $p_k = n_k^{-1} \sum_t N(\theta_{k,t},\, h^2 \Sigma_k)$. With
$\Lambda = \sum_k \Sigma_k^{-1}$, the product of K of them is a mixture over index tuples $t = (t_1, \ldots, t_K)$ of

$$N\bigl(m_t,\, h^2 \Lambda^{-1}\bigr), \qquad m_t = \Lambda^{-1} \sum_k \Sigma_k^{-1} \theta_{k,t_k}, \qquad
\log w_t = -\frac{1}{2 h^2} \sum_k \lVert \theta_{k,t_k} - m_t \rVert^2_{\Sigma_k^{-1}}.$$

In coordinates in which $\Lambda = K I$, and whose origin is the mean of the product of Gaussians, a weight takes two running sums: of
$u_k = \Sigma_k^{-1} \theta_{k,t_k}$, and of $\theta_{k,t_k}^\top u_k$. Chains start at random tuples, which for Gaussian shards have the
right $m_t$. A step proposes another draw of one shard, any of them being as likely; it costs O(dim). The bandwidth $h$ falls
geometrically from one to its last value in the warm-up, and all draws are made at the last; the paper, whose kernels are
$N(\theta_{k,t}, h^2 I)$, lets it fall throughout.

Kernels widen a shard by $1 + h^2$. Draws may be pulled towards their mean by $\sqrt{1 - h^2}$, so that the smoothed shard has the
covariance of its draws (West, *Approximating posterior distributions by mixtures*, 1993). Or the shard is taken for a Gaussian
$f_k$, and kernels correct it: $p_k = f_k\, n_k^{-1} \sum_t N(\theta_{k,t},\, h^2 \Sigma_k) / f_k(\theta_{k,t})$. This adds
$-\sum_k \log f_k(\theta_{k,t_k}) + \log N(m_t \mid 0, (1 + h^2) \Lambda^{-1})$ to log weights, and components become
$N\bigl(m_t / (1 + h^2),\, h^2 / (1 + h^2)\, \Lambda^{-1}\bigr)$.

The product is made of all shards at once, or in a tree: of pairs of shards, then of pairs of these products, and so on. Chains of many
shards settle in a mode before they have seen how much mass it has, chains of two change between modes: with 16 shards of two modes,
2 000 draws each, a mode that should have 0.96 had 0.89 at once and 0.95 in pairs. But errors of the tree's levels add up: with 8
Gaussian shards of 4 000 draws in 20 dimensions, corrected Gaussians lost 13 % of the variance in pairs and 1 % at once. So pairs are
for few dimensions.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .base import Subposteriors
from .gaussians import Gaussian, Gaussians

MAX_WARMUP = 200
MIN_CHAINS = 256
MAX_WORK = 2e7  # coordinates of points that are proposed in a warm-up: a tenth of a second
MAX_PAIRWISE_DIM = 2
MIN_ACCEPTANCE = 0.02  # of two shards six sds apart it is 0.01, and the sd of the draws half of what it should be


class Kernels(NamedTuple):
    """How the density of a shard is made of its draws.

    Attributes:
        bandwidth: sds of a kernel, in sds of the shard; below one.
        shrink: draws are pulled towards their mean, so that kernels do not widen the shard.
        correct: kernels correct a Gaussian.
    """

    bandwidth: float
    shrink: bool = False
    correct: bool = False


class Multiplied(NamedTuple):
    """Draws of a product, and the share of proposals that were accepted at the last bandwidth, where it was smallest."""

    draws: Float[np.ndarray, "draw dim"]
    acceptance: float


def default_bandwidth(shards: Subposteriors) -> float:
    """Scott's rule, for the shard with the fewest draws: smaller kernels would leave gaps between them."""
    return float(min(shards.counts) ** (-1 / (4 + shards.space.dim)))


def check_bandwidth(bandwidth: float | None) -> None:
    """Raise an error if kernels cannot be of this bandwidth."""
    if bandwidth is not None and not 0 < bandwidth < 1:
        raise ValueError(
            f"bandwidth is in sds of a shard, and must lie between 0 and 1; got {bandwidth}. Try 0.3, or None for a default."
        )


def doubts(product: Multiplied) -> list[str]:
    """What looks doubtful about the chains, in words."""
    if product.acceptance >= MIN_ACCEPTANCE:
        return []
    return [
        f"Chains over the shards' draws hardly move: {product.acceptance:.1%} of proposals are accepted. Shards barely overlap, or "
        "kernels are too narrow for so many dimensions. Try a larger bandwidth, more draws, or Variational()."
    ]


def multiply(shards: Subposteriors, kernels: Kernels, pairwise: bool | None) -> Multiplied:
    """Draws of the product of all shards; by default in pairs where there are few dimensions."""
    pairwise = shards.space.dim <= MAX_PAIRWISE_DIM if pairwise is None else pairwise
    generator = np.random.default_rng(shards.seed)
    num_draws, acceptance = shards.num_draws, 1.0
    while shards.num_shards > 1:
        size = 2 if pairwise else shards.num_shards
        factors = _Factors.of(shards, size, kernels)
        products, accepted = _products(factors, kernels, num_draws, generator)
        acceptance = min(acceptance, accepted)
        alone = (
            [np.asarray(shards.draws[shards.num_shards - 1])] if shards.num_shards % size else []
        )
        shards = replace(shards, draws=[*products, *alone])
        shards.advance()
    return Multiplied(np.asarray(shards.draws[0]), acceptance)


class _Factors(NamedTuple):
    """What the weights of several products of equally many factors are made of, in single precision, which is enough for weights.

    Attributes:
        points: u of every draw: those of the first product, those of the second, and so on, with room for equally many.
        squares: θᵀu.
        extras: what a draw adds to log weights besides.
        counts: how many draws there are.
        gaussians: the products of Gaussians.
    """

    points: Float[np.ndarray, "factor place dim"]
    squares: Float[np.ndarray, "factor place"]
    extras: Float[np.ndarray, "factor place"]
    counts: Int[np.ndarray, "factor product"]
    gaussians: list[Gaussian]

    @classmethod
    def of(cls, shards: Subposteriors, size: int, kernels: Kernels) -> "_Factors":
        """The factors of the products of so many neighbours each; a shard that is left over is left out."""
        all_shards = Gaussians.of(shards)
        precisions = all_shards.precisions
        num_products, room = shards.num_shards // size, shards.num_draws
        points = np.zeros((size, num_products * room, shards.space.dim), np.float32)
        squares, extras = np.zeros((2, size, num_products * room), np.float32)
        counts = all_shards.counts[: num_products * size].reshape(num_products, size).T
        pull = np.sqrt(1 - kernels.bandwidth**2) if kernels.shrink else 1.0
        gaussians = []
        source = iter(shards)
        for product in range(num_products):
            inside = slice(product * size, (product + 1) * size)
            means = all_shards.means[inside]
            covariance = np.linalg.inv(precisions[inside].sum(axis=0))
            centre = covariance @ np.einsum("kij,kj->i", precisions[inside], means)
            gaussians.append(Gaussian(centre, covariance))
            root = np.linalg.cholesky(size * covariance)
            whiten = np.linalg.inv(root)
            for factor, (mean, precision) in enumerate(zip(means, precisions[inside], strict=True)):
                draws = next(source)
                white_mean = whiten @ (mean - centre)
                matrix = root.T @ precision @ root
                both = np.hstack([whiten.T, whiten.T @ matrix])
                centred = (draws - mean).astype(np.float32) @ (pull * both).astype(np.float32)
                centred += np.concatenate([white_mean, white_mean @ matrix]).astype(np.float32)
                white, scaled = np.split(centred, 2, axis=1)
                place = slice(product * room, product * room + len(draws))
                points[factor, place] = scaled
                squares[factor, place] = np.einsum("ij,ij->i", white, scaled)
                if kernels.correct:
                    extras[factor, place] = squares[factor, place] / 2 - scaled @ white_mean
        return cls(points, squares, extras, counts, gaussians)


def _products(
    factors: _Factors, kernels: Kernels, num_draws: int, generator: np.random.Generator
) -> tuple[list[Float[np.ndarray, "draw dim"]], float]:
    """Draws of every product, chain after chain, and the share of proposals that were accepted at the last bandwidth."""
    size, num_products = factors.counts.shape
    dim = factors.points.shape[2]
    # a sweep moves m by about its own sd times the bandwidth and the root of the acceptance, which is 0.05 to 0.2
    num_warmup = min(int(20 / kernels.bandwidth**2), MAX_WARMUP)
    affordable = int(MAX_WORK / (num_warmup * factors.counts.size * dim))
    num_kept = -(-num_draws // min(max(affordable, MIN_CHAINS), num_draws))
    chains = _Chains(factors, kernels, -(-num_draws // num_kept), generator)
    for bandwidth in np.geomspace(1, kernels.bandwidth, num_warmup):
        chains.sweep(bandwidth)
    kept, accepted = [], []
    for _ in range(num_kept):
        accepted.append(chains.sweep(kernels.bandwidth))
        kept.append(chains.sums.reshape(num_products, -1, 1, dim).copy())
    narrower = 1 + kernels.bandwidth**2 if kernels.correct else 1.0
    products = []
    for gaussian, sums in zip(factors.gaussians, np.concatenate(kept, axis=2), strict=True):
        centres = sums.reshape(-1, dim)[:num_draws] / (size * narrower)
        noise = generator.normal(
            scale=kernels.bandwidth / np.sqrt(size * narrower), size=centres.shape
        )
        products.append(
            gaussian.mean + (centres + noise) @ np.linalg.cholesky(size * gaussian.covariance).T
        )
    return products, float(np.mean(accepted))


class _Chains:
    """Equally many chains for every product, all moved at once and in place.

    NumPy, and no compiled loop: it moves so many chains as fast, and there is nothing to compile.
    """

    def __init__(
        self, factors: _Factors, kernels: Kernels, num_chains: int, generator: np.random.Generator
    ) -> None:
        self.factors, self.kernels, self.generator = factors, kernels, generator
        size, num_products = factors.counts.shape
        room = factors.points.shape[1] // num_products
        self.counts = np.repeat(factors.counts, num_chains, axis=1)
        self.begins = np.repeat(np.arange(num_products) * room, num_chains)
        self.places = np.stack([self._propose(factor) for factor in range(size)])
        self.sums = np.zeros((len(self.begins), factors.points.shape[2]), np.float32)
        for points, places in zip(factors.points, self.places, strict=True):
            self.sums += points[places]
        self.norms = np.einsum("ij,ij->i", self.sums, self.sums)

    def _propose(self, factor: int) -> Int[np.ndarray, " chain"]:
        """Where a random draw of this factor stands, for every chain."""
        uniform = self.generator.random(len(self.begins))
        return self.begins + (uniform * self.counts[factor]).astype(int)

    def sweep(self, bandwidth: float) -> float:
        """Propose a draw of every factor in turn; return the share of proposals that were accepted."""
        size, num_chains = self.places.shape
        # the Gaussian's own share keeps the last bandwidth, so that chains of Gaussian shards need not widen in between
        by_norm = (1 / bandwidth**2 - self.kernels.correct / (1 + self.kernels.bandwidth**2)) / (
            2 * size
        )
        num_accepted = 0
        for factor, places in enumerate(self.places):
            proposed = self._propose(factor)
            points = self.factors.points[factor]
            sums = points.take(proposed, axis=0)
            sums -= points.take(places, axis=0)
            sums += self.sums
            norms = np.einsum("ij,ij->i", sums, sums)
            squares, extras = self.factors.squares[factor], self.factors.extras[factor]
            gains = by_norm * (norms - self.norms)
            gains -= (squares.take(proposed) - squares.take(places)) / (2 * bandwidth**2)
            if self.kernels.correct:
                gains += extras.take(proposed) - extras.take(places)
            accepted = np.flatnonzero(-self.generator.standard_exponential(num_chains) < gains)
            places[accepted], self.norms[accepted] = proposed[accepted], norms[accepted]
            self.sums[accepted] = sums[accepted]
            num_accepted += len(accepted)
        return num_accepted / self.places.size
