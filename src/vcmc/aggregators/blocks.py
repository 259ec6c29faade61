r"""Aggregate every parameter by a family of its own: the product families of the paper's Theorem 1.

$$F(\theta) = \bigl(F^u(\theta^u)\bigr)_u.$$
"""

from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..space import Product
from ..typing import Point, Scalar
from .base import AbstractAggregator, AbstractFamily
from .combinatorial import CombinatorialFamily
from .spectral import SpectralFamily
from .vector import VectorFamily
from .weights import AbstractStart


class Blocks(AbstractAggregator):
    """One aggregator for every block of coordinates."""

    parts: dict[str, AbstractAggregator]
    coordinates: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def _blocks(self) -> Iterator[tuple[str, AbstractAggregator, Array]]:
        for (name, part), block in zip(self.parts.items(), self.coordinates, strict=True):
            yield name, part, jnp.array(block)

    def prepare(self, points: Float[Array, "shard dim"]) -> dict[str, Any]:
        return {name: part.prepare(points[:, block]) for name, part, block in self._blocks()}

    def merge(self, prepared: dict[str, Any]) -> Point:
        merged = jnp.concatenate([part.merge(prepared[name]) for name, part, _ in self._blocks()])
        return merged[self._order()]

    def log_dets(self, prepared: dict[str, Any]) -> Float[Array, " shard"]:
        return sum(part.log_dets(prepared[name]) for name, part, _ in self._blocks())

    def moments(self, prepared: dict[str, Any]) -> dict[str, Any]:
        return {name: part.moments(prepared[name]) for name, part, _ in self._blocks()}

    def precision(self, moments: dict[str, Any]) -> Float[Array, "dim dim"]:
        dim = sum(map(len, self.coordinates))
        precision = jnp.zeros((dim, dim))
        for name, part, block in self._blocks():
            inside = part.precision(moments[name])
            if inside is not None:
                precision = precision.at[jnp.ix_(block, block)].set(inside)
        return precision

    def expected_square(
        self, moments: dict[str, Any], centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        return sum(
            part.expected_square(moments[name], centre[block], precision[jnp.ix_(block, block)])
            for name, part, block in self._blocks()
        )

    def realigned(self, draws: Float[Array, "shard draw dim"]) -> "Blocks":
        parts = {name: part.realigned(draws[:, :, block]) for name, part, block in self._blocks()}
        return Blocks(parts, self.coordinates)

    def shard_weights(self) -> Float[Array, "shard dim"]:
        return jnp.concatenate([part.shard_weights() for part in self.parts.values()], axis=1)[:, self._order()]

    def _order(self) -> Array:
        return jnp.argsort(jnp.concatenate([jnp.array(block) for block in self.coordinates]))


class BlockFamily(AbstractFamily):
    """A family for every named parameter, by default the one that its space asks for.

    Exchangeable components are aligned (`CombinatorialFamily`), positive-definite matrices are weighed by their
    eigenvalues (`SpectralFamily`), and all else is averaged in real coordinates (`VectorFamily`). Parameters whose
    components share their labels, because they are exchangeable and equally many, are one block.

    Args:
        families: families of single parameters, by name.
    """

    families: Mapping[str, AbstractFamily] = eqx.field(default_factory=dict)

    def fit(self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart) -> Blocks:
        if unknown := set(self.families) - set(space):
            raise ValueError(f"families name {sorted(unknown)}, but the parameters are {list(space)}.")
        parts: dict[str, AbstractAggregator] = {}
        coordinates = []
        for names in self._groups(space):
            block = space.indices(*names)
            inside = Product({name: space[name] for name in names})
            family = self.families.get(names[0]) or self._suited(inside)
            parts[" & ".join(names)] = family.fit(inside, draws[:, :, jnp.array(block)], start)
            coordinates.append(block)
        return Blocks(parts, tuple(coordinates))

    def _groups(self, space: Product) -> list[list[str]]:
        """Names of parameters that belong together, in order."""
        groups: dict[Any, list[str]] = {}
        for name, inside in space.items():
            count = None if name in self.families else inside.num_labels
            groups.setdefault(name if count is None else count, []).append(name)
        return list(groups.values())

    def _suited(self, space: Product) -> AbstractFamily:
        first = next(iter(space.values()))
        if first.num_labels is not None:
            return CombinatorialFamily()
        if first.is_positive_definite:
            return SpectralFamily()
        return VectorFamily()
