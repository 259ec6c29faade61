r"""A Bayesian model whose rows are independent given its parameters.

$$\log p(\theta, X) = \log p(\theta) + \sum_n \log p(x_n \mid \theta).$$

The log density of a shard raises the prior to a power. In unconstrained coordinates $u$, with
$\theta = T(u)$, the Jacobian belongs to the prior and is raised with it,

$$\ell_k(u) = \sum_{n \in k} \log p(x_n \mid T(u))
  + \tau \, \bigl[\log p(T(u)) + \log |\det J_T(u)|\bigr],$$

so that for $\tau = 1/K$ the log densities of the shards sum to the full log density.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data.categories import Levels, text_coords
from .data.labels import NO_LABELS, Labels
from .data.shard import Shard, Shards
from .groups.local_model import LocalDerived, LocalModel, LogLocalPrior, groups_of
from .groups.quadrature import AbstractQuadrature
from .space import Params, Point, Product, Scalar, Space

LogPrior = Callable[[Params], Scalar]
LogLikelihood = Callable[..., Float[Array, " row"]]
"""From params and rows, or from params, local params of each row's group, and rows."""
Simulate = Any
"""From a key, params and rows, or a key, params, local params and rows, to arrays by name; or a
simulator in Python (`models/host_simulator.py`); None if the model does not say."""
SimulateLocal = Callable[[Array, Params, Any], Mapping[str, Array]]
Derived = Callable[[Params], Params]

MAX_CACHED_BYTES = 2**21  # of rows that a core's cache holds; more rows are processed in blocks
BLOCK_BYTES = 2**18  # of rows in a block, for one point
BATCHED_BLOCK_BYTES = 2**21  # for a batch of points: matrix products are faster if large
BLOCK_ROWS = (64, 4096)  # the fewest and the most rows of a block

MAX_FORWARD_DIM = 16  # global coordinates

Modes = Float[Array, "group local"]


class Model:
    """A Bayesian model: the spaces of its parameters, log prior, and log likelihood by row.

    Args:
        space: the space of every named parameter.
        log_prior: log prior density of the params, up to a constant. Do not temper it: vcmc does.
        log_likelihood: one value per row, each depending on that row alone.
        derived: further quantities to report, computed from the params.
        dims: names of the axes of params, e.g. `{"beta": ["feature"]}`, which results keep.
        coords: labels along these axes, e.g. `{"feature": ["age", "income"]}`. Text in a column of
            rows with the name of a dim becomes numbers of its labels.
        columns: the columns of rows that the functions read; others are ignored. By default all.
        local_space: for a model with groups, the space of every local parameter of one group.
        log_local_prior: log density of local parameters, `(params, local, group)` to one value per
            group; `group` is the first row of every group. `log_likelihood` is then a function of
            `(params, local, rows)`, with the local values of every row's group.
        groups: the column of rows that says which group a row belongs to.
        simulate: for `predict`, new values for rows: `(key, params, rows)`, with a key of
            `jax.random`, to arrays by name whose leading axis is that of the rows. With groups it
            is a function of `(key, params, local, rows)`, as `log_likelihood` is.
        simulate_local: for `predict`, local params of new groups: `(key, params, group)` to arrays
            by name whose leading axis is that of the groups.
        quadrature: how local parameters are integrated out; by default a closed form where they
            are Gaussian, else Gauss–Hermite or quasi-random nodes.
        renamed: names under which `posterior_draws` returns params and derived quantities, where
            these are not their own: NumPyro's `net/b` is `net.b` in results.

    >>> import vcmc
    >>> model = vcmc.Model(
    ...     space={"mean": vcmc.Real()},
    ...     log_prior=lambda params: -0.5 * params["mean"] ** 2,
    ...     log_likelihood=lambda params, rows: -0.5 * (rows["y"] - params["mean"]) ** 2,
    ... )
    >>> model
    Model(mean: Real(shape=()))
    """

    def __init__(
        self,
        space: Mapping[str, Space],
        log_prior: LogPrior,
        log_likelihood: LogLikelihood,
        *,
        derived: Derived | None = None,
        dims: Mapping[str, Iterable[str | None]] | None = None,
        coords: Mapping[str, Any] | None = None,
        columns: Iterable[str] | None = None,
        renamed: Mapping[str, str] | None = None,
        local_space: Mapping[str, Space] | None = None,
        log_local_prior: LogLocalPrior | None = None,
        local_derived: LocalDerived | None = None,
        groups: str | None = None,
        group_table: Mapping[str, np.ndarray] | None = None,
        quadrature: AbstractQuadrature | None = None,
        simulate: Simulate = None,
        simulate_local: SimulateLocal | None = None,
    ):
        self.simulate_rows = simulate
        self.simulate_local = simulate_local
        self.space = Product(space)
        self.log_prior = log_prior
        self.log_likelihood = log_likelihood
        self.derived = derived
        if local_space is not None:
            self.local = _local_model(
                self.space,
                local_space,
                log_local_prior,
                log_likelihood,
                groups,
                quadrature,
                group_table,
                local_derived,
            )
            self._by_quadrature: dict[AbstractQuadrature, Model] = {}
        elif log_local_prior is not None or groups is not None:
            raise ValueError(
                "a model with groups needs local_space, the spaces of its local parameters, e.g. "
                'local_space={"alpha": vcmc.Real()}.'
            )
        shapes = {name: part.shape for name, part in self.space.items()}
        self.labels = Labels.checked(shapes, dims, coords)
        self.space = Product(
            space,
            {
                name: self.labels.elements(name, part.point_shape).values()
                for name, part in self.space.items()
                if name in self.labels.dims
            },
        )
        self.levels = text_coords(coords or {})
        self.columns = None if columns is None else tuple(columns)
        self.renamed = dict(renamed or {})

    labels = NO_LABELS
    """Names of the axes of params, and labels along them."""

    levels: Levels = MappingProxyType({})
    """Levels of columns of text, which the model gets as their numbers."""

    columns: tuple[str, ...] | None = None
    """The columns of rows that the model reads, if they are known; others are ignored."""

    renamed: Mapping[str, str] = MappingProxyType({})
    """Names in the model's own language, by names in results, where they differ."""

    local: LocalModel | None = None
    """The local parameters of groups, which are integrated out; None without groups."""

    simulate_rows: Simulate = None
    """Draws new values for rows, for predictions; None if the model does not say how."""

    simulate_local: SimulateLocal | None = None
    """Draws local params of new groups given params; None if the model does not say how."""

    exact_sampler: Any = None
    """The class of the sampler written for this model, if any."""

    def suited_sampler(self, shards: Shards) -> Any:
        """Return the default sampler of this model, or None for NUTS."""
        del shards
        return self.exact_sampler() if self.exact_sampler else None

    def fitted(self, shards: Shards) -> "Model":
        """Return the model with what it needs to know of its rows, if anything."""
        if self.local is None or self.local.quadrature is not None:
            return self
        generator = np.random.default_rng(0)
        params = self.space.constrain(jnp.asarray(0.5 * generator.normal(size=self.space.dim)))
        return self.with_quadrature(self.local.suited_quadrature(params, shards[0], len(shards)))

    def with_quadrature(self, quadrature: AbstractQuadrature) -> "Model":
        """Return the same model with another quadrature: one object for each, compiled once."""
        if self.local is None:
            raise ValueError("a model without local parameters has no quadrature.")
        if quadrature not in self._by_quadrature:
            changed = copy.copy(self)
            changed.local = self.local.with_quadrature(quadrature)
            self._by_quadrature[quadrature] = changed
        return self._by_quadrature[quadrature]

    def starts(self, shard: Shard, key: Array) -> list[Point]:
        """Return starting points for the search of the mode; none means random points."""
        del shard, key
        return []

    def log_prior_at(self, point: Point) -> Scalar:
        """Return the log prior density of a point, including the log Jacobian."""
        params, log_det = self.space.constrain_with_log_det(point)
        return self.log_prior(params) + log_det

    def log_prior_parts_at(self, point: Point) -> Float[Array, "2"]:
        """Return the log prior density of the params at a point, and the log Jacobian."""
        params, log_det = self.space.constrain_with_log_det(point)
        return jnp.stack([self.log_prior(params), log_det])

    def log_likelihood_at(self, point: Point, shard: Shard, is_batched: bool = False) -> Scalar:
        """Return the log likelihood of a shard's rows at a point.

        `is_batched` says that the point is one of a batch under `vmap`.
        """
        if self.local is not None:
            return self.log_marginal_at(point, shard)[0]
        shard = Shard(shard.rows, shard.weights)
        size = block_size(shard, is_batched)
        if size >= len(shard.weights):
            return self._log_likelihood_of(point, shard)
        return _blocked_log_likelihood(self, size, point, shard)

    def _log_likelihood_of(self, point: Point, shard: Shard) -> Scalar:
        per_row = self.log_likelihood(self.space.constrain(point), shard.rows)
        return jnp.sum(shard.weights * per_row)

    def log_marginal_at(
        self, point: Point, shard: Shard, modes: Modes | None = None
    ) -> tuple[Scalar, Modes]:
        """Return the log likelihood of a shard's rows, local parameters integrated out.

        The modes of local coordinates at a point nearby save steps; those at this point are
        returned, too.
        """
        assert self.local is not None
        return _log_marginal(
            self, point, shard, self.local.start(shard) if modes is None else modes
        )

    def _log_marginal_of(self, point: Point, shard: Shard, modes: Modes) -> tuple[Scalar, Modes]:
        assert self.local is not None
        params = self.space.constrain(point)
        per_group, modes = self.local.log_marginals(params, shard, modes)
        return jnp.sum(groups_of(shard).weights * per_group), modes

    def __repr__(self) -> str:
        spaces = ", ".join(f"{name}: {space}" for name, space in self.space.items())
        if self.local is not None:
            local = ", ".join(f"{name}: {space}" for name, space in self.local.space.items())
            spaces += f"; by {self.local.groups}: {local}"
        return f"{type(self).__name__}({spaces})"


def _local_model(
    space: Product,
    local_space: Mapping[str, Space],
    log_local_prior: LogLocalPrior | None,
    log_likelihood: LogLikelihood,
    groups: str | None,
    quadrature: AbstractQuadrature | None,
    table: Mapping[str, np.ndarray] | None,
    derived: LocalDerived | None,
) -> LocalModel:
    if log_local_prior is None or groups is None:
        raise ValueError(
            "a model with local_space needs log_local_prior, a function (params, local, group) of "
            "one value per group, and groups, the column with the group of every row, e.g. "
            'groups="county".'
        )
    if not isinstance(quadrature, AbstractQuadrature | None):
        raise TypeError(
            f"quadrature must be a quadrature, e.g. vcmc.GaussHermite(9); got {quadrature!r}."
        )
    product = Product(local_space)
    if shared := [name for name in product if name in space]:
        raise ValueError(
            f"parameters must be global or local; {shared} are in space and in local_space."
        )
    return LocalModel(product, log_local_prior, log_likelihood, groups, quadrature, table, derived)


def block_size(shard: Shard, is_batched: bool) -> int:
    """Return the number of rows per block: all if a core's cache holds them."""
    num_rows = len(shard.weights)
    row_bytes = max(1, shard.num_bytes // num_rows)
    if shard.num_bytes <= MAX_CACHED_BYTES:
        return num_rows
    size = (BATCHED_BLOCK_BYTES if is_batched else BLOCK_BYTES) / row_bytes
    return int(np.clip(2 ** int(np.log2(size)), *BLOCK_ROWS))


# Rows beyond the cache are read from memory for the value, and again for the gradient. So both are
# computed block by block: the second time, a block is in the cache. The rule is for forward-mode
# derivatives, as these can be differentiated again.
@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _blocked_log_likelihood(model: Model, size: int, point: Point, shard: Shard) -> Scalar:
    """Return the log likelihood of a shard's rows at a point, summed over blocks of rows."""
    return _sum_over_blocks(lambda block: model._log_likelihood_of(point, block), size, shard)


@_blocked_log_likelihood.defjvp
def _blocked_log_likelihood_jvp(
    model: Model, size: int, primals: Any, tangents: Any
) -> tuple[Scalar, Scalar]:
    point, shard = primals
    value, score = _sum_over_blocks(
        lambda block: jax.value_and_grad(model._log_likelihood_of)(point, block), size, shard
    )
    return value, jnp.vdot(score, tangents[0])  # rows are constants


# With few global coordinates, tangents along all of them take a third of the time of a reverse
# pass, which keeps intermediate values of all rows and nodes.
@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_marginal(model: Model, point: Point, shard: Shard, modes: Modes) -> tuple[Scalar, Modes]:
    """Return the log marginal likelihood of a shard's rows at a point, and the modes there."""
    return model._log_marginal_of(point, shard, modes)


@_log_marginal.defjvp
def _log_marginal_jvp(
    model: Model, primals: Any, tangents: Any
) -> tuple[tuple[Scalar, Modes], tuple[Scalar, Modes]]:
    point, shard, modes = primals

    def value_twice(point: Point) -> tuple[Scalar, tuple[Scalar, Modes]]:
        value, new_modes = model._log_marginal_of(point, shard, modes)
        return value, (value, new_modes)

    differentiate = jax.jacfwd if point.size <= MAX_FORWARD_DIM else jax.grad
    score, (value, new_modes) = differentiate(value_twice, has_aux=True)(point)
    # rows are constants, and so are modes: the integral does not depend on where its nodes are
    return (value, new_modes), (jnp.vdot(score, tangents[0]), jnp.zeros_like(new_modes))


def _sum_over_blocks(function: Callable[[Shard], Any], size: int, shard: Shard) -> Any:
    """Sum a function over blocks of rows.

    The last block starts early enough to be full; its overlap with the one before has weight zero.
    """
    num_rows = len(shard.weights)
    offsets = jnp.arange(size)

    def add(number: Array, total: Any) -> Any:
        first = jnp.minimum(number * size, num_rows - size)
        block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), shard)
        weights = jnp.where(first + offsets >= number * size, block.weights, 0.0)
        return jax.tree.map(jnp.add, total, function(Shard(block.rows, weights)))

    shapes = jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[:size], shard))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-num_rows // size), add, zeros)
