"""The verb `posterior_check`: whether data that the model replicates are like the data.

Statistics of the data are compared with those of replicated data, drawn from the model at draws of
the posterior for the same rows (Gelman, Meng and Stern, *Posterior predictive assessment of model
fitness via realized discrepancies*, 1996). They are computed by shard, where the rows are, and
merged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from .._runtime import limit_programs
from ..data.cache import Task
from ..data.partition import check_seed
from ..data.row_order import row_numbers
from ..data.rows import NUMBER_KINDS
from ..diagnostics.merged_statistics import STATISTICS, Kind, MergedStatistic
from ..errors import describe
from ..executors import AbstractExecutor, executor_of
from ..model import Model
from ..models.host_simulator import AbstractHostSimulator
from ..progress import ProgressDisplay, ProgressMode, Stage
from ..results.posterior_checks import Line, PosteriorCheck
from .arguments import check_integer, check_model, check_result
from .assessment import ROW_WEIGHTS
from .checked_rows import CheckedRows, CheckOptions, check_num_groups, checked_rows
from .predicted_replication import ReplicationWork, replicate_by_prediction
from .prediction import check_simulates
from .replication import (
    Part,
    Replicates,
    draw_blocks,
    folded,
    merged_parts,
    observe_shard,
    replicate_shard,
)
from .result_points import posterior_points, spaced_draws

if TYPE_CHECKING:
    from xarray import DataTree

Function = Callable[[np.ndarray], Any]
Statistic = MergedStatistic | Function
DEFAULT_REPLICATES = 500  # so that a p-value of 0.05 has a standard error of 0.01
MAX_VALUE_BYTES = 2**28  # of replicated values in this process, for functions of the user's
ZEROS = "share of zeros"
CHECK_STREAM = 5  # of the seed's random numbers; that of predictions is 4


def posterior_check(
    tree: "DataTree",
    model: Model,
    rows: Any,
    name: str | None = None,
    *,
    observed: str | None = None,
    statistics: Iterable[str | Function] | Mapping[str, str | Function] | None = None,
    by: str | None = None,
    num_draws: int = DEFAULT_REPLICATES,
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
) -> PosteriorCheck:
    """Check a model against its data: compare statistics of the data with those of replicates.

    A replicate is a data set that the model draws for the same rows, at one draw of the posterior.
    If the model is right, the data's statistics lie among those of replicates.

    Args:
        tree: a result of `infer`, `combine` or `refine`.
        model: the model, from `from_numpyro` or `from_pymc`, or with `simulate=`.
        rows: the rows that the model was fitted to, as `infer` takes them.
        name: what to replicate, e.g. the observed site "y"; it may be left out if there is only
            one.
        observed: the column with the data's values; by default the one called `name`, or the only
            one that the model simulates its rows without.
        statistics: names among "mean", "sd", "share of zeros", "smallest", "q05", "q50", "q95" and
            "largest", and functions of the array of one data set's values, in the order of the
            rows; or a mapping to them from names of your own. By default all of these names.
        by: the column with the groups of rows: statistics are then computed for each group.
        num_draws: number of replicates, at evenly spaced draws of the posterior.
        executor: where rows are simulated; by default `executors.Local()`.
        seed: seed of the replicates.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.

    Returns:
        A `PosteriorCheck`: print it for a table; `to_frame()` returns a pandas data frame, and
        `vcmc.plot_posterior_check` plots it.
    """
    check_result(tree)
    _check_unweighted(tree)
    check_model(model)
    if model.local is None:  # `predict` checks those with groups
        check_simulates(model)
    check_seed(seed)
    check_integer("num_draws", num_draws, 2)
    chosen = checked_statistics(statistics)
    points = posterior_points(tree, model)
    draws = spaced_draws(points, num_draws)
    options = CheckOptions(name, observed, by, *_needs(chosen.values()))
    with ProgressDisplay(progress) as display:
        stage = display.stage("replicate", None)
        if model.local is not None or isinstance(model.simulate_rows, AbstractHostSimulator):
            work = ReplicationWork(_key(seed), executor_of(executor), stage.advance)
            replicates = replicate_by_prediction(tree, model, rows, draws, options, work)
        else:
            num_shards = int(tree.attrs.get("num_shards", 1))
            checked = checked_rows(model, rows, num_shards, points[0, 0], options)
            limit_programs(checked.cache.model)
            flat = points[:, draws].reshape(-1, points.shape[2])
            parts = _by_shard(checked, flat, executor_of(executor), seed, stage)
            replicates = Replicates(checked.response.name, checked.labels, parts)
        result = _check(replicates, chosen, by or "", drops_zeros=statistics is None)
        stage.finish()
    return result


def _key(seed: int) -> Array:
    return jax.random.fold_in(jax.random.key(seed), CHECK_STREAM)


def _check_unweighted(tree: "DataTree") -> None:
    if column := tree.attrs.get(ROW_WEIGHTS):
        raise ValueError(
            f"the result has weights of rows ({column!r}), and the model does not say what data a "
            "row of that weight stands for. Repeat the rows by their weights, and infer without "
            f"weights={column!r}."
        )


def checked_statistics(statistics: Any) -> dict[str, Statistic]:
    """Return the statistics by name: those of vcmc, or functions of the user's."""
    if statistics is None:
        return dict(STATISTICS)
    if isinstance(statistics, str) or callable(statistics):
        statistics = [statistics]
    if not isinstance(statistics, Mapping):
        statistics = {getattr(given, "__name__", str(given)): given for given in statistics}
    if not statistics:
        raise ValueError("statistics must have at least one name or function; got none.")
    return {str(label): _checked_statistic(given) for label, given in statistics.items()}


def _checked_statistic(given: Any) -> Statistic:
    if isinstance(given, str) and given in STATISTICS:
        return STATISTICS[given]
    if callable(given):
        return given
    raise ValueError(
        f"statistics must be names among {list(STATISTICS)}, or functions of an array of values, "
        f'e.g. statistics={{"range": np.ptp}}; got {given!r}.'
    )


def _needs(statistics: Iterable[Statistic]) -> tuple[tuple[Kind, ...], bool]:
    """Return the summaries that statistics need, and whether they need the values themselves."""
    statistics = list(statistics)
    kinds = dict.fromkeys(s.summary for s in statistics if isinstance(s, MergedStatistic))
    return tuple(kinds), not all(isinstance(s, MergedStatistic) for s in statistics)


def _by_shard(
    checked: CheckedRows,
    points: Float[np.ndarray, "draw dim"],
    pool: AbstractExecutor,
    seed: int,
    stage: Stage,
) -> Iterator[dict[Any, Part]]:
    """Yield merged summaries of the data by group, and then of some replicates at a time."""
    cache, response = checked.cache, checked.response
    tasks = [Task((shard,)) for shard in range(cache.num_shards)]
    data = list(
        pool.map(
            partial(observe_shard, response=response), tasks, cache, stage.advance, one_by_one=True
        )
    )
    sizes = [sum(len(part.rows) for part in parts.values()) for parts in data]
    numbers = row_numbers(cache.partition, sizes)
    yield merged_parts(data, numbers)
    key = np.asarray(jax.random.key_data(_key(seed)))
    row_shape = np.shape(cache.shard(0).rows[response.observed])[1:]
    num_values = sum(sizes) * int(np.prod(row_shape)) if response.keep_values else 0
    for first, block in draw_blocks(points, num_values, MAX_VALUE_BYTES):
        work = partial(replicate_shard, response=response, points=block, key=folded(key, first))
        yield merged_parts(
            list(pool.map(work, tasks, cache, stage.advance, one_by_one=True)), numbers
        )


def _check(
    replicates: Replicates, statistics: Mapping[str, Statistic], by: str, drops_zeros: bool
) -> PosteriorCheck:
    """Compute the statistics of the data, which come first, and of all replicates."""
    parts = iter(replicates.parts)
    data = next(parts)
    check_num_groups(by, len(data))
    observed = _evaluate(statistics, data, at_data=True)[:, 0]
    replicated = np.concatenate([_evaluate(statistics, block) for block in parts], axis=1)
    lines = [
        Line(name, _label(replicates.labels, group) if by else "")
        for name in statistics
        for group in data
    ]
    kept = np.ones(len(lines), bool)
    if drops_zeros:  # of a continuous response
        is_zeros = np.array([line.statistic == ZEROS for line in lines])
        kept = ~is_zeros | bool(observed[is_zeros].any() or replicated[is_zeros].any())
    return PosteriorCheck(
        replicates.name,
        tuple(line for line, is_kept in zip(lines, kept, strict=True) if is_kept),
        observed[kept],
        replicated[kept],
        by,
    )


def _label(labels: np.ndarray | None, group: Any) -> str:
    return str(group if labels is None else labels[group])


def _evaluate(
    statistics: Mapping[str, Statistic], parts: Mapping[Any, Part], at_data: bool = False
) -> Float[np.ndarray, "line draw"]:
    return np.array(
        [
            statistic.value(part.summaries[statistic.summary])
            if isinstance(statistic, MergedStatistic)
            else _apply(name, statistic, part, at_data)
            for name, statistic in statistics.items()
            for part in parts.values()
        ]
    )


def _apply(name: str, function: Function, part: Part, at_data: bool) -> list[float]:
    """Return a function of the user's of each replicate."""
    assert part.values is not None
    values = np.moveaxis(part.values, 1, 0)
    try:
        results = [function(np.ascontiguousarray(replicate)) for replicate in values]
    except Exception as error:  # of the user's function
        raise ValueError(
            f"statistics[{name!r}] must be a function of an array of values with the shape "
            f"{values.shape[1:]}; it fails ({describe(error)})."
        ) from error
    for result in results:
        is_number = np.ndim(result) == 0 and np.asarray(result).dtype.kind in NUMBER_KINDS
        if not is_number or (at_data and np.isnan(float(result))):
            found = f"an array of shape {np.shape(result)}" if np.ndim(result) else repr(result)
            raise ValueError(
                f"statistics[{name!r}] must return one number for an array of values; got {found}."
            )
    return [float(result) for result in results]
