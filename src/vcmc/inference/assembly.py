"""What the verbs have in common: a checked target from a model and rows, and a tree from draws."""

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import jax
import numpy as np
from jaxtyping import Array, Float

from .. import combiners, executors
from ..data.files import is_large
from ..data.params import by_coordinate, to_params
from ..data.partition import LazyRows, split
from ..data.shard import AbstractPartition
from ..diagnostics.additivity import check_additivity, check_labels
from ..errors import DoubtfulWarning
from ..model import Model
from ..progress import ProgressMode
from ..space import Product
from ..target import Target
from .shard_summary import ShardSummary

if TYPE_CHECKING:
    pass


PARTIAL = (
    "partial posteriors hold the prior once in every shard, and averages of them hold it as often: the combined "
    "posterior is too narrow and too close to the prior, the more so the more shards and the stronger the prior. "
    'Use prior="subposterior" unless the combiner corrects for this.'
)


NUM_POINTS = 3  # at which a model's log density is written down


class Clock:
    """Seconds spent in each stage, by the name `seconds_<stage>`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def since_lap(self) -> float:
        """Seconds since the last stage ended."""
        return time.perf_counter() - self._last

    def lap(self, name: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[f"seconds_{name}"] = round(now - self._last, 4)
        self._last = now


def partition_of(
    rows: Any,
    num_shards: int | None,
    seed: int,
    folder: Path | None = None,
    progress: ProgressMode = True,
) -> AbstractPartition:
    """Rows as a partition: the user's own, or dealt here."""
    if callable(rows) and not isinstance(rows, AbstractPartition) and num_shards is not None:
        return LazyRows(rows, num_shards)
    if isinstance(rows, AbstractPartition):
        if num_shards not in (None, rows.num_shards):
            raise ValueError(
                f"num_shards must be left out or equal that of the partition ({rows.num_shards}); got "
                f"{num_shards}."
            )
        return rows
    if num_shards is None:
        raise ValueError(
            "how many shards there are must be said, such as num_shards=20, unless rows is a Partition; got None."
        )
    return split(
        rows, num_shards, seed=seed, folder=folder if is_large(rows) else None, progress=progress
    )


def checked_target(
    model: Model, partition: AbstractPartition, executor: executors.AbstractExecutor, key: Array
) -> Target:
    """The target of a model that has its point estimates, and whose log density was seen to be what it must be."""
    target = Target.fitted(model, partition, executor)
    model = target.model
    somewhere = 0.5 * jax.random.normal(key, (model.space.dim,))
    some = [target.shard_cache.shards[shard] for shard in range(min(2, target.num_shards))]
    check_additivity(model, some, somewhere)
    check_labels(model, some[0], somewhere)
    return target


def log_densities_of(target: Target, key: Array) -> list[str]:
    """Log prior and log likelihood of one shard at a few points, in ten digits: a model that was changed has others."""
    points = 0.5 * jax.random.normal(key, (NUM_POINTS, target.model.space.dim))
    shard = target.pilot.shard
    values = [
        (target.model.log_prior_at(u), target.model.log_likelihood_at(u, shard)) for u in points
    ]
    return [f"{float(value):.10g}" for pair in values for value in pair]


def groups_of(
    space: Product,
    seen: ShardSummary,
    stats: dict[str, np.ndarray],
    combined: combiners.Combined,
    prior: combiners.Prior,
    model: Model | None = None,
) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """The groups of a result, and what looks doubtful in it."""
    groups = {
        "posterior": to_params(space, as_chains(combined, seen), model.derived if model else None),
        "subposterior": seen.subposterior,
        "sample_stats": stats,
        "subposterior_rhat": seen.rhat,
        "subposterior_ess": seen.ess,
        "weights": {} if combined.weights is None else by_coordinate(space, combined.weights),
        "optimization": combined.trace,
    }
    notes = combined.notes + seen.doubts(stats, space, prior)
    return {name: group for name, group in groups.items() if group}, notes


def as_chains(combined: combiners.Combined, seen: ShardSummary) -> Float[Array, "chain draw dim"]:
    """Combined draws in as many chains as the shards have, if they can be divided so."""
    count, dim = combined.draws.shape
    return combined.draws.reshape(1 if count % seen.num_chains else seen.num_chains, -1, dim)


def check_kind(argument: str, value: Any, kind: type, example: str) -> None:
    """Raise an error that shows what an argument should look like, unless it is of its kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{argument} must be such as {example}; got {value!r}.")


def check_together(verb: str, model: Any, rows: Any) -> None:
    """Raise an error if there is a model without rows, or the other way round."""
    if (model is None) != (rows is None):
        raise ValueError(
            f"{verb} takes a model and its rows together, or neither; got only one of them."
        )


def settled_prior(combiner: combiners.AbstractCombiner, given: Any) -> combiners.Prior:
    """What the shards hold besides their rows: as it is given, or as the combiner needs it; the two must go together."""
    wanted = combiner.needs.prior
    if given is None:
        return wanted
    if given not in get_args(combiners.Prior):
        raise ValueError(f"prior must be one of {get_args(combiners.Prior)}; got {given!r}.")
    if "powered" in (given, wanted) and given != wanted and not combiner.needs.scores:
        raise ValueError(
            f"{type(combiner).__name__} is for shards with prior={wanted!r}; got prior={given!r}. Sample the shards with "
            f"vcmc.infer(..., prior={wanted!r}), or choose another combiner: docs/combiners.md has a table of what they need."
        )
    return given


def prior_doubts(
    combiner: combiners.AbstractCombiner, prior: combiners.Prior, num_shards: int
) -> list[str]:
    """What is doubtful about combining shards that hold the prior so."""
    return [PARTIAL] if prior == "partial" and num_shards > 1 and not combiner.needs.target else []


def warn(notes: list[str]) -> list[str]:
    """Say what looks doubtful, and return it."""
    for note in notes:
        warnings.warn(
            note, DoubtfulWarning, stacklevel=4
        )  # where the user called the verb that stores it
    return notes
