r"""A Bayesian model whose rows are independent given its parameters.

$$\log p(\theta, X) = \log p(\theta) + \sum_n \log p(x_n \mid \theta).$$

The log density of a shard raises the prior to a power; in real coordinates $u$, $\theta = T(u)$, the
Jacobian belongs to the prior and is raised with it,

$$\ell_k(u) = \sum_{n \in k} \log p(x_n \mid T(u)) + \tau \, \bigl[\log p(T(u)) + \log |\det J_T(u)|\bigr],$$

so that with $\tau = 1/K$ the shards' log densities add up to the full one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data.rows import Rows
from .data.shard import Shard, Shards
from .space import Params, Point, Product, Scalar, Space

LogPrior = Callable[[Params], Scalar]
LogLikelihood = Callable[[Params, Rows], Float[Array, " row"]]
Derived = Callable[[Params], Params]

MAX_CACHED = 2**21  # bytes of rows that are looked at in one go, and in blocks if there are more
BLOCK_BYTES, BLOCK_BYTES_MANY = (
    2**18,
    2**21,
)  # for one point, and for many at once, where products of matrices are faster if large


class Model:
    """A model: where its parameters live, its log prior, and its log likelihood row by row.

    Args:
        space: a space for every named parameter.
        log_prior: log prior density of the params, up to a constant. Never temper it yourself.
        log_likelihood: one value per row, each depending on that row alone.
        derived: further quantities to report, computed from the params.

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
    ):
        self.space = Product(space)
        self.log_prior = log_prior
        self.log_likelihood = log_likelihood
        self.derived = derived

    exact_sampler: Any = None
    """The class of a sampler made for this model, if there is one."""

    def suited_sampler(self, shards: Shards) -> Any:
        """The sampler to use where the user names none; nothing means NUTS."""
        del shards
        return self.exact_sampler() if self.exact_sampler else None

    def fitted(self, shards: Shards) -> "Model":
        """The model with its point estimates, if it has any, taken from all shards."""
        del shards
        return self

    def starts(self, shard: Shard, key: Array) -> list[Point]:
        """Where to look for the mode, given the rows of one shard; nothing means random points."""
        del shard, key
        return []

    def log_prior_at(self, point: Point) -> Scalar:
        """Log prior density of a point: the prior's and the Jacobian's."""
        params, log_det = self.space.constrain_with_log_det(point)
        return self.log_prior(params) + log_det

    def log_likelihood_at(self, point: Point, shard: Shard, many: bool = False) -> Scalar:
        """Log likelihood of a shard's rows at a point; `many` says that it is one of many points, which are looked at at once."""
        size = block_size(shard, many)
        if size >= len(shard.weights):
            return self._log_likelihood_of(point, shard)
        return _in_blocks(self, size, point, shard)

    def _log_likelihood_of(self, point: Point, shard: Shard) -> Scalar:
        per_row = self.log_likelihood(self.space.constrain(point), shard.rows)
        return jnp.sum(shard.weights * per_row)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}: {space}" for name, space in self.space.items())
        return f"{type(self).__name__}({inside})"


def block_size(shard: Shard, many: bool) -> int:
    """How many rows are looked at at once: all that a core's cache holds, or, if they are more, blocks that leave room in it."""
    num_rows = len(shard.weights)
    row_bytes = max(1, shard.num_bytes // num_rows)
    if shard.num_bytes <= MAX_CACHED:
        return num_rows
    size = (BLOCK_BYTES_MANY if many else BLOCK_BYTES) / row_bytes
    return int(np.clip(2 ** int(np.log2(size)), 64, 4096))


# Rows beyond the cache are read from memory for the value, and once more for the gradient. So both are computed block by block: the second
# time, a block is in the cache. It is a rule for forward derivatives, as these can be differentiated again.
@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _in_blocks(model: Model, size: int, point: Point, shard: Shard) -> Scalar:
    """The log likelihood of a shard's rows at a point, summed over blocks of rows."""
    return _sum_of_blocks(lambda block: model._log_likelihood_of(point, block), size, shard)


@_in_blocks.defjvp
def _in_blocks_jvp(model: Model, size: int, primals: Any, tangents: Any) -> tuple[Scalar, Scalar]:
    point, shard = primals
    value, score = _sum_of_blocks(
        lambda block: jax.value_and_grad(model._log_likelihood_of)(point, block), size, shard
    )
    return value, jnp.vdot(score, tangents[0])  # rows do not change


def _sum_of_blocks(function: Callable[[Shard], Any], size: int, shard: Shard) -> Any:
    """The sum of a function over blocks of rows; the last begins earlier, and what it has in common with the one before has weight zero."""
    num_rows = len(shard.weights)
    places = jnp.arange(size)

    def add(number: Array, total: Any) -> Any:
        first = jnp.minimum(number * size, num_rows - size)
        block = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), shard)
        weights = jnp.where(first + places >= number * size, block.weights, 0.0)
        return jax.tree.map(jnp.add, total, function(Shard(block.rows, weights)))

    shapes = jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[:size], shard))
    zeros = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), shapes)
    return jax.lax.fori_loop(0, -(-num_rows // size), add, zeros)
