r"""Draw from a product of kernel density estimates, by Metropolis steps over indices of draws.

A shard is smoothed by kernels of its own shape,
$p_k = n_k^{-1} \sum_t N(\theta_{k,t},\, h^2 \Sigma_k)$. With $\Lambda = \sum_k \Sigma_k^{-1}$, the
product of K of them is a mixture over index tuples $t = (t_1, \ldots, t_K)$ of

$$N\bigl(m_t,\, h^2 \Lambda^{-1}\bigr), \qquad
m_t = \Lambda^{-1} \sum_k \Sigma_k^{-1} \theta_{k,t_k}, \qquad
\log w_t = -\frac{1}{2 h^2} \sum_k \lVert \theta_{k,t_k} - m_t \rVert^2_{\Sigma_k^{-1}}.$$

In coordinates in which $\Lambda = K I$, and whose origin is the mean of the product of Gaussians, a
weight takes two running sums: of $u_k = \Sigma_k^{-1} \theta_{k,t_k}$, and of
$\theta_{k,t_k}^\top u_k$. Chains start at random tuples, which for Gaussian shards have the right
$m_t$. A step proposes another draw of one shard, uniformly; it costs O(dim). The bandwidth $h$
falls geometrically from one to its final value during the warm-up, and all draws are made at the
final one. (The paper, whose kernels are $N(\theta_{k,t}, h^2 I)$, lets it fall throughout.)

Kernels widen a shard by $1 + h^2$. There are two remedies. Draws are shrunk towards their mean by
$\sqrt{1 - h^2}$, so that the smoothed shard has the covariance of its draws (West, *Approximating
posterior distributions by mixtures*, 1993). Or the shard is approximated by a Gaussian $f_k$, which
kernels correct: $p_k = f_k\, n_k^{-1} \sum_t N(\theta_{k,t},\, h^2 \Sigma_k) / f_k(\theta_{k,t})$.
This adds $-\sum_k \log f_k(\theta_{k,t_k}) + \log N(m_t \mid 0, (1 + h^2) \Lambda^{-1})$ to the log
weights, and components become
$N\bigl(m_t / (1 + h^2),\, h^2 / (1 + h^2)\, \Lambda^{-1}\bigr)$.

All shards are multiplied at once, or in a tree: pairs of shards, then pairs of these products, and
so on. Chains of many shards settle in a mode before they have explored its mass, while chains of
two switch between modes: with 16 shards of two modes and 2 000 draws each, a mode of mass 0.96 had
0.89 at once and 0.95 in pairs. But the errors of the tree's levels add up: with 8 Gaussian shards
of 4 000 draws in 20 dimensions, corrected Gaussians lost 13 % of the variance in pairs and 1 % at
once. So pairs are for few dimensions.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .base import Subposteriors
from .gaussians import Gaussian, Gaussians

MAX_WARMUP = 200  # sweeps
MIN_CHAINS = 256  # per product
MAX_WARMUP_COORDINATES = 2e7  # of all points proposed in a warm-up: a tenth of a second
MAX_PAIRWISE_DIM = 2  # see above
# Two shards six sds apart have an acceptance of 0.01, and draws of half the right sd.
MIN_ACCEPTANCE = 0.02


class Kernels(NamedTuple):
    """A kernel density estimate.

    Attributes:
        bandwidth: sd of a kernel, in sds of the shard; below one.
        shrink: shrink draws towards their mean, so that kernels do not widen the shard.
        correct: correct a Gaussian by kernels.
    """

    bandwidth: float
    shrink: bool = False
    correct: bool = False


class ProductDraws(NamedTuple):
    """Draws from a product, and the acceptance rate at the final bandwidth, where it is least."""

    draws: Float[np.ndarray, "draw dim"]
    acceptance: float


def default_bandwidth(shards: Subposteriors) -> float:
    """Return Scott's rule for the shard with the fewest draws: narrower kernels leave gaps."""
    return float(min(shards.counts) ** (-1 / (4 + shards.space.dim)))


def check_bandwidth(bandwidth: float | None) -> None:
    """Raise an error if the bandwidth is out of range."""
    if bandwidth is not None and not 0 < bandwidth < 1:
        raise ValueError(
            f"bandwidth, in sds of a shard, must lie between 0 and 1; got {bandwidth}. Try 0.3, or "
            "None for the default."
        )


def mixing_warnings(product: ProductDraws) -> list[str]:
    """Return a warning if the chains hardly moved."""
    if product.acceptance >= MIN_ACCEPTANCE:
        return []
    return [
        f"The chains over the shards' draws hardly move: {product.acceptance:.1%} of proposals are "
        "accepted. The shards barely overlap, or the kernels are too narrow for so many "
        "dimensions. Try a larger bandwidth, more draws, or Variational()."
    ]


def multiply(shards: Subposteriors, kernels: Kernels, pairwise: bool | None) -> ProductDraws:
    """Draw from the product of all shards, by default in pairs if there are few dimensions."""
    pairwise = shards.space.dim <= MAX_PAIRWISE_DIM if pairwise is None else pairwise
    generator = np.random.default_rng(shards.seed)
    num_draws, acceptance = shards.num_draws, 1.0
    while shards.num_shards > 1:
        size = 2 if pairwise else shards.num_shards
        factors = _Factors.of(shards, size, kernels)
        products, rate = _sample(factors, kernels, num_draws, generator)
        acceptance = min(acceptance, rate)
        last = shards.num_shards - 1
        unpaired = [np.asarray(shards.draws[last])] if shards.num_shards % size else []
        shards = replace(shards, draws=[*products, *unpaired])
        shards.advance()
    return ProductDraws(np.asarray(shards.draws[0]), acceptance)


class _Factors(NamedTuple):
    """The terms of the log weights of several products with equally many factors each.

    They are in single precision, which suffices for weights. Draws of all products are in one
    array, with equal capacity for each product.

    Attributes:
        points: u of every draw.
        squares: θᵀu of every draw.
        extras: further terms of the log weight of every draw.
        counts: number of draws.
        gaussians: the products of the factors' Gaussians.
    """

    points: Float[np.ndarray, "factor position dim"]
    squares: Float[np.ndarray, "factor position"]
    extras: Float[np.ndarray, "factor position"]
    counts: Int[np.ndarray, "factor product"]
    gaussians: list[Gaussian]

    @classmethod
    def of(cls, shards: Subposteriors, size: int, kernels: Kernels) -> "_Factors":
        """Return the factors of products of `size` neighbours each, without a shard left over."""
        approximations = Gaussians.of(shards)
        precisions = approximations.precisions
        num_products, capacity = shards.num_shards // size, shards.num_draws
        points = np.zeros((size, num_products * capacity, shards.space.dim), np.float32)
        squares, extras = np.zeros((2, size, num_products * capacity), np.float32)
        counts = approximations.counts[: num_products * size].reshape(num_products, size).T
        scale = np.sqrt(1 - kernels.bandwidth**2) if kernels.shrink else 1.0
        gaussians = []
        shard_draws = iter(shards)
        for product in range(num_products):
            members = slice(product * size, (product + 1) * size)
            means = approximations.means[members]
            covariance = np.linalg.inv(precisions[members].sum(axis=0))
            centre = covariance @ np.einsum("kij,kj->i", precisions[members], means)
            gaussians.append(Gaussian(centre, covariance))
            root = np.linalg.cholesky(size * covariance)
            whitening = np.linalg.inv(root)
            for factor, (mean, precision) in enumerate(
                zip(means, precisions[members], strict=True)
            ):
                draws = next(shard_draws)
                white_mean = whitening @ (mean - centre)
                white_precision = root.T @ precision @ root
                maps = np.hstack([whitening.T, whitening.T @ white_precision])
                mapped_means = np.concatenate([white_mean, white_mean @ white_precision])
                centred = (draws - mean).astype(np.float32) @ (scale * maps).astype(np.float32)
                centred += mapped_means.astype(np.float32)
                white, scaled = np.split(centred, 2, axis=1)
                positions = slice(product * capacity, product * capacity + len(draws))
                points[factor, positions] = scaled
                squares[factor, positions] = np.einsum("ij,ij->i", white, scaled)
                if kernels.correct:
                    half_squares = squares[factor, positions] / 2
                    extras[factor, positions] = half_squares - scaled @ white_mean
        return cls(points, squares, extras, counts, gaussians)


def _sample(
    factors: _Factors, kernels: Kernels, num_draws: int, generator: np.random.Generator
) -> tuple[list[Float[np.ndarray, "draw dim"]], float]:
    """Draw from every product; also return the acceptance rate at the final bandwidth."""
    size, num_products = factors.counts.shape
    dim = factors.points.shape[2]
    # A sweep moves m by about its sd times the bandwidth times the root of the acceptance rate,
    # which is 0.05 to 0.2.
    num_warmup = min(int(20 / kernels.bandwidth**2), MAX_WARMUP)
    affordable = int(MAX_WARMUP_COORDINATES / (num_warmup * factors.counts.size * dim))
    num_sweeps = -(-num_draws // min(max(affordable, MIN_CHAINS), num_draws))
    chains = _Chains(factors, kernels, -(-num_draws // num_sweeps), generator)
    for bandwidth in np.geomspace(1, kernels.bandwidth, num_warmup):
        chains.sweep(bandwidth)
    samples, rates = [], []
    for _ in range(num_sweeps):
        rates.append(chains.sweep(kernels.bandwidth))
        samples.append(chains.sums.reshape(num_products, -1, 1, dim).copy())
    variance = 1 + kernels.bandwidth**2 if kernels.correct else 1.0
    products = []
    for gaussian, sums in zip(factors.gaussians, np.concatenate(samples, axis=2), strict=True):
        centres = sums.reshape(-1, dim)[:num_draws] / (size * variance)
        noise_scale = kernels.bandwidth / np.sqrt(size * variance)
        noise = generator.normal(scale=noise_scale, size=centres.shape)
        root = np.linalg.cholesky(size * gaussian.covariance)
        products.append(gaussian.mean + (centres + noise) @ root.T)
    return products, float(np.mean(rates))


class _Chains:
    """Equally many chains for every product, all updated in place and at once.

    This is NumPy, not a compiled loop: with so many chains it is as fast, and nothing compiles.
    """

    def __init__(
        self, factors: _Factors, kernels: Kernels, num_chains: int, generator: np.random.Generator
    ) -> None:
        self.factors, self.kernels, self.generator = factors, kernels, generator
        size, num_products = factors.counts.shape
        capacity = factors.points.shape[1] // num_products
        self.counts = np.repeat(factors.counts, num_chains, axis=1)
        self.offsets = np.repeat(np.arange(num_products) * capacity, num_chains)
        self.positions = np.stack([self._propose(factor) for factor in range(size)])
        self.sums = np.zeros((len(self.offsets), factors.points.shape[2]), np.float32)
        for points, positions in zip(factors.points, self.positions, strict=True):
            self.sums += points[positions]
        self.norms = np.einsum("ij,ij->i", self.sums, self.sums)

    def _propose(self, factor: int) -> Int[np.ndarray, " chain"]:
        """Return the position of a random draw of this factor for every chain."""
        uniform = self.generator.random(len(self.offsets))
        return self.offsets + (uniform * self.counts[factor]).astype(int)

    def sweep(self, bandwidth: float) -> float:
        """Propose a draw of every factor in turn; return the acceptance rate."""
        size, num_chains = self.positions.shape
        # The Gaussian's own term keeps the final bandwidth, so that chains of Gaussian shards need
        # not widen in between.
        own_term = self.kernels.correct / (1 + self.kernels.bandwidth**2)
        norm_factor = (1 / bandwidth**2 - own_term) / (2 * size)
        num_accepted = 0
        for factor, positions in enumerate(self.positions):
            proposals = self._propose(factor)
            points = self.factors.points[factor]
            sums = points.take(proposals, axis=0)
            sums -= points.take(positions, axis=0)
            sums += self.sums
            norms = np.einsum("ij,ij->i", sums, sums)
            squares, extras = self.factors.squares[factor], self.factors.extras[factor]
            log_ratios = norm_factor * (norms - self.norms)
            log_ratios -= (squares.take(proposals) - squares.take(positions)) / (2 * bandwidth**2)
            if self.kernels.correct:
                log_ratios += extras.take(proposals) - extras.take(positions)
            accepted = np.flatnonzero(-self.generator.standard_exponential(num_chains) < log_ratios)
            positions[accepted], self.norms[accepted] = proposals[accepted], norms[accepted]
            self.sums[accepted] = sums[accepted]
            num_accepted += len(accepted)
        return num_accepted / self.positions.size
