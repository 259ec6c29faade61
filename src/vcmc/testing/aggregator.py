r"""The laws of an aggregator: $F(\theta, \ldots, \theta) = \theta$; with one shard it is the identity; the support is kept; relabelling shards together
with their weights changes nothing; and what it says of itself (weights, volumes, moments) is so.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..aggregators import AbstractAggregator, AbstractFamily, Precision, Uniform
from ..aggregators.base import aggregate, prepare_all
from ..aggregators.weights import AbstractStart, Free, weights_of
from ..space import Point, Product, Real, Space
from .law import Law, name_of

NUM_SHARDS, NUM_DRAWS = 4, 200
NUM_EACH = 10  # draws that are merged one by one
STEP = 1e-3  # too small for labels to change, and large beside rounding errors
FEW = 4  # draws of every shard, of which all combinations are made

Factory = Callable[[Float[Array, "shard draw dim"]], AbstractAggregator]


def check_aggregator(
    aggregator: AbstractFamily | Factory,
    space: Mapping[str, Space] | None = None,
    *,
    why_moved: str = "",
    first_shard_leads: bool = False,
) -> None:
    """Raise `LawError` unless aggregators keep their laws.

    Args:
        aggregator: a family, or a function that makes an aggregator for the draws (shard, draw, dim) of any number of shards.
        space: where the parameters live; by default three real numbers.
        why_moved: why F(θ, …, θ) need not be θ, if it need not; with one shard it must be. Weights need not add up to one then.
        first_shard_leads: the first shard is special, as its labels of components are the common ones: relabel the others only.
    """
    where = space if isinstance(space, Product) else Product(space or {"theta": Real(3)})
    make = _Maker(aggregator, where)
    draws = _draws(where.dim, NUM_SHARDS)
    for start in make.starts:
        fitted = make(draws, start)
        probes = _Probes.of(fitted, draws)
        if not why_moved:
            _agreement(make, start, probes, draws[0, 0])
        _weights(make, fitted, shown_too=not why_moved)
    _one_shard(make)
    merged = aggregate(fitted, draws)
    _support(make, merged)
    _each(make, merged, probes)
    _relabelling(make, merged, draws, [0, 3, 1, 2] if first_shard_leads else [2, 0, 3, 1])
    _volumes(make, fitted, draws[:, 0], probes)
    _closed_forms(make, fitted, draws)


class _Maker(NamedTuple):
    """Makes aggregators, of a family or by a function."""

    given: Any
    space: Product

    @property
    def starts(self) -> list[AbstractStart]:
        return [Uniform(), Precision()] if isinstance(self.given, AbstractFamily) else [Precision()]

    def __call__(
        self, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> AbstractAggregator:
        if isinstance(self.given, AbstractFamily):
            made = self.given.fit(self.space, draws, start)
        else:
            made = self.given(draws)
        if not isinstance(made, AbstractAggregator):
            raise TypeError(
                f"aggregator must be a family, or a function from draws to an AbstractAggregator; it made {made!r}."
            )
        return made

    def law(self, says: str, hint: str) -> Law:
        return Law(name_of(self.given), says, hint)


def _draws(dim: int, num_shards: int) -> Float[Array, "shard draw dim"]:
    """Draws of shards that differ in place and spread, around a point whose components lie apart."""
    generator = np.random.default_rng(num_shards)
    places = 3 * np.linspace(-1, 1, dim) + 0.1 * generator.normal(size=(num_shards, 1, dim))
    scales = generator.uniform(0.05, 0.2, size=(num_shards, 1, dim))
    return jnp.asarray(places + scales * generator.normal(size=(num_shards, NUM_DRAWS, dim)))


class _Probes(NamedTuple):
    """What points chosen to tell are merged to, one by one: in one batch, as compiling takes longer than computing."""

    agreed: Float[np.ndarray, " dim"]
    middle: Float[np.ndarray, " dim"]
    each: Float[np.ndarray, "probe dim"]
    slopes: Float[np.ndarray, "shard dim dim"]
    """Of the first of `each` along every coordinate of every shard, last axis: the Jacobian, if the map is affine."""

    @classmethod
    def of(cls, fitted: AbstractAggregator, draws: Float[Array, "shard draw dim"]) -> "_Probes":
        num_shards, _, dim = draws.shape
        values = np.asarray(draws)
        agreed = np.tile(values[0, 0], (num_shards, 1))
        steps = STEP * np.eye(num_shards * dim).reshape(-1, num_shards, dim)
        each = values[:, :NUM_EACH].swapaxes(0, 1)
        points = np.concatenate(
            [agreed[None], each[:2].mean(axis=0)[None], each, values[:, 0] + steps]
        )
        found = np.asarray(_merged(fitted, jnp.asarray(points)))
        first, rest = found[2 : 2 + NUM_EACH], found[2 + NUM_EACH :]
        slopes = ((rest - first[0]) / STEP).reshape(num_shards, dim, -1).swapaxes(1, 2)
        return cls(found[0], found[1], first, slopes)


@eqx.filter_jit
def _merged(aggregator: AbstractAggregator, points: Float[Array, "probe shard dim"]) -> Array:
    return jax.vmap(aggregator)(points)


def _agreement(make: _Maker, start: AbstractStart, probes: _Probes, point: Point) -> None:
    law = make.law(
        f"shards that agree are left alone, F(θ, …, θ) = θ (start: {name_of(start)})",
        "let the weights of a coordinate add up to one; if the family is meant to move it, say so with why_moved=.",
    )
    law.close(probes.agreed, point, rtol=1e-8, atol=1e-9)


def _one_shard(make: _Maker) -> None:
    law = make.law(
        "one shard is left alone",
        "look at what is divided or summed over shards where there is one.",
    )
    draws = _draws(make.space.dim, 1)
    fitted = make(draws, Precision())
    law.close(aggregate(fitted, draws), draws[0], rtol=1e-8, atol=1e-9)
    volumes = make.law(
        "one shard's volumes are left alone: log_dets are zero",
        "compare log_dets with the Jacobian of merge.",
    )
    volumes.close(fitted.log_dets(fitted.prepare(draws[:, 0])), np.zeros(1), atol=1e-8)


def _each(make: _Maker, merged: Float[Array, "draw dim"], probes: _Probes) -> None:
    law = make.law(
        "merging all draws is merging each",
        "compare merge_all with merge, or leave merge_all as it is.",
    )
    law.close(merged[:NUM_EACH], probes.each, rtol=1e-9, atol=1e-11)


def _support(make: _Maker, merged: Float[Array, "draw dim"]) -> None:
    law = make.law(
        "the support is kept",
        "merge returns a point in real coordinates, from which space.constrain makes params; it must be finite.",
    )
    law.has_shape(merged, (NUM_DRAWS, make.space.dim), "merged points")

    @jax.jit
    def inside(point: Array) -> Any:
        params = make.space.constrain(point)
        return {
            name: jnp.all(space.constraint(params)(params[name]))
            for name, space in make.space.items()
        }

    for name, each in jax.vmap(inside)(merged).items():
        law.holds(
            each,
            f"{name} in {make.space[name]}",
            f"{(~np.asarray(each)).sum()} of {len(each)} outside",
        )


def _relabelling(
    make: _Maker,
    merged: Float[Array, "draw dim"],
    draws: Float[Array, "shard draw dim"],
    order: list[int],
) -> None:
    law = make.law(
        "relabelling shards together with their weights changes nothing",
        "let every shard's weight follow from its draws, never from its number.",
    )
    again = draws[jnp.array(order)]
    found = aggregate(make(again, Precision()), again)
    law.close(found, merged, rtol=1e-7, atol=1e-9)


def _weights(make: _Maker, fitted: AbstractAggregator, shown_too: bool) -> None:
    law = make.law(
        "weights add up to one",
        "use the weights of vcmc.aggregators, or call project(); Free is for others.",
    )
    for weights in weights_of(fitted):
        if isinstance(weights, Free):
            continue  # they need not
        total = weights.values.sum(axis=0)
        law.close(total, np.ones(len(total)) if total.ndim == 1 else np.eye(len(total)), atol=1e-8)
    shown = make.law(
        "shard_weights shows a weight for every shard and coordinate, which add up to one over shards",
        "return an array (shard, dim); of matrices, the diagonals.",
    )
    weights_shown = fitted.shard_weights()
    shown.has_shape(weights_shown, (NUM_SHARDS, make.space.dim), "weights")
    if shown_too:
        shown.close(weights_shown.sum(axis=0), np.ones(make.space.dim), rtol=1e-7)


def _volumes(
    make: _Maker, fitted: AbstractAggregator, points: Float[Array, "shard dim"], probes: _Probes
) -> None:
    """Where the map is affine, $F_k$ is known from $F$ but for a constant, and so is its Jacobian."""
    law = make.law(
        "log_dets are those of the shards' parts",
        "return log |det J| of what every shard adds to the sum.",
    )
    found = fitted.log_dets(fitted.prepare(points))
    law.has_shape(found, (NUM_SHARDS,), "log determinants")
    if np.allclose(probes.middle, probes.each[:2].mean(axis=0), rtol=1e-9, atol=1e-9):
        law.close(found, np.linalg.slogdet(probes.slopes)[1], rtol=1e-7, atol=1e-7)


def _closed_forms(
    make: _Maker, fitted: AbstractAggregator, draws: Float[Array, "shard draw dim"]
) -> None:
    """Against all combinations of a few draws of every shard, where closed forms are claimed."""
    claimed = fitted.precision(fitted.moments(prepare_all(fitted, draws)))
    few = draws[:, :FEW]
    moments = fitted.moments(prepare_all(fitted, few))
    covariance = fitted.covariance(moments)
    if claimed is None and covariance is None:
        return
    dim = make.space.dim
    grid = np.meshgrid(*[np.arange(FEW)] * NUM_SHARDS, indexing="ij")
    combinations = np.stack(grid, axis=-1).reshape(-1, NUM_SHARDS)
    merged = np.asarray(
        aggregate(fitted, jnp.swapaxes(few[np.arange(NUM_SHARDS), combinations], 0, 1))
    )
    if claimed is not None:
        root = np.random.default_rng(1).normal(size=(dim, dim))
        # blocks do not claim what goes across them, nor what has no closed form
        weighing = jnp.asarray(np.where(claimed != 0, root @ root.T, 0.0))
        centre = jnp.linspace(-1, 1, dim)
        off = merged - np.asarray(centre)
        make.law(
            "expected_square is that of independent draws",
            "correct it, or return None from precision: it is not needed.",
        ).close(
            fitted.expected_square(moments, centre, weighing),
            np.mean(np.sum(off @ weighing * off, axis=1)),
            rtol=1e-9,
        )
    if covariance is not None:
        expected = np.cov(merged.T, bias=True).reshape(dim, dim)
        make.law(
            "covariance is that of independent draws",
            "correct it, or return None from covariance: it is not needed.",
        ).close(
            covariance.values,
            covariance.from_dense(expected).values,
            rtol=1e-9,
            atol=1e-12,
        )
