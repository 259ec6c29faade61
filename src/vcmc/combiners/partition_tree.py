r"""Random partition trees: count the shards' draws in blocks, and multiply the counts.

Wang, Guo, Heller and Dunson, *Parallelizing MCMC with random partition trees* (2015). A tree cuts space into blocks $A$, each at the
median of the draws in it and along a coordinate chosen at random, as long as every shard has draws enough on either side. If shard
$k$ has $n_k(A)$ draws in a block of volume $|A|$ and its density there is $f_k = \frac{n_k(A)}{|A|} g_{k,A}$, that of the product is

$$w(A) \prod_k g_{k,A}(x), \qquad w(A) = \prod_k n_k(A) \, / \, |A|^{K-1}.$$

The paper takes $g_{k,A} = 1$, or a local Gaussian. If densities are taken as flat in blocks, what falls off across a block is smeared
over it, for the product as far as for a shard, though the product is narrower. Here $g_{k,A}$ is a Gaussian cut off at the block's sides,
with independent coordinates: its curvature is that of the shard as a whole, and its slope is such that the mean of the shard's draws
in the block is met. Slopes and curvatures of the shards add up, and what $\prod_k g_{k,A}$ integrates to multiplies $w(A)$.

Shards are multiplied two by two, and the products again, in coordinates in which both covariances are diagonal. Blocks lie inside the
box in which both shards have draws. Draws are of several trees, whose cuts are jittered.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from .base import AbstractCombiner, Combined, Subposteriors
from .gaussians import Gaussians
from .pairs import multiplied

MIN_BETWEEN = (
    1000  # draws of products inside the tree, so that few draws are not made fewer by every product
)
MARGIN = 10.0  # how far a shard is taken to reach beyond its draws, in standard deviations over the root of their number
JITTER = 0.1  # how far from the median a cut may be, as a share of the block's draws
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)
NUM_CELLS = 64  # of a block along a coordinate, to draw from
STEEP = 0.9  # a mean nearer to a block's side than this, in half widths, is as good as at the side
NEWTON_STEPS = 8
BLOCK = 2**14  # draws at once


class PartitionTree(AbstractCombiner):
    """Draws of the product of the shards' histograms, whose blocks are those of random trees.

    Args:
        num_trees: how many trees there are; every draw is of one.
        min_draws: how many draws every shard must have in a block. Fewer make noise, more make large blocks.
        pairwise: multiply shards two by two, in place of all at once, where blocks need draws of all shards.
        smooth: follow the shards' slopes inside blocks, in place of taking densities there as flat.
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

        def multiply(group: list[np.ndarray], count: int) -> np.ndarray:
            known = Subposteriors(group, shards.space)
            products.append(self._product(known, shards.num_draws, count, generator))
            shards.advance()
            return products[-1].draws

        if self.pairwise:
            draws = multiplied(
                list(shards),
                shards.num_draws,
                _log_volume,
                lambda first, second, count: multiply([first, second], count),
            )
        else:
            draws = multiply(list(shards), shards.num_draws)
        return Combined(jnp.asarray(draws), notes=_notes(products, shards.space.dim))

    def _product(
        self, shards: Subposteriors, num_known: int, num_draws: int, generator: np.random.Generator
    ) -> "_Product":
        """Draws of the product of some shards, all at once; draws beyond the number known were made of these."""
        gaussians = Gaussians.of(shards)
        root = _root(gaussians.covariances)
        whiten = np.linalg.inv(root).T
        white = [draws @ whiten for draws in shards]
        margins = [MARGIN * draws.std(axis=0) / np.sqrt(len(draws)) for draws in white]
        reaches = list(zip(white, margins, strict=True))
        low = np.max([draws.min(axis=0) - margin for draws, margin in reaches], axis=0)
        high = np.min([draws.max(axis=0) + margin for draws, margin in reaches], axis=0)
        inside = [draws[((low <= draws) & (draws <= high)).all(axis=1)] for draws in white]
        curvatures = np.diagonal(root.T @ gaussians.precisions @ root, axis1=1, axis2=2)
        pooled = np.concatenate(inside)
        labels = np.repeat(np.arange(len(inside)), [len(draws) for draws in inside])
        least = self.min_draws * max(1, min(shards.counts) // num_known)
        fewest = min(len(draws) for draws in inside)
        if fewest < 2 * least:
            overlap = fewest > 1 + min(shards.counts) / 1000
            return _Product(gaussians.product().draws(num_draws, generator), float(overlap))

        of_trees = generator.multinomial(num_draws, np.full(self.num_trees, 1 / self.num_trees))
        tree = _Tree(len(inside), least, generator)
        draws, num_blocks = [], []
        for of_tree in of_trees:
            blocks = tree.blocks(pooled, labels, low, high)
            shape = blocks.shape(curvatures if self.smooth else None)
            draws.append(shape.draws(int(of_tree), generator))
            num_blocks.append(len(blocks.lows))
        merged = generator.permutation(np.concatenate(draws))
        return _Product(merged @ root.T, float(np.mean(num_blocks)))


class _Product(NamedTuple):
    """Draws of a product, and how many blocks its trees had on average; none where shards do not overlap."""

    draws: Float[np.ndarray, "draw dim"]
    num_blocks: float


class _Blocks(NamedTuple):
    """The leaves of a tree: their sides, and how many draws of every shard they hold, with which mean."""

    lows: Float[np.ndarray, "block dim"]
    highs: Float[np.ndarray, "block dim"]
    counts: Int[np.ndarray, "block shard"]
    means: Float[np.ndarray, "block shard dim"]

    def shape(self, curvatures: Float[np.ndarray, "shard dim"] | None) -> "_Shape":
        """The product's density in every block, with these curvatures of the shards; without, it is flat."""
        centres, halves = (self.highs + self.lows) / 2, (self.highs - self.lows) / 2
        num_shards = self.counts.shape[1]
        log_weights = np.sum(np.log(self.counts), axis=1) - (num_shards - 1) * np.sum(
            np.log(halves), axis=1
        )
        if curvatures is None:
            return _Shape(
                centres, halves, log_weights, np.zeros_like(centres), np.zeros_like(centres)
            )
        bends = curvatures * halves[:, None] ** 2
        goals = np.clip((self.means - centres[:, None]) / halves[:, None], -STEEP, STEEP)
        slopes = np.zeros_like(goals)
        for _ in range(NEWTON_STEPS):
            _, means, variances = _moments(slopes, bends)
            slopes = slopes + np.clip((goals - means) / variances, -5.0, 5.0)
        levels = _moments(slopes, bends)[0]
        slope, hessian_products = slopes.sum(axis=1), bends.sum(axis=1)
        log_weights = log_weights + np.sum(
            _moments(slope, hessian_products)[0] - levels.sum(axis=1), axis=1
        )
        return _Shape(centres, halves, log_weights, slope, hessian_products)


class _Shape(NamedTuple):
    r"""A density that is $e^{s y - b y^2 / 2}$ in every block and coordinate, where $y$ runs from -1 to 1 across the block."""

    centres: Float[np.ndarray, "block dim"]
    halves: Float[np.ndarray, "block dim"]
    log_weights: Float[np.ndarray, " block"]
    slopes: Float[np.ndarray, "block dim"]
    bends: Float[np.ndarray, "block dim"]

    def draws(
        self, num_draws: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "draw dim"]:
        """Independent draws, by inverting the distribution function of every coordinate in its block."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        chosen = np.repeat(
            np.arange(len(weights)), generator.multinomial(num_draws, weights / weights.sum())
        )
        edges = np.linspace(-1, 1, NUM_CELLS + 1)
        middles = (edges[1:] + edges[:-1]) / 2
        logs = self.slopes[..., None] * middles - 0.5 * self.bends[..., None] * middles**2
        cells = np.exp(logs - logs.max(axis=-1, keepdims=True))
        cumulative = np.cumsum(cells, axis=-1) / cells.sum(axis=-1, keepdims=True)
        within = np.empty((num_draws, self.centres.shape[1]))
        for start in range(0, num_draws, BLOCK):
            part = chosen[start : start + BLOCK]
            positions = generator.uniform(size=(len(part), within.shape[1]))
            cell = np.minimum((cumulative[part] < positions[..., None]).sum(axis=-1), NUM_CELLS - 1)
            within[start : start + BLOCK] = (
                edges[cell] + generator.uniform(size=cell.shape) * 2 / NUM_CELLS
            )
        return self.centres[chosen] + self.halves[chosen] * within


class _Tree(NamedTuple):
    """How a tree is grown on the draws of all shards."""

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
        """The leaves of a random tree on the box between two corners."""
        waiting = [(points, labels, low, high)]
        leaves = []
        while waiting:
            points, labels, low, high = waiting.pop()
            cut = self._cut(points, labels)
            if cut is None:
                count = self._count(labels)
                sums = [np.bincount(labels, column, self.num_shards) for column in points.T]
                leaves.append((low, high, count, (np.array(sums) / count).T))
            else:
                axis, at = cut
                below = points[:, axis] < at
                middle_high, middle_low = high.copy(), low.copy()
                middle_high[axis] = middle_low[axis] = at
                waiting.append((points[below], labels[below], low, middle_high))
                waiting.append((points[~below], labels[~below], middle_low, high))
        return _Blocks(*(np.array(part) for part in zip(*leaves, strict=True)))

    def _count(self, labels: Int[np.ndarray, " point"]) -> Int[np.ndarray, " shard"]:
        return np.bincount(labels, minlength=self.num_shards)

    def _cut(
        self, points: Float[np.ndarray, "point dim"], labels: Int[np.ndarray, " point"]
    ) -> tuple[int, float] | None:
        """Where to cut a block: at about the median, or as near to it as every shard's draws allow."""
        counts = self._count(labels)
        if counts.min() < 2 * self.min_draws:
            return None
        for axis in self.generator.permutation(points.shape[1]):
            values = points[:, axis]
            rank = int(len(values) * (0.5 + self.generator.uniform(-JITTER, JITTER)))
            for at in (np.partition(values, rank)[rank], self._nearest(values, labels, rank)):
                below = self._count(labels[values < at])
                if min(below.min(), (counts - below).min()) >= self.min_draws:
                    return int(axis), float(at)
        return None

    def _nearest(
        self, values: Float[np.ndarray, " point"], labels: Int[np.ndarray, " point"], rank: int
    ) -> float:
        """The cut nearest to a rank that leaves draws enough of every shard on both sides, if there is one."""
        order = np.argsort(values)
        ranks = [np.flatnonzero(labels[order] == shard) for shard in range(self.num_shards)]
        lowest = max(each[self.min_draws - 1] + 1 for each in ranks)
        highest = min(each[-self.min_draws] for each in ranks)
        return float(values[order[min(max(rank, lowest), highest)]])


def _moments(
    slopes: Float[np.ndarray, "*any"], bends: Float[np.ndarray, "*any"]
) -> tuple[Float[np.ndarray, "*any"], Float[np.ndarray, "*any"], Float[np.ndarray, "*any"]]:
    """Log of the mean over [-1, 1] of the density with this slope and bend, and the density's mean and variance."""
    logs = slopes[..., None] * NODES - 0.5 * bends[..., None] * NODES**2
    peaks = logs.max(axis=-1)
    values = np.exp(logs - peaks[..., None]) * (NODE_WEIGHTS / 2)
    totals = values.sum(axis=-1)
    means = values @ NODES / totals
    variances = values @ NODES**2 / totals - means**2
    return peaks + np.log(totals), means, np.maximum(variances, 1e-6)


def _root(covariances: Float[np.ndarray, "shard dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """A square root of the mean covariance, by which those of two shards become diagonal."""
    root = np.linalg.cholesky(covariances.mean(axis=0))
    inverse = np.linalg.inv(root)
    return root @ np.linalg.eigh(inverse @ covariances[0] @ inverse.T)[1]


def _log_volume(draws: Float[np.ndarray, "draw dim"]) -> float:
    """How much room a shard takes."""
    return float(np.linalg.slogdet(np.atleast_2d(np.cov(draws.T)))[1])


def _notes(products: list[_Product], dim: int) -> list[str]:
    """Warnings if shards did not overlap, or if blocks were too few to see their shapes."""
    apart = sum(product.num_blocks == 0 for product in products)
    if apart:
        return [
            f"in {apart} of {len(products)} products, there is no block with draws of all shards, and shards were multiplied as "
            "Gaussians. Check whether rows are shuffled, and doubt the result."
        ]
    num_blocks = float(np.median([product.num_blocks for product in products]))
    if num_blocks >= 2**dim:
        return []
    return [
        f"there are draws of all shards for {num_blocks:.1f} blocks on average, too few to cut each of {dim} "
        f"dimension{'s' * (dim > 1)} once: inside blocks shards are taken for Gaussian. Try more draws, or Variational()."
    ]
