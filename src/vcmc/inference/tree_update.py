"""Update a result whose earlier rows are given."""

import os
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..combiners import Variational
from ..data.files import FilePartition
from ..data.folders import discard, temporary_folder
from ..data.params import to_points
from ..data.row_digest import RowDigest, row_digest
from ..data.shard import AbstractPartition
from ..data.shard_files import plain_partition
from ..data.shard_list import BatchShard
from ..data.size import RowsSize
from ..data.space_description import describe_space
from ..errors import warn_doubtful, warn_user
from ..model import Model
from ..progress import ProgressDisplay
from ..results.draws import StreamedDraws, named_draws
from ..results.tree import draws_by_parameter, make_tree
from ..samplers.base import Chain
from .arguments import check_result
from .assessment import weights_of
from .batch_plan import BatchPlan, BatchSettings, EarlierShard, Rows, count_for_share, plan_batch
from .clock import Clock
from .kept_rows import batch_shards, write_batch, write_partition
from .model_rows import model_rows
from .new_rows import NewRows, read_new_rows
from .partitioning import as_partition
from .repeated_rows import repeated_batches, repeated_sentence
from .request import Request
from .shard_count import MAX_SHARD_BYTES, TooManyShards, slots_of
from .stored_update import SAMPLE_STREAM, SPLIT_STREAM, UpdateOptions, stream_seed
from .surrogate_assessment import MAPS
from .update_groups import BATCHES, UPDATES, now, update_groups
from .update_stages import Batch, UpdateResult, starts_from, update_posterior

if TYPE_CHECKING:
    from xarray import DataTree

DIGESTS = "batch_digests"  # the attribute that tells which rows a result has


def update_tree(
    tree: "DataTree",
    model: Model,
    new_rows: Any,
    rows: Any,
    weights: str | None,
    name: str,
    options: UpdateOptions,
) -> "DataTree":
    """Update a result, given all of its rows."""
    check_tree(tree, model)
    weights = weights_of(tree, weights)
    earlier = _earlier_shards(tree, model, rows, weights)
    column = model.local.groups if model.local else None
    total = sum(shard.num_rows for shard in earlier)
    slots = slots_of(options.executor)

    def count(size: RowsSize) -> int:
        by_size = slots * -(-size.num_bytes // (slots * MAX_SHARD_BYTES))
        return max(count_for_share(size.num_rows / (size.num_rows + total), slots), by_size)

    batch = read_new_rows(
        new_rows, model, weights, earlier[0].read(column), options.num_shards, count
    )
    digests = _checked_digests(tree, earlier, batch.digest, column)
    if batch.whole is not None and (found := repeated_batches(batch.whole, earlier, column)):
        warn_user(repeated_sentence(found, {}), UserWarning)
    number = int(tree[UPDATES].sizes["update"]) if UPDATES in tree.children else 1
    seed = int(tree.attrs["seed"]) if options.seed is None else options.seed
    settings = BatchSettings(
        model.space.dim,
        slots,
        options.num_shards,
        stream_seed(seed, number, SPLIT_STREAM),
        column,
        can_merge=UPDATES not in tree.children,
    )
    clock = Clock()
    with ProgressDisplay(options.progress) as display:
        while True:
            plan = _plan(batch, earlier, settings)
            try:
                result, batches = _run(
                    tree, model, earlier, plan, number, seed, weights, options, display, clock
                )
                break
            except TooManyShards:
                settings = settings._replace(least_size=plan.least_size)
    verdict = result.assessment.diagnosis.verdict
    entry = {
        "num_rows": batch.digest.num_rows,
        "num_shards": len(batches),
        "time": now(),
        "verdict": verdict,
        "name": name or str(number),
    }
    own = update_groups(tree, result.posterior.groups["posterior"], model, entry, batches)
    warn_doubtful(result.assessment.warnings)
    return make_tree(
        {**result.posterior.groups, **result.assessment.groups, **own},
        result.settings | clock.seconds | {"update": number, DIGESTS: digests},
    )


def check_tree(tree: Any, model: Model) -> None:
    """Refuse a result of another model, or one without draws of shards."""
    check_result(tree)
    if "subposterior" not in tree.children:
        raise ValueError(
            "an update needs the draws of shards, the group 'subposterior', which this result does "
            "not have. Make one with vcmc.infer."
        )
    if MAPS in tree.attrs:
        raise ValueError(
            "this result was made without its earlier rows, so that it has no shards of them. "
            "Update it without rows= again, or go back to the last result that had its rows."
        )
    space = tree.attrs.get("space")
    if space is not None and space != describe_space(model.space):
        raise ValueError(
            f"the result is one of another model: its parameters are {space}, and those of the "
            f"model are {describe_space(model.space)}. Pass the model that it was made with."
        )


def _earlier_shards(
    tree: "DataTree", model: Model, rows: Any, weights: str | None
) -> list[EarlierShard]:
    """Return the shards of a result, with their rows and draws.

    A result of `infer` is split as it was. After an update, earlier rows are split anew: their sum
    is all that matters for scores, and each shard keeps its draws.
    """
    num_shards = int(tree.attrs["num_shards"])
    partition = as_partition(
        model_rows(rows, model, weights),
        None if isinstance(rows, AbstractPartition) else num_shards,
        int(tree.attrs["seed"]),
        local=model.local,
        weights=weights,
    )
    if partition.num_shards != num_shards:
        raise ValueError(
            f"rows must be split into the {num_shards} shards of the result; got a partition with "
            f"{partition.num_shards}. Pass the rows as they are."
        )
    shards = _shards(partition, model.local is not None)
    sizes = [_num_rows(shard) for shard in shards]
    known = np.sum(np.atleast_1d(tree.attrs.get("shard_sizes", np.sum(sizes))))
    if sum(sizes) != known:
        raise ValueError(
            f"rows must be the {known} rows that the result was made of, without the new ones; "
            f"got {sum(sizes)}."
        )
    batches = np.zeros(num_shards, int)
    if BATCHES in tree.children:
        batches = tree[BATCHES]["batch"].to_numpy()
    units = sizes
    if model.local is not None:
        groups = cast(FilePartition, shards[0].partition).read_groups()
        units = [int(np.sum(groups.shards == place)) for place in range(len(sizes))]  # type: ignore[union-attr]
    return [
        EarlierShard(shard, unit, size, int(batch), chains)
        for shard, unit, size, batch, chains in zip(
            shards, units, sizes, batches, tree_chains(tree, model), strict=True
        )
    ]


def _shards(partition: AbstractPartition, is_grouped: bool) -> list[BatchShard]:
    """Return the shards of a partition, by groups from files, which have their labels."""
    if not is_grouped:
        return batch_shards(partition)
    folder, lock = temporary_folder()
    files = write_partition(folder / "rows", partition)
    weakref.finalize(files, discard, folder, os.getpid(), lock)
    return batch_shards(files)


def _written(shards: Sequence[Rows], column: str | None) -> list[BatchShard]:
    """Return new shards as files in a temporary folder, which every process can read."""
    folder, lock = temporary_folder()
    written = write_batch(folder / "rows", shards, column)
    weakref.finalize(written[0].partition, discard, folder, os.getpid(), lock)
    return written


def _num_rows(shard: BatchShard) -> int:
    partition: Any = plain_partition(shard.partition)
    if hasattr(partition, "sizes"):
        return int(partition.sizes[shard.number])
    return partition.load(shard.number).num_rows


def tree_chains(tree: "DataTree", model: Model) -> list[list[Chain]]:
    """Return the chains of every shard of a result as points."""
    named = named_draws(tree)
    if isinstance(named, StreamedDraws):
        shards: list[Any] = [
            {name: array[None] for name, array in named[shard].items()}
            for shard in range(len(named))
        ]
    else:
        num_shards = len(next(iter(named.values())))
        shards = [{n: array[shard] for n, array in named.items()} for shard in range(num_shards)]
    stats: dict[str, np.ndarray] = {}
    if "sample_stats" in tree.children:
        arrays = tree["sample_stats"].to_dataset().transpose("shard", "chain", "draw")
        stats = {str(name): arrays[name].to_numpy() for name in arrays.data_vars}
    found = []
    for shard, params in enumerate(shards):
        num_chains, num_draws = next(iter(params.values())).shape[:2]
        flat = {name: params[name].reshape(-1, *params[name].shape[2:]) for name in model.space}
        points = np.asarray(to_points(model.space, flat)).reshape(num_chains, num_draws, -1)
        found.append(
            [
                Chain(points[chain], {n: a[shard, chain, :num_draws] for n, a in stats.items()})
                for chain in range(num_chains)
            ]
        )
    return found


def _checked_digests(
    tree: "DataTree", earlier: list[EarlierShard], new: RowDigest, column: str | None
) -> list[str]:
    """Return the digests of all batches; raise an error if the new rows are among them."""
    known = [str(digest) for digest in np.atleast_1d(tree.attrs.get(DIGESTS, []))]
    whole = RowDigest()
    for shard in earlier:
        whole = whole.plus(row_digest(shard.read(column), column))
    known = known or [_text(whole)]
    if _text(new) in [*known, _text(whole)]:
        raise ValueError(
            f"the new rows are in the result already: {new.num_rows} rows with the same values "
            "were used before. Pass rows that are new."
        )
    return [*known, _text(new)]


def _text(digest: RowDigest) -> str:
    return f"{digest.num_rows}:{digest.total:016x}"


def _plan(batch: NewRows, earlier: list[EarlierShard], settings: BatchSettings) -> BatchPlan:
    if batch.whole is None:
        return BatchPlan(batch.shards, frozenset(), True, 0)
    if settings.group_column is not None and not settings.can_merge:
        _refuse_known_groups(batch, earlier, settings.group_column)
    return plan_batch(batch.whole, earlier, settings)


def _refuse_known_groups(batch: NewRows, earlier: list[EarlierShard], column: str) -> None:
    known = np.unique(np.concatenate([shard.read(column)[column] for shard in earlier]))
    if np.isin(cast(dict[str, np.ndarray], batch.whole)[column], known).any():
        raise ValueError(
            "new rows of known groups go to the shards of their groups, which a result that was "
            "updated before does not know. Use a run directory: vcmc.infer(..., store=...), then "
            "vcmc.update(store, model, new_rows)."
        )


def _run(
    tree: "DataTree",
    model: Model,
    earlier: list[EarlierShard],
    plan: BatchPlan,
    number: int,
    seed: int,
    weights: str | None,
    options: UpdateOptions,
    display: ProgressDisplay,
    clock: Clock,
) -> tuple[UpdateResult, list[int]]:
    """Sample the new shards, and combine all; return the batches of the shards, too."""
    sizes = tree["posterior"].sizes
    request = Request.checked(
        seed=stream_seed(seed, number, SAMPLE_STREAM),
        num_draws=options.num_draws or sizes["chain"] * sizes["draw"],
        shard_draws=None,
        error=None,
        thin=int(tree.attrs.get("thin", 1)),
        sampler=None,
        combiner=options.combiner or Variational(),
        executor=options.executor,
        prior=tree.attrs.get("prior"),
        store=None,
        weights=weights,
    )
    request = replace(
        request,
        num_shards_reason=f"{len(plan.shards)} of them hold the rows that are new.",
        starts=starts_from(model, draws_by_parameter(tree)),
    )
    kept = [shard for place, shard in enumerate(earlier) if place not in plan.replaced]
    new = _written(plan.shards, model.local.groups if model.local else None)
    batch = Batch(model, kept, new, [number] * len(new), is_reducible=not plan.is_fixed)
    result = update_posterior(batch, request, options.locals_mode, display, clock)
    return result, batch.batches
