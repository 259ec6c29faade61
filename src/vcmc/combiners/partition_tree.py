r"""Random partition trees: count the shards' draws in blocks, and multiply the counts.

Wang, Guo, Heller and Dunson, *Parallelizing MCMC with random partition trees* (2015). A tree
partitions space into blocks $A$. Each is cut at the median of its draws along a random coordinate,
as long as every shard has enough draws on either side. If shard $k$ has $n_k(A)$ draws in a block
of volume $|A|$, with density $f_k = \frac{n_k(A)}{|A|} g_{k,A}$, the product has density

$$w(A) \prod_k g_{k,A}(x), \qquad w(A) = \prod_k n_k(A) \, / \, |A|^{K-1}.$$

The paper uses $g_{k,A} = 1$, or a local Gaussian. With flat blocks, a density that falls off across
a block is smeared over it, in the product as much as in a shard, though the product is narrower.
Here $g_{k,A}$ is a truncated Gaussian with independent coordinates: its curvature is that of the
whole shard, and its slope matches the mean of the shard's draws in the block. Slopes and curvatures
of the shards add up, and the integral of $\prod_k g_{k,A}$ multiplies $w(A)$.

Shards are multiplied in a tree of pairs, in coordinates in which both covariances are diagonal.
Blocks lie inside the box in which both shards have draws. Draws are from several trees, whose cuts
are jittered.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .base import AbstractCombiner, Combined, Subposteriors
from .gaussians import Gaussians
from .pairs import multiply_pairs

MARGIN_SD = 10.0  # of the box beyond a shard's draws, in sds over the root of their number
MAX_JITTER = 0.1  # of a cut from the median, as a share of the block's draws
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)
NUM_CELLS = 64  # of a block along a coordinate, to invert the distribution function
MAX_RELATIVE_MEAN = 0.9  # in half widths of a block: steeper slopes make no difference
NUM_NEWTON_STEPS = 8  # to match the mean of a shard's draws in a block
MAX_NEWTON_STEP = 5.0  # change of a slope, per half width of a block
MIN_VARIANCE = 1e-6  # of a density on [-1, 1], so that Newton steps are finite
BATCH_DRAWS = 2**14  # drawn at once


class PartitionTree(AbstractCombiner):
    """Draws from the product of the shards' histograms over blocks of random trees.

    Args:
        num_trees: number of trees; every draw is from one of them.
        min_draws: draws that every shard must have in a block. Fewer make noise, more make large
            blocks.
        pairwise: multiply shards in a tree of pairs, instead of all at once, where blocks need
            draws of all shards.
        smooth: follow the shards' slopes inside blocks, instead of taking densities as flat.
    """

    num_trees: int = 8
    min_draws: int = 30
    pairwise: bool = True
    smooth: bool = True

    def __check_init__(self) -> None:
        if self.num_trees < 1:
            raise ValueError(f"num_trees must be at least 1; got {self.num_trees}.")
        if self.min_draws < 2:
            raise ValueError(f"min_draws must be at least 2; got {self.min_draws}.")

    def combine(self, shards: Subposteriors) -> Combined:
        generator = np.random.default_rng(shards.seed)
        products: list[_Product] = []

        def multiply(factors: list[np.ndarray], count: int) -> np.ndarray:
            subset = Subposteriors(factors, shards.space)
            products.append(self._product(subset, shards.num_draws, count, generator))
            shards.advance()
            return products[-1].draws

        if self.pairwise:
            draws = multiply_pairs(
                list(shards),
                shards.num_draws,
                _log_volume,
                lambda first, second, count: multiply([first, second], count),
            )
        else:
            draws = multiply(list(shards), shards.num_draws)
        return Combined(jnp.asarray(draws), notes=_warnings(products, shards.space.dim))

    def _product(
        self,
        shards: Subposteriors,
        num_original: int,
        num_draws: int,
        generator: np.random.Generator,
    ) -> "_Product":
        """Draw from the product of some shards, all at once.

        Shards that are products themselves may have more draws than the original ones: blocks then
        need proportionally more of them.
        """
        gaussians = Gaussians.of(shards)
        root = _common_root(gaussians.covariances)
        whitening = np.linalg.inv(root).T
        white = [draws @ whitening for draws in shards]
        low, high = _common_box(white)
        boxed = [draws[((low <= draws) & (draws <= high)).all(axis=1)] for draws in white]
        curvatures = np.diagonal(root.T @ gaussians.precisions @ root, axis1=1, axis2=2)
        points = np.concatenate(boxed)
        labels = np.repeat(np.arange(len(boxed)), [len(draws) for draws in boxed])
        min_draws = self.min_draws * max(1, min(shards.counts) // num_original)
        fewest = min(len(draws) for draws in boxed)
        if fewest < 2 * min_draws:
            overlaps = fewest > 1 + min(shards.counts) / 1000
            return _Product(gaussians.product().draws(num_draws, generator), float(overlaps))

        tree_counts = generator.multinomial(num_draws, np.full(self.num_trees, 1 / self.num_trees))
        tree = _Tree(len(boxed), min_draws, generator)
        parts, num_blocks = [], []
        for count in tree_counts:
            blocks = tree.blocks(points, labels, low, high)
            density = blocks.density(curvatures if self.smooth else None)
            parts.append(density.draws(int(count), generator))
            num_blocks.append(len(blocks.lows))
        merged = generator.permutation(np.concatenate(parts))
        return _Product(merged @ root.T, float(np.mean(num_blocks)))


class _Product(NamedTuple):
    """Draws from a product, and the mean number of blocks of its trees; 0 without overlap."""

    draws: Float[np.ndarray, "draw dim"]
    num_blocks: float


class _Blocks(NamedTuple):
    """The leaves of a tree: their sides, and number and mean of every shard's draws in them."""

    lows: Float[np.ndarray, "block dim"]
    highs: Float[np.ndarray, "block dim"]
    counts: Int[np.ndarray, "block shard"]
    means: Float[np.ndarray, "block shard dim"]

    def density(self, curvatures: Float[np.ndarray, "shard dim"] | None) -> "_BlockDensity":
        """Return the product's density, given the shards' curvatures; flat in blocks without."""
        centres, halves = (self.highs + self.lows) / 2, (self.highs - self.lows) / 2
        num_shards = self.counts.shape[1]
        log_volumes = np.sum(np.log(halves), axis=1)
        log_weights = np.sum(np.log(self.counts), axis=1) - (num_shards - 1) * log_volumes
        if curvatures is None:
            zeros = np.zeros_like(centres)
            return _BlockDensity(centres, halves, log_weights, zeros, zeros)
        relative_curvatures = curvatures * halves[:, None] ** 2
        relative_means = (self.means - centres[:, None]) / halves[:, None]
        goals = np.clip(relative_means, -MAX_RELATIVE_MEAN, MAX_RELATIVE_MEAN)
        slopes = np.zeros_like(goals)
        for _ in range(NUM_NEWTON_STEPS):
            _, means, variances = _moments(slopes, relative_curvatures)
            steps = (goals - means) / variances
            slopes = slopes + np.clip(steps, -MAX_NEWTON_STEP, MAX_NEWTON_STEP)
        log_means = _moments(slopes, relative_curvatures)[0]
        slope, curvature = slopes.sum(axis=1), relative_curvatures.sum(axis=1)
        log_mean = _moments(slope, curvature)[0]
        log_weights = log_weights + np.sum(log_mean - log_means.sum(axis=1), axis=1)
        return _BlockDensity(centres, halves, log_weights, slope, curvature)


class _BlockDensity(NamedTuple):
    r"""A density proportional to $e^{s y - b y^2 / 2}$ in every block and coordinate.

    $y$ runs from -1 to 1 across the block.
    """

    centres: Float[np.ndarray, "block dim"]
    halves: Float[np.ndarray, "block dim"]
    log_weights: Float[np.ndarray, " block"]
    slopes: Float[np.ndarray, "block dim"]
    curvatures: Float[np.ndarray, "block dim"]

    def draws(
        self, num_draws: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "draw dim"]:
        """Draw independently, by inverting the distribution function of each coordinate."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        block_counts = generator.multinomial(num_draws, weights / weights.sum())
        blocks = np.repeat(np.arange(len(weights)), block_counts)
        edges = np.linspace(-1, 1, NUM_CELLS + 1)
        middles = (edges[1:] + edges[:-1]) / 2
        logs = self.slopes[..., None] * middles - 0.5 * self.curvatures[..., None] * middles**2
        masses = np.exp(logs - logs.max(axis=-1, keepdims=True))
        cumulative = np.cumsum(masses, axis=-1) / masses.sum(axis=-1, keepdims=True)
        relative = np.empty((num_draws, self.centres.shape[1]))
        for start in range(0, num_draws, BATCH_DRAWS):
            batch = slice(start, start + BATCH_DRAWS)
            levels = generator.uniform(size=relative[batch].shape)
            cells = (cumulative[blocks[batch]] < levels[..., None]).sum(axis=-1)
            cells = np.minimum(cells, NUM_CELLS - 1)
            relative[batch] = edges[cells] + generator.uniform(size=cells.shape) * 2 / NUM_CELLS
        return self.centres[blocks] + self.halves[blocks] * relative


class _Tree(NamedTuple):
    """The rules by which a random tree is grown on the draws of all shards."""

    num_shards: int
    min_draws: int
    generator: np.random.Generator

    def blocks(
        self,
        points: Float[np.ndarray, "point dim"],
        labels: Int[np.ndarray, " point"],
        low: Float[np.ndarray, " dim"],
        high: Float[np.ndarray, " dim"],
    ) -> _Blocks:
        """Return the leaves of a random tree on the box between two corners."""
        stack = [(points, labels, low, high)]
        leaves = []
        while stack:
            points, labels, low, high = stack.pop()
            cut = self._cut(points, labels)
            if cut is None:
                count = self._count(labels)
                sums = [np.bincount(labels, column, self.num_shards) for column in points.T]
                leaves.append((low, high, count, (np.array(sums) / count).T))
            else:
                axis, value = cut
                below = points[:, axis] < value
                middle_high, middle_low = high.copy(), low.copy()
                middle_high[axis] = middle_low[axis] = value
                stack.append((points[below], labels[below], low, middle_high))
                stack.append((points[~below], labels[~below], middle_low, high))
        return _Blocks(*(np.array(part) for part in zip(*leaves, strict=True)))

    def _count(self, labels: Int[np.ndarray, " point"]) -> Int[np.ndarray, " shard"]:
        return np.bincount(labels, minlength=self.num_shards)

    def _cut(
        self, points: Float[np.ndarray, "point dim"], labels: Int[np.ndarray, " point"]
    ) -> tuple[int, float] | None:
        """Return axis and value of a cut, as near to the median as every shard's draws allow."""
        counts = self._count(labels)
        if counts.min() < 2 * self.min_draws:
            return None
        for axis in self.generator.permutation(points.shape[1]):
            column = points[:, axis]
            jitter = self.generator.uniform(-MAX_JITTER, MAX_JITTER)
            rank = int(len(column) * (0.5 + jitter))
            for value in (np.partition(column, rank)[rank], self._nearest(column, labels, rank)):
                below = self._count(labels[column < value])
                if min(below.min(), (counts - below).min()) >= self.min_draws:
                    return int(axis), float(value)
        return None

    def _nearest(
        self, values: Float[np.ndarray, " point"], labels: Int[np.ndarray, " point"], rank: int
    ) -> float:
        """Return the cut nearest to a rank with enough draws of every shard on both sides.

        If there is no such cut, the value is arbitrary.
        """
        order = np.argsort(values)
        shard_ranks = [np.flatnonzero(labels[order] == shard) for shard in range(self.num_shards)]
        lowest = max(ranks[self.min_draws - 1] + 1 for ranks in shard_ranks)
        highest = min(ranks[-self.min_draws] for ranks in shard_ranks)
        return float(values[order[min(max(rank, lowest), highest)]])


def _moments(
    slopes: Float[np.ndarray, "*any"], curvatures: Float[np.ndarray, "*any"]
) -> tuple[Float[np.ndarray, "*any"], Float[np.ndarray, "*any"], Float[np.ndarray, "*any"]]:
    """Return moments of exp(s y - b y² / 2) on [-1, 1]: its log mean, and the mean and variance.

    The log mean is that of the function; mean and variance are those of the density.
    """
    logs = slopes[..., None] * NODES - 0.5 * curvatures[..., None] * NODES**2
    peaks = logs.max(axis=-1)
    values = np.exp(logs - peaks[..., None]) * (NODE_WEIGHTS / 2)
    totals = values.sum(axis=-1)
    means = values @ NODES / totals
    variances = values @ NODES**2 / totals - means**2
    return peaks + np.log(totals), means, np.maximum(variances, MIN_VARIANCE)


def _common_root(covariances: Float[np.ndarray, "shard dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """Return a root of the mean covariance that also diagonalizes those of two shards."""
    root = np.linalg.cholesky(covariances.mean(axis=0))
    inverse = np.linalg.inv(root)
    return root @ np.linalg.eigh(inverse @ covariances[0] @ inverse.T)[1]


def _common_box(
    white: list[Float[np.ndarray, "_ dim"]],
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """Return the corners of the box in which all shards have draws, up to a margin."""
    margins = [MARGIN_SD * draws.std(axis=0) / np.sqrt(len(draws)) for draws in white]
    ranges = list(zip(white, margins, strict=True))
    low = np.max([draws.min(axis=0) - margin for draws, margin in ranges], axis=0)
    high = np.min([draws.max(axis=0) + margin for draws, margin in ranges], axis=0)
    return low, high


def _log_volume(draws: Float[np.ndarray, "draw dim"]) -> float:
    """Return the log determinant of the covariance."""
    return float(np.linalg.slogdet(np.atleast_2d(np.cov(draws.T)))[1])


def _warnings(products: list[_Product], dim: int) -> list[str]:
    """Return a warning if shards did not overlap, or if there were too few blocks."""
    num_apart = sum(product.num_blocks == 0 for product in products)
    if num_apart:
        return [
            f"In {num_apart} of {len(products)} products there is no block with draws of all "
            "shards, so that shards were multiplied as Gaussians. Do not rely on the result; were "
            "the rows shuffled?"
        ]
    num_blocks = float(np.median([product.num_blocks for product in products]))
    if num_blocks >= 2**dim:
        return []
    return [
        f"There are draws of all shards for {num_blocks:.1f} blocks on average, too few to cut "
        f"each of {dim} dimension{'s' * (dim > 1)} once: inside blocks, shards are taken as "
        "Gaussian. Try more draws, or Variational()."
    ]
