"""The problem of an experiment: a model, its rows, and the test functions to estimate."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..aggregators.base import AbstractFamily
from ..combiners.base import Prior
from ..model import Model
from ..samplers.base import AbstractSampler
from ..space import Params

# Classes of test functions, in the order of the figures: compiled functions sort names.
CLASSES = ("first", "pure second", "mixed second", "comembership")
MAX_BATCH_DRAWS = 50  # draws whose test functions are evaluated together

TestFunctions = Callable[[Params], dict[str, Array]]


@dataclass(frozen=True)
class Size:
    """The size of an experiment.

    Attributes:
        num_rows, dim: shape of the data.
        shards: numbers of shards.
        num_draws: draws per shard and per serial chain, after thinning.
        thin: thinning interval of Gibbs samplers.
        iterations: iterations of the paper's optimization.
        num_reference: number of serial chains that make up the reference.
        num_floor: number of serial chains that are compared with it.
        refined: numbers of shards whose combined draws are refined as well.
    """

    num_rows: int
    dim: int
    shards: tuple[int, ...] = (5, 10, 25, 50, 100)
    num_draws: int = 1000
    thin: int = 5
    iterations: int = 25
    num_reference: int = 4
    num_floor: int = 2
    refined: tuple[int, ...] = (5, 10, 25, 50, 100)

    def settings(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, its rows, and test functions.

    Attributes:
        model: the model.
        rows: all rows.
        test_functions: scalar functions of params, by class.
        sampler: sampler of serial chains, and of shards by default.
        family: the paper's family of aggregators.
        prior: whether shards are subposteriors or partial posteriors.
        shard_sampler: sampler of shards, if it differs.
        paper_sampler: sampler of shards for the paper's aggregators, if it differs.
        has_full_covariance: whether full covariance matrices of all shards fit into memory.
        truth: params that generated the rows, if a chain might be in another mode.
        design: further facts about how the rows were simulated.
    """

    model: Model
    rows: Mapping[str, np.ndarray]
    test_functions: TestFunctions
    sampler: AbstractSampler
    family: AbstractFamily
    prior: Prior = "subposterior"
    shard_sampler: AbstractSampler | None = None
    paper_sampler: AbstractSampler | None = None
    has_full_covariance: bool = True
    truth: Mapping[str, np.ndarray] | None = None
    design: Mapping[str, Any] = field(default_factory=dict)

    def expectations(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return means of all test functions over draws (draw, …), by class."""
        params = {name: jnp.asarray(draws[name]) for name in self.model.space}
        means = _means(self.test_functions, params)
        return {name: np.asarray(means[name]) for name in CLASSES if name in means}

    def first(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the test functions of the first class at every draw."""
        params = {name: jnp.asarray(draws[name]) for name in self.model.space}
        return np.asarray(_first_class(self.test_functions, params))

    def settings(self) -> dict[str, Any]:
        """Return a description; results are stored by a checksum of it."""
        return {
            "model": repr(self.model),
            "sampler": repr(self.sampler),
            "paper_sampler": repr(self.paper_sampler or self.shard_sampler or self.sampler),
            "family": repr(self.family),
            "prior": self.prior,
            **({"shard_sampler": repr(self.shard_sampler)} if self.shard_sampler else {}),
            **self.design,
        }


@partial(jax.jit, static_argnums=0)
def _means(functions: TestFunctions, draws: Params) -> dict[str, Array]:
    count = len(next(iter(draws.values())))
    size = max(size for size in range(1, MAX_BATCH_DRAWS + 1) if count % size == 0)
    batches = {name: array.reshape(-1, size, *array.shape[1:]) for name, array in draws.items()}

    def batch_means(batch: Params) -> dict[str, Array]:
        return {name: values.mean(axis=0) for name, values in jax.vmap(functions)(batch).items()}

    return {name: values.mean(axis=0) for name, values in jax.lax.map(batch_means, batches).items()}


@partial(jax.jit, static_argnums=0)
def _first_class(functions: TestFunctions, draws: Params) -> Array:
    return jax.lax.map(
        lambda params: next(iter(functions(params).values())), draws, batch_size=MAX_BATCH_DRAWS
    )
