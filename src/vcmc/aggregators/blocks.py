r"""Aggregate each parameter by its own family: the product families of the paper's Theorem 1.

$$F(\theta) = \bigl(F^u(\theta^u)\bigr)_u.$$
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..space import Point, Product, Scalar
from .base import AbstractAggregator, AbstractFamily
from .combinatorial import CombinatorialFamily
from .vector import VectorFamily
from .weights import AbstractStart


class Blocks(AbstractAggregator):
    """One aggregator for each block of coordinates."""

    parts: tuple[AbstractAggregator, ...]
    coordinates: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def _blocks(self) -> list[tuple[AbstractAggregator, np.ndarray]]:
        return [
            (part, np.array(block))
            for part, block in zip(self.parts, self.coordinates, strict=True)
        ]

    def prepare(self, points: Float[Array, "shard dim"]) -> list[Any]:
        return [part.prepare(points[:, block]) for part, block in self._blocks()]

    def merge(self, prepared: list[Any]) -> Point:
        merged = [part.merge(block) for part, block in zip(self.parts, prepared, strict=True)]
        return jnp.concatenate(merged)[self._order()]

    def merge_all(self, prepared: list[Any]) -> Float[Array, "draw dim"]:
        merged = [part.merge_all(block) for part, block in zip(self.parts, prepared, strict=True)]
        return jnp.concatenate(merged, axis=1)[:, self._order()]

    def log_dets(self, prepared: list[Any]) -> Float[Array, " shard"]:
        parts = [part.log_dets(block) for part, block in zip(self.parts, prepared, strict=True)]
        return jnp.sum(jnp.stack(parts), axis=0)

    def moments(self, prepared: list[Any]) -> list[Any]:
        return [part.moments(block) for part, block in zip(self.parts, prepared, strict=True)]

    def precision(self, moments: list[Any]) -> Float[np.ndarray, "dim dim"]:
        dim = sum(map(len, self.coordinates))
        precision = np.zeros((dim, dim))
        for (part, block), part_moments in zip(self._blocks(), moments, strict=True):
            part_precision = part.precision(part_moments)
            if part_precision is not None:
                precision[np.ix_(block, block)] = part_precision
        return precision

    def expected_square(
        self, moments: list[Any], centre: Point, precision: Float[Array, "dim dim"]
    ) -> Scalar:
        parts = [
            part.expected_square(part_moments, centre[block], precision[np.ix_(block, block)])
            for (part, block), part_moments in zip(self._blocks(), moments, strict=True)
        ]
        return jnp.sum(jnp.stack(parts))

    def realigned(self, draws: Float[Array, "shard draw dim"]) -> "Blocks":
        parts = tuple(part.realigned(draws[:, :, block]) for part, block in self._blocks())
        return Blocks(parts, self.coordinates)

    def shard_weights(self) -> Float[Array, "shard dim"]:
        return jnp.concatenate([part.shard_weights() for part in self.parts], axis=1)[
            :, self._order()
        ]

    def _order(self) -> Int[np.ndarray, " dim"]:
        return np.argsort(np.concatenate(self.coordinates))


class BlockFamily(AbstractFamily):
    """A family for each named parameter, by default chosen by its space.

    Exchangeable components are aligned (`CombinatorialFamily`), and all other parameters are
    averaged in real coordinates (`VectorFamily`). This includes positive-definite matrices:
    averages of their log-Cholesky coordinates were measured to be closer to the posterior than
    those of the paper's `SpectralFamily` (`docs/errata.md`). Parameters with the same number of
    exchangeable components share their labels, and are one block.

    Args:
        families: families of single parameters, by name.
    """

    families: Mapping[str, AbstractFamily] = eqx.field(default_factory=dict)

    def fit(
        self, space: Product, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> AbstractAggregator:
        self.check(space)
        groups = self._groups(space)
        if len(groups) == 1:
            return self._family(space).fit(space, draws, start)
        coordinates = tuple(space.indices(*names) for names in groups)
        parts = []
        for names, block in zip(groups, coordinates, strict=True):
            block_space = Product({name: space[name] for name in names})
            family = self._family(block_space)
            parts.append(family.fit(block_space, draws[:, :, np.array(block)], start))
        return Blocks(tuple(parts), coordinates)

    def __check_init__(self) -> None:
        for name, family in self.families.items():
            if not isinstance(family, AbstractFamily):
                raise TypeError(
                    f"families[{name!r}] must be a family, e.g. VectorFamily(full=True); got "
                    f"{family!r}."
                )

    def check(self, space: Product) -> None:
        if unknown := set(self.families) - set(space):
            raise ValueError(
                f"families name {sorted(unknown)}, but the parameters are {list(space)}."
            )
        for names in self._groups(space):
            block_space = Product({name: space[name] for name in names})
            self._family(block_space).check(block_space)

    def _groups(self, space: Product) -> list[list[str]]:
        """Return the names of parameters that form a block, in order."""
        groups: dict[Any, list[str]] = {}
        for name, part in space.items():
            groups.setdefault(part.num_labels or name, []).append(name)
        return list(groups.values())

    def _family(self, space: Product) -> AbstractFamily:
        """Return the family of a block: the one named for any of its members, or the default."""
        named = [self.families[name] for name in space if name in self.families]
        if len({repr(family) for family in named}) > 1:
            raise ValueError(
                f"the parameters {list(space)} have exchangeable components with the same labels "
                f"and are one block: name one family for them; got {named}."
            )
        if named:
            return named[0]
        labelled = next(iter(space.values())).num_labels is not None
        return CombinatorialFamily() if labelled else VectorFamily()
