r"""Aggregate exchangeable components: align the shards' labels, then aggregate.

$$F_a(\theta_1, \ldots, \theta_K) = \Bigl(\sum_k W_{kl} \, \theta_{k, a_k(l)}\Bigr)_{l = 1}^L.$$

A shard's chain labels its components arbitrarily; $a_k$ maps the common labels to those of shard
$k$. Alignments minimize squared distances between the means of components, in units of their
spread, by the Hungarian algorithm. The paper aligns all shards to the first, once. The alternating
method aligns them again to the means under the current weights.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..linalg.operators import AbstractMatrix
from ..space import Point, Product, Scalar
from .base import AbstractAggregator, AbstractFamily
from .vector import VectorFamily
from .weights import AbstractStart

MAX_ROUNDS = 20  # of aligning and averaging, which normally end when labels no longer change


class Combinatorial(AbstractAggregator):
    """An aggregator of points after their components were given the labels of the first shard.

    `alignment[k, l]` is the label in shard k of the component with the common label l.
    """

    inner: AbstractAggregator
    alignment: Int[Array, "shard component"]
    space: Product = eqx.field(static=True)
    alternating: bool = eqx.field(static=True, default=True)

    def prepare(self, points: Float[Array, "shard dim"]) -> Any:
        return self.inner.prepare(jax.vmap(self.space.relabel)(points, self.alignment))

    def merge(self, prepared: Any) -> Point:
        return self.inner.merge(prepared)

    def merge_all(self, prepared: Any) -> Float[Array, "draw dim"]:
        return self.inner.merge_all(prepared)

    def merge_pairs(
        self, prepared: Any, pairs: Int[np.ndarray, "shard draw"]
    ) -> Float[Array, "draw dim"]:
        return self.inner.merge_pairs(prepared, pairs)

    def log_dets(self, prepared: Any) -> Float[Array, " shard"]:
        return self.inner.log_dets(prepared)

    def moments(self, prepared: Any) -> Any:
        return self.inner.moments(prepared)

    def precision(self, moments: Any) -> Float[np.ndarray, "dim dim"] | None:
        return self.inner.precision(moments)

    def covariance(self, moments: Any) -> AbstractMatrix | None:
        return self.inner.covariance(moments)

    def expected_square(
        self, moments: Any, centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        return self.inner.expected_square(moments, centre, precision)

    def realigned(self, draws: Float[Array, "shard draw dim"]) -> "Combinatorial":
        if not self.alternating:
            return self
        common = self.space.components(self(draws.mean(axis=1)))
        alignment = _align(self.space, draws, common)
        return eqx.tree_at(lambda aggregator: aggregator.alignment, self, alignment)

    def shard_weights(self) -> Float[Array, "shard dim"]:
        return self.inner.shard_weights()


class CombinatorialFamily(AbstractFamily):
    """Aggregators of exchangeable components, each shard's labels aligned.

    Args:
        inner: the family of the aligned points; by default a weight for each shard and coordinate.
        alternating: align again to the weighted means, until labels no longer change; otherwise
            align all shards to the first, once, as the paper does.
    """

    inner: AbstractFamily = eqx.field(default_factory=VectorFamily)
    alternating: bool = True

    def check(self, space: Product) -> None:
        counts = {part.num_labels for part in space.values()}
        if len(counts) != 1 or None in counts:
            raise TypeError(
                "the combinatorial family is for parameters in vcmc.Exchangeable(count, …), or "
                "vcmc.Simplex(count, exchangeable=True), of one count; got "
                f"{dict(space)}. Declare them with space= of from_numpyro, or name a family for "
                "each parameter: vcmc.aggregators.BlockFamily(...)."
            )

    def fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> Combinatorial:
        self.check(space)
        alignment = _align(space, draws, space.components(draws[0].mean(axis=0)))
        for _ in range(MAX_ROUNDS if self.alternating else 1):
            aligned = relabel(space, draws, alignment)
            fitted = Combinatorial(
                self.inner.fit(space, aligned, start), alignment, space, self.alternating
            )
            alignment = fitted.realigned(draws).alignment
            if (alignment == fitted.alignment).all():
                break
        return fitted


def with_common_labels(
    space: Product, draws: Float[np.ndarray, "shard draw dim"]
) -> Float[np.ndarray, "shard draw dim"]:
    """Relabel exchangeable components, if there are any, as in the first shard."""
    aligned = jax.device_put(draws)
    for alignment in common_labels(space, aligned):
        aligned = relabel(space, aligned, alignment)
    return np.asarray(aligned)


def common_labels(
    space: Product, draws: Float[Array, "shard draw dim"]
) -> list[Int[Array, "shard component"]]:
    """Return an alignment of the shards for each set of components that share their labels."""
    alignments = []
    for block, part in space.labelled():
        block_draws = draws[:, :, np.array(block)]
        means = block_draws.mean(axis=1, keepdims=True)
        alignment = _align(part, block_draws, part.components(block_draws[0].mean(axis=0)))
        for _ in range(MAX_ROUNDS):
            common = relabel(part, means, alignment).mean(axis=(0, 1))
            previous, alignment = alignment, _align(part, block_draws, part.components(common))
            if (alignment == previous).all():
                break
        alignments.append(alignment)
    return alignments


@partial(jax.jit, static_argnums=0)
def relabel(
    space: Product, draws: Float[Array, "shard draw dim"], alignment: Int[Array, "shard component"]
) -> Float[Array, "shard draw dim"]:
    """Relabel the components of draws by each shard's alignment."""
    return jax.vmap(jax.vmap(space.relabel, in_axes=(0, None)))(draws, alignment)


def _align(
    space: Product,
    draws: Float[Array, "shard draw dim"],
    common: Float[Array, "component coordinate"],
) -> Int[Array, "shard component"]:
    """Return each shard's labels of the components that are nearest to the common ones."""
    # imported here: it adds to the time of `import vcmc`
    from scipy.optimize import linear_sum_assignment

    components = np.asarray(jax.jit(jax.vmap(jax.vmap(space.components)))(draws))
    spread = np.sqrt(components.var(axis=1).mean(axis=(0, 1)))
    means = components.mean(axis=1) / spread
    distances = np.sum((np.asarray(common / spread)[None, :, None] - means[:, None]) ** 2, axis=-1)
    alignment = np.stack([linear_sum_assignment(costs)[1] for costs in distances])
    return jnp.asarray(alignment[:, np.argsort(alignment[0])])  # the first shard keeps its labels
