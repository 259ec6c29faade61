"""The checked arguments of `infer`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..combiners import AbstractCombiner, Modes, Prior, Variational
from ..data.partition import check_seed
from ..executors import AbstractExecutor, executor_of
from ..results.store import Store
from ..samplers import AbstractSampler
from ..space import Point
from ..target import Target
from .arguments import MIN_DRAWS, check_combiner, check_instance, check_integer, resolve_prior
from .error_goal import check_error, draws_for_error, precise_combiner


@dataclass(frozen=True)
class Request:
    """The checked arguments of `infer`: how to sample the shards and how to combine them."""

    seed: int
    num_draws: int
    shard_draws: int | None
    error: float | None
    thin: int
    sampler: AbstractSampler | None
    combiner: AbstractCombiner
    executor: AbstractExecutor
    prior: Prior
    store: Store | None
    weights: str | None = None
    num_shards_reason: str = ""
    may_reduce_shards: bool = False
    """Whether vcmc chose the number of shards, and may choose a smaller one."""
    seeks_modes: bool = False
    """Whether draws are to be combined mode by mode, if there are several modes."""
    num_earlier_shards: int = 0
    """Shards of earlier batches of rows, whose draws are kept."""
    starts: tuple[Point, ...] = ()
    """Where the search for a start begins, if an earlier posterior is known."""
    was_independent: bool | None = None
    """Whether the run that is continued samples independently; None for a new run."""

    def total_shards(self, target: Target) -> int:
        """Return the number of shards of all batches, given the target of those to be sampled."""
        return target.num_shards + self.num_earlier_shards

    @classmethod
    def checked(
        cls,
        *,
        seed: Any,
        num_draws: Any,
        shard_draws: Any,
        error: Any,
        thin: Any,
        sampler: Any,
        combiner: AbstractCombiner | None,
        executor: Any,
        prior: Any,
        store: str | Path | None,
        weights: Any = None,
    ) -> "Request":
        """Check the arguments and fill in the defaults."""
        seeks_modes = combiner is None or isinstance(combiner, Modes)
        combiner = Variational() if combiner is None else combiner
        check_combiner(combiner)
        check_error(error)
        num_draws = draws_for_error(error) if num_draws is None else num_draws
        check_integer("num_draws", num_draws, MIN_DRAWS)
        if shard_draws is not None:
            check_integer("shard_draws", shard_draws, MIN_DRAWS)
        check_integer("thin", thin, 1)
        check_seed(seed)
        prior = resolve_prior(combiner, prior)
        if sampler is not None:
            check_instance("sampler", sampler, AbstractSampler, "vcmc.samplers.NUTS()")
            if not supports_prior(sampler, prior):
                raise ValueError(
                    f"{type(sampler).__name__} cannot raise a likelihood to a power, which "
                    "prior='powered' requires. Use vcmc.samplers.NUTS()."
                )
            if weights is not None and not sampler.takes_powers:
                raise ValueError(
                    f"{type(sampler).__name__} takes no weights of rows. Use vcmc.samplers.NUTS()."
                )
        return cls(
            seed,
            num_draws,
            shard_draws,
            error,
            thin,
            sampler,
            combiner if error is None else precise_combiner(combiner, error),
            executor_of(executor),
            prior,
            None if store is None else Store(store),
            weights,
            seeks_modes=seeks_modes,
        )


def supports_prior(sampler: Any, prior: Prior) -> bool:
    """Return whether a sampler can sample shards with a prior."""
    return prior != "powered" or getattr(sampler, "takes_powers", False)
