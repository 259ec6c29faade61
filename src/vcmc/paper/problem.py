"""What shards are dealt from: a model, its rows, and the test functions that methods are judged by."""

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

CLASSES = ("first", "pure second", "mixed second", "comembership")  # compiled functions sort names
BATCH = 50  # draws whose test functions are computed together

TestFunctions = Callable[[Params], dict[str, Array]]


@dataclass(frozen=True)
class Size:
    """How large an experiment is.

    Attributes:
        num_rows, dim: of the data.
        shards: numbers of shards.
        num_draws: draws that are kept, of every shard and of every serial chain.
        thin: one draw of so many is kept.
        iterations: of the paper's optimisation.
        num_reference, num_floor: serial chains that make up the reference, and that are compared with it.
        refined: numbers of shards whose combined draws are refined, too.
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
        """The size by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, its rows, and what methods are judged by.

    Attributes:
        model: the model.
        rows: all rows.
        test_functions: scalar functions of params, in classes.
        sampler: how all rows are sampled, and shards, unless they are sampled otherwise.
        family: the paper's aggregators.
        prior: what every shard holds besides its rows.
        shard_sampler: how shards are sampled, if otherwise than all rows.
        paper_sampler: how shards are sampled for the paper's aggregators, if otherwise than for ours.
        full: whether covariance matrices of all parameters fit into memory.
        truth: params that made the rows, if a chain might sit in another mode.
        described: what else one must know to make the rows again.
    """

    model: Model
    rows: Mapping[str, np.ndarray]
    test_functions: TestFunctions
    sampler: AbstractSampler
    family: AbstractFamily
    prior: Prior = "subposterior"
    shard_sampler: AbstractSampler | None = None
    paper_sampler: AbstractSampler | None = None
    full: bool = True
    truth: Mapping[str, np.ndarray] | None = None
    described: Mapping[str, Any] = field(default_factory=dict)

    def expectations(self, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Means of all test functions over draws (draw, …) by name, in classes."""
        params = {name: jnp.asarray(draws[name]) for name in self.model.space}
        means = _means(self.test_functions, params)
        return {name: np.asarray(means[name]) for name in CLASSES if name in means}

    def first(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        """The test functions of the first class at every draw."""
        params = {name: jnp.asarray(draws[name]) for name in self.model.space}
        return np.asarray(_firsts(self.test_functions, params))

    def settings(self) -> dict[str, Any]:
        """What the problem is, in words and numbers."""
        return {
            "model": repr(self.model),
            "sampler": repr(self.sampler),
            "paper_sampler": repr(self.paper_sampler or self.shard_sampler or self.sampler),
            "family": repr(self.family),
            "prior": self.prior,
            **({"shard_sampler": repr(self.shard_sampler)} if self.shard_sampler else {}),
            **self.described,
        }


@partial(jax.jit, static_argnums=0)
def _means(functions: TestFunctions, draws: Params) -> dict[str, Array]:
    count = len(next(iter(draws.values())))
    size = max(each for each in range(1, BATCH + 1) if count % each == 0)
    batches = {name: array.reshape(-1, size, *array.shape[1:]) for name, array in draws.items()}

    def of_batch(batch: Params) -> dict[str, Array]:
        return {name: values.mean(axis=0) for name, values in jax.vmap(functions)(batch).items()}

    return {name: values.mean(axis=0) for name, values in jax.lax.map(of_batch, batches).items()}


@partial(jax.jit, static_argnums=0)
def _firsts(functions: TestFunctions, draws: Params) -> Array:
    return jax.lax.map(
        lambda params: next(iter(functions(params).values())), draws, batch_size=BATCH
    )
