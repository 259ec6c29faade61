r"""The laws of an aggregator.

Equal points are a fixed point, $F(\theta, \ldots, \theta) = \theta$; with a single shard $F$ is the
identity; the support is kept; permuting the shards together with their weights changes nothing; and
the weights, log determinants and moments that an aggregator reports are right.
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
NUM_SINGLE = 10  # draws that are also merged one by one
STEP = 1e-3  # of finite differences: too small to change labels, large beside rounding errors
NUM_CROSSED = 4  # draws of every shard, of which all combinations are merged

Factory = Callable[[Float[Array, "shard draw dim"]], AbstractAggregator]


def check_aggregator(
    aggregator: AbstractFamily | Factory,
    space: Mapping[str, Space] | None = None,
    *,
    why_moved: str = "",
    first_shard_leads: bool = False,
) -> None:
    """Raise `LawError` unless an aggregator obeys the laws of aggregators.

    Args:
        aggregator: a family, or a function from draws (shard, draw, dim) of any number of shards to
            an aggregator.
        space: the space of the parameters; by default three real numbers.
        why_moved: the reason why F(θ, …, θ) need not be θ, if it need not. Weights need not sum to
            one then. With a single shard F must still be the identity.
        first_shard_leads: whether the first shard is special because its labels of exchangeable
            components are used for all; only the other shards are permuted then.
    """
    product = space if isinstance(space, Product) else Product(space or {"theta": Real(3)})
    make = _Maker(aggregator, product)
    draws = _draws(product.dim, NUM_SHARDS)
    for start in make.starts:
        fitted = make(draws, start)
        probes = _Probes.of(fitted, draws)
        if not why_moved:
            _check_fixed_point(make, start, probes, draws[0, 0])
        _check_weights(make, fitted, sum_to_one=not why_moved)
    _check_single_shard(make)
    merged = aggregate(fitted, draws)
    _check_support(make, merged)
    _check_merge_all(make, merged, probes)
    _check_permutation(make, merged, draws, [0, 3, 1, 2] if first_shard_leads else [2, 0, 3, 1])
    _check_log_dets(make, fitted, draws[:, 0], probes)
    _check_closed_forms(make, fitted, draws)


class _Maker(NamedTuple):
    """Makes aggregators, from a family or by a function."""

    source: Any
    space: Product

    @property
    def starts(self) -> list[AbstractStart]:
        return (
            [Uniform(), Precision()] if isinstance(self.source, AbstractFamily) else [Precision()]
        )

    def __call__(
        self, draws: Float[Array, "shard draw dim"], start: AbstractStart
    ) -> AbstractAggregator:
        if isinstance(self.source, AbstractFamily):
            aggregator = self.source.fit(self.space, draws, start)
        else:
            aggregator = self.source(draws)
        if not isinstance(aggregator, AbstractAggregator):
            raise TypeError(
                "aggregator must be a family, or a function from draws to an AbstractAggregator; "
                f"the function returned {aggregator!r}."
            )
        return aggregator

    def law(self, statement: str, hint: str) -> Law:
        return Law(name_of(self.source), statement, hint)


def _draws(dim: int, num_shards: int) -> Float[Array, "shard draw dim"]:
    """Return draws of shards with different means and sds, around well separated components."""
    generator = np.random.default_rng(num_shards)
    means = 3 * np.linspace(-1, 1, dim) + 0.1 * generator.normal(size=(num_shards, 1, dim))
    scales = generator.uniform(0.05, 0.2, size=(num_shards, 1, dim))
    return jnp.asarray(means + scales * generator.normal(size=(num_shards, NUM_DRAWS, dim)))


class _Probes(NamedTuple):
    """Merged points of a few chosen inputs, in one batch, as compiling dominates the time.

    Attributes:
        equal: merged from equal points of all shards.
        midpoint: merged from the average of the first two draws.
        single: the first draws, merged one by one.
        jacobians: of the first draw by finite differences; exact if the map is affine.
    """

    equal: Float[np.ndarray, " dim"]
    midpoint: Float[np.ndarray, " dim"]
    single: Float[np.ndarray, "probe dim"]
    jacobians: Float[np.ndarray, "shard dim dim"]

    @classmethod
    def of(cls, fitted: AbstractAggregator, draws: Float[Array, "shard draw dim"]) -> "_Probes":
        num_shards, _, dim = draws.shape
        values = np.asarray(draws)
        equal = np.tile(values[0, 0], (num_shards, 1))
        steps = STEP * np.eye(num_shards * dim).reshape(-1, num_shards, dim)
        single = values[:, :NUM_SINGLE].swapaxes(0, 1)
        points = np.concatenate(
            [equal[None], single[:2].mean(axis=0)[None], single, values[:, 0] + steps]
        )
        merged = np.asarray(_merge_batch(fitted, jnp.asarray(points)))
        single, stepped = merged[2 : 2 + NUM_SINGLE], merged[2 + NUM_SINGLE :]
        slopes = ((stepped - single[0]) / STEP).reshape(num_shards, dim, -1)
        return cls(merged[0], merged[1], single, slopes.swapaxes(1, 2))


@eqx.filter_jit
def _merge_batch(aggregator: AbstractAggregator, points: Float[Array, "probe shard dim"]) -> Array:
    return jax.vmap(aggregator)(points)


def _check_fixed_point(make: _Maker, start: AbstractStart, probes: _Probes, point: Point) -> None:
    law = make.law(
        f"equal points are a fixed point, F(θ, …, θ) = θ (start: {name_of(start)})",
        "make the weights of a coordinate sum to one; if the family moves equal points on purpose, "
        "say why with why_moved=.",
    )
    law.close(probes.equal, point, rtol=1e-8, atol=1e-9)


def _check_single_shard(make: _Maker) -> None:
    law = make.law(
        "a single shard is returned unchanged",
        "check the sums and normalizations over shards for the case of one shard.",
    )
    draws = _draws(make.space.dim, 1)
    fitted = make(draws, Precision())
    law.close(aggregate(fitted, draws), draws[0], rtol=1e-8, atol=1e-9)
    log_det_law = make.law(
        "log_dets of a single shard are zero", "compare log_dets with the Jacobian of merge."
    )
    log_det_law.close(fitted.log_dets(fitted.prepare(draws[:, 0])), np.zeros(1), atol=1e-8)


def _check_merge_all(make: _Maker, merged: Float[Array, "draw dim"], probes: _Probes) -> None:
    law = make.law(
        "merge_all equals merge of every draw",
        "compare merge_all with merge, or do not override merge_all.",
    )
    law.close(merged[:NUM_SINGLE], probes.single, rtol=1e-9, atol=1e-11)


def _check_support(make: _Maker, merged: Float[Array, "draw dim"]) -> None:
    law = make.law(
        "the support is kept",
        "merge must return a finite point in unconstrained coordinates, which space.constrain maps "
        "to params.",
    )
    law.has_shape(merged, (NUM_DRAWS, make.space.dim), "merged points")

    @jax.jit
    def in_support(point: Array) -> Any:
        params = make.space.constrain(point)
        return {
            name: jnp.all(space.constraint(params)(params[name]))
            for name, space in make.space.items()
        }

    for name, is_inside in jax.vmap(in_support)(merged).items():
        law.holds(
            is_inside,
            f"{name} in {make.space[name]}",
            f"{(~np.asarray(is_inside)).sum()} of {len(is_inside)} outside",
        )


def _check_permutation(
    make: _Maker,
    merged: Float[Array, "draw dim"],
    draws: Float[Array, "shard draw dim"],
    order: list[int],
) -> None:
    law = make.law(
        "permuting shards together with their weights changes nothing",
        "compute the weight of a shard from its draws, never from its number.",
    )
    permuted = draws[jnp.array(order)]
    law.close(aggregate(make(permuted, Precision()), permuted), merged, rtol=1e-7, atol=1e-9)


def _check_weights(make: _Maker, fitted: AbstractAggregator, sum_to_one: bool) -> None:
    law = make.law(
        "weights sum to one over the shards",
        "use the weights of vcmc.aggregators, or call project(); Free weights are exempt.",
    )
    for weights in weights_of(fitted):
        if isinstance(weights, Free):
            continue
        total = weights.values.sum(axis=0)
        law.close(total, np.ones(len(total)) if total.ndim == 1 else np.eye(len(total)), atol=1e-8)
    shard_law = make.law(
        "shard_weights has a weight for every shard and coordinate, which sum to one over shards",
        "return an array (shard, dim); of weight matrices, the diagonals.",
    )
    shard_weights = fitted.shard_weights()
    shard_law.has_shape(shard_weights, (NUM_SHARDS, make.space.dim), "weights")
    if sum_to_one:
        shard_law.close(shard_weights.sum(axis=0), np.ones(make.space.dim), rtol=1e-7)


def _check_log_dets(
    make: _Maker, fitted: AbstractAggregator, points: Float[Array, "shard dim"], probes: _Probes
) -> None:
    """Compare log determinants with finite differences, if the map is affine.

    An affine $F$ determines the shards' parts $F_k$ up to a constant, and so their Jacobians.
    """
    law = make.law(
        "log_dets are those of the Jacobians of the shards' parts",
        "return log |det J| of the part that every shard adds to the sum.",
    )
    log_dets = fitted.log_dets(fitted.prepare(points))
    law.has_shape(log_dets, (NUM_SHARDS,), "log determinants")
    if np.allclose(probes.midpoint, probes.single[:2].mean(axis=0), rtol=1e-9, atol=1e-9):
        law.close(log_dets, np.linalg.slogdet(probes.jacobians)[1], rtol=1e-7, atol=1e-7)


def _check_closed_forms(
    make: _Maker, fitted: AbstractAggregator, draws: Float[Array, "shard draw dim"]
) -> None:
    """Compare closed forms, if there are any, with all combinations of a few draws per shard."""
    precision = fitted.precision(fitted.moments(prepare_all(fitted, draws)))
    crossed = draws[:, :NUM_CROSSED]
    moments = fitted.moments(prepare_all(fitted, crossed))
    covariance = fitted.covariance(moments)
    if precision is None and covariance is None:
        return
    dim = make.space.dim
    grid = np.meshgrid(*[np.arange(NUM_CROSSED)] * NUM_SHARDS, indexing="ij")
    combinations = np.stack(grid, axis=-1).reshape(-1, NUM_SHARDS)
    merged = np.asarray(
        aggregate(fitted, jnp.swapaxes(crossed[np.arange(NUM_SHARDS), combinations], 0, 1))
    )
    if precision is not None:
        root = np.random.default_rng(1).normal(size=(dim, dim))
        # the closed form does not cover elements of the precision that are zero, e.g. across blocks
        metric = jnp.asarray(np.where(precision != 0, root @ root.T, 0.0))
        centre = jnp.linspace(-1, 1, dim)
        residuals = merged - np.asarray(centre)
        make.law(
            "expected_square is that of independent draws",
            "correct it, or return None from precision, which is optional.",
        ).close(
            fitted.expected_square(moments, centre, metric),
            np.mean(np.sum(residuals @ metric * residuals, axis=1)),
            rtol=1e-9,
        )
    if covariance is not None:
        expected = np.cov(merged.T, bias=True).reshape(dim, dim)
        make.law(
            "covariance is that of independent draws",
            "correct it, or return None from covariance, which is optional.",
        ).close(
            covariance.values,
            covariance.from_dense(expected).values,
            rtol=1e-9,
            atol=1e-12,
        )
