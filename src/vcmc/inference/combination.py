"""The third stage of a run, combining the shards' draws, and the verb `combine` for given draws."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..combiners import AbstractCombiner, Consensus, Modes, Prior, Variational
from ..combiners.base import Subposteriors
from ..combiners.modes import combine_apart, search_modes
from ..data.params import by_coordinate, to_params, to_points
from ..data.partition import check_seed
from ..data.space_description import describe_space
from ..diagnostics.repeated_shards import repeated_shards
from ..diagnostics.sampling_error import DrawSource
from ..diagnostics.shards import ShardWarnings, broken_shards, has_converged
from ..executors import executor_of
from ..model import Derived, Model
from ..progress import ProgressDisplay, ProgressMode
from ..results.draws import (
    StreamedDraws,
    check_recorded_names,
    draws_labels,
    named_draws,
    resolve_space,
    shapes_of,
    support_warning,
    tree_space,
)
from ..results.mode_groups import mode_groups
from ..results.tree import kept_attribute, renamed_attribute
from ..space import Product, Space
from .arguments import (
    DEFAULT_DRAWS,
    MIN_DRAWS,
    check_combiner,
    check_integer,
    check_model,
    check_model_with_rows,
    resolve_prior,
)
from .assessment import result_tree, weights_attribute, weights_of
from .clock import Clock
from .draw_counts import needs_more_draws
from .local_stage import LocalsRequest, with_locals
from .posterior import Posterior, assess_posterior
from .preparation import result_target
from .shard_summary import ShardSummary, summarize_shards, summarize_streamed_shards

if TYPE_CHECKING:
    from xarray import DataTree

PARTIAL_PRIOR_DOUBT = (
    "partial posteriors contain the prior once in every shard, and so do averages of them: the "
    "combined posterior is too narrow and too close to the prior, the more so the more shards "
    'there are and the stronger the prior is. Use prior="subposterior" unless the combiner '
    "corrects for this."
)
PARTS, MIN_PART = 4, 4  # into which draws of one chain are cut; ArviZ needs four draws of each


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # points far from all mass
def combine_shards(
    combiner: AbstractCombiner,
    shards: Subposteriors,
    summary: ShardSummary,
    *,
    prior: Prior,
    stats: dict[str, np.ndarray],
    derived: Derived | None,
) -> Posterior:
    """Combine the shards' draws, and check both."""
    space = shards.space
    combiner, shards, combined = combine_apart(combiner, shards)
    points = as_chains(np.asarray(combined.draws), summary.num_chains)
    weights = combined.weights
    groups = {
        "posterior": to_params(space, points, derived),
        "subposterior": summary.subposterior,
        "sample_stats": stats,
        "subposterior_rhat": summary.rhat,
        "subposterior_ess": summary.ess,
        "weights": {} if weights is None else by_coordinate(space, weights),
        "optimization": combined.trace,
    }
    notes = _prior_doubts(combiner, prior, shards.num_shards)
    warnings = summary.shard_warnings(stats, space, prior)
    if combined.modes is not None:
        labels = np.reshape(combined.modes.labels, points.shape[:2])
        groups |= mode_groups(combined.modes, labels, space)
        # chains of different modes differ; the parts, which scores correct, are assessed one by one
        warnings = ShardWarnings([], [])
    notes = notes + combined.notes + warnings.notes
    source = None
    if combined.exact:  # doubts about the shards do not matter
        notes, warnings = [], ShardWarnings([], [])
        source = DrawSource(combined.settings.get("bent_ess"))
    elif shards.num_shards > 1:
        uses_target = combiner.needs.target
        source = DrawSource.of_shards(combined.pairs, summary.ess, summary.counts, uses_target)
    needs_more = not combined.exact and combined.modes is None
    needs_more &= not has_converged(summary.rhat, summary.ess, min(summary.counts))
    if source is not None and source.shard_ess is not None and weights is not None:
        variances = np.stack([np.var(draws, axis=0) for draws in shards])
        needs_more |= needs_more_draws(np.asarray(weights), variances, source.shard_ess)
    return Posterior(
        np.asarray(points),
        {name: group for name, group in groups.items() if group},
        notes,
        {
            "combiner": repr(combiner),
            "paired": int(combined.pairs is not None),
            "uses_target": int(combiner.needs.target or shards.num_shards == 1),
            **combined.settings,
            **({"mode_exact": list(combined.modes.exact)} if combined.modes else {}),
        },
        combined.exact,
        remarks=tuple(warnings.remarks),
        source=source,
        needs_more_draws=needs_more,
        modes=combined.modes,
        search=shards.modes,
    )


def as_chains(draws: Any, num_chains: int) -> Any:
    """Return posterior draws in as many chains as the shards have, if they divide evenly.

    Others are cut into four parts, for which ArviZ has an R-hat; into three, two or more than four
    if these divide them.
    """
    num_draws, dim = draws.shape
    most = num_draws // MIN_PART
    parts = [*range(min(PARTS, most), 1, -1), *range(PARTS + 1, most + 1)]
    counts = [num_chains, *parts] if num_chains > 1 else parts
    count = next((count for count in counts if num_draws % count == 0), 1)
    return draws.reshape(count, -1, dim)


def _prior_doubts(combiner: AbstractCombiner, prior: Prior, num_shards: int) -> list[str]:
    is_doubtful = prior == "partial" and num_shards > 1 and not combiner.needs.target
    return [PARTIAL_PRIOR_DOUBT] if is_doubtful else []


def combine(
    draws: Any,
    *,
    combiner: AbstractCombiner | None = None,
    space: Mapping[str, Space] | None = None,
    model: Model | None = None,
    rows: Any = None,
    weights: str | None = None,
    chains: bool | None = None,
    prior: Prior | None = None,
    num_draws: int | None = None,
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
) -> "DataTree":
    """Combine draws of shards that exist already.

    Args:
        draws: one of

            - a mapping from names to arrays (shard, draw, …) or (shard, chain, draw, …);
            - an xarray Dataset with dimensions (shard, draw, …) or (shard, chain, draw, …), or a
              DataTree whose group `subposterior` is one, e.g. a result of `infer`;
            - where shards have different numbers of draws, a mapping from names to lists of
              arrays, or a list of mappings, one per shard;
            - `LazyDraws`, which are loaded one shard at a time, if the combiner can.
        combiner: how to combine; by default, if there are a model and rows,
            `combiners.Variational()`, or `combiners.Modes()` if a search finds several modes, and
            `combiners.Consensus()` otherwise.
        space: the space of every parameter, e.g. `{"scale": vcmc.Positive()}`. Draws are combined
            in unconstrained coordinates, so that combined draws of `scale` are positive. A tree
            from vcmc records its space; otherwise parameters that are not named are real.
        model: the model of all rows, for combiners that need the full-data log density. It has a
            `space` of its own.
        rows: all rows, as `infer` takes them.
        weights: the column of rows with their weights; by default that of a tree, if any.
        chains: whether arrays have an axis of chains before that of draws. By default this is told
            by `space` or `model`; without these, an axis of at least 100 elements that is longer
            than the next is one of draws, and shapes that leave doubt are an error.
        prior: which prior the shards have, as in `infer`; by default the one that the tree
            records, or that the combiner needs.
        num_draws: number of combined draws; by default 5000, or as many as a shard has if these
            are more. Shards are independent, so their draws are paired at random, as often as
            needed. A single shard's draws are returned as they are.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of the combiner's random numbers.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.

    Returns:
        A tree like that of `infer`. Without a model and rows its verdict is "unknown".

    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    >>> tree = combine({"beta": draws})
    >>> dict(tree["posterior"].sizes)
    {'chain': 4, 'draw': 1250, 'beta_dim_0': 2}
    """
    seeks_modes = combiner is None and model is not None
    if combiner is None:
        combiner = Consensus() if model is None else Variational()
    check_combiner(combiner)
    executor = executor_of(executor)
    check_seed(seed)
    if num_draws is not None:
        check_integer("num_draws", num_draws, MIN_DRAWS)
    check_model_with_rows("combine", model, rows)
    if prior is None and hasattr(draws, "children"):
        prior = draws.attrs.get("prior")
    prior = resolve_prior(combiner, prior)
    declared = _declared_space(draws, space, model)
    named = named_draws(draws, chains, {name: part.shape for name, part in declared.items()})
    product = _resolve_space(shapes_of(named), declared, model)
    combiner.check(product)
    clock = Clock()
    with ProgressDisplay(progress) as display:
        stage = display.stage("check the shards", None)
        summary = _summarize(product, named)
        stage.finish()
        clock.lap("check")
        stage = display.stage("combine", None)
        num_shards = len(summary.counts)
        weights = weights_of(draws, weights)
        target = (
            None
            if model is None
            else result_target(model, rows, num_shards, executor, seed, weights)
        )
        clock.lap("load")
        shards = Subposteriors(
            summary.points,
            product,
            target,
            seed,
            stage.advance,
            num_posterior_draws=num_draws or max(DEFAULT_DRAWS, *summary.counts),
        )
        is_streamed = isinstance(named, StreamedDraws)
        if seeks_modes and target is not None and not (is_streamed or product.labelled()):
            search = search_modes(shards, target)
            shards = replace(shards, modes=search)
            combiner = Modes() if search.is_several else combiner
        combined = combine_shards(
            combiner,
            shards,
            summary,
            prior=prior,
            stats={},
            derived=model.derived if model else None,
        )
        stage.finish()
        clock.lap("combine")
    of_search = combined.search.notes_of_one if combined.search else []
    notes = _missing_shards(draws) + combined.notes + of_search + support_warning(named, declared)
    if not is_streamed:
        notes += repeated_shards(summary.sample, summary.ess)
    assessment = assess_posterior(combined._replace(notes=notes), target, seed)
    clock.lap("diagnose")
    settings: dict[str, Any] = {
        "num_shards": num_shards,
        "num_draws": combined.points.shape[0] * combined.points.shape[1],
        "shard_draws": max(summary.counts) // summary.num_chains,
        "seed": seed,
        "prior": prior,
        "space": describe_space(product),
        **weights_attribute(weights),
        **(renamed_attribute(model.renamed) if model else kept_attribute(draws)),
    }
    if len(set(summary.counts)) > 1:
        settings["draw_counts"] = summary.counts
    labels = draws_labels(draws) if model is None else model.labels
    groups = combined.groups | labels.groups
    if target is not None and target.model.local is not None:
        groups, _, assessment = with_locals(
            target, combined.points, LocalsRequest(None, seed), groups, assessment
        )
        settings["groups"] = target.model.local.groups
        settings["local_parameters"] = list(target.model.local.space)
        clock.lap("locals")
    settings |= combined.settings | clock.seconds | {"exact": combined.exact}
    return result_tree(groups, settings, assessment)


def _declared_space(
    draws: Any, space: Mapping[str, Space] | None, model: Model | None
) -> Mapping[str, Space]:
    """Return the spaces that are known: the model's, or a tree's with the user's on top."""
    if model is None:
        return tree_space(draws, space or {})
    check_model(model)
    if space is not None:
        raise ValueError("combine takes space= or model=, which has a space; got both.")
    check_recorded_names(draws, model.space)
    return model.space


def _resolve_space(
    shapes: Mapping[str, tuple[int, ...]], declared: Mapping[str, Space], model: Model | None
) -> Product:
    """Return the space of the draws."""
    if model is None:
        return resolve_space(shapes, declared)
    if missing := set(model.space) - set(shapes):
        raise ValueError(
            f"the model has the parameters {list(model.space)}, but there are no draws of "
            f"{sorted(missing)}."
        )
    ordered = {name: shapes[name] for name in model.space}  # the order of a point's coordinates
    return resolve_space(ordered, model.space)


def _summarize(space: Product, draws: dict[str, np.ndarray] | StreamedDraws) -> ShardSummary:
    if isinstance(draws, StreamedDraws):
        summary = summarize_streamed_shards(space, draws)
        _check_sound(summary.broken)
        return summary
    num_shards, num_chains, num_draws = next(iter(draws.values())).shape[:3]
    flat = {name: draws[name].reshape(-1, *draws[name].shape[3:]) for name in space}
    points = np.asarray(to_points(space, flat)).reshape(num_shards, num_chains, num_draws, -1)
    _check_sound(broken_shards(points))
    return summarize_shards(space, points)


def _check_sound(reasons: Mapping[int, str]) -> None:
    if reasons:
        raise ValueError(
            "the draws of every shard must be finite, vary, lie inside the parameter's space and "
            "differ from those of other shards; got "
            + "; ".join(f"shard {shard}: {reason}" for shard, reason in reasons.items())
            + ". Remove or resample these shards, and check space=."
        )


def _missing_shards(draws: Any) -> list[str]:
    """Return a warning if a tree does not have the draws of all shards."""
    if not hasattr(draws, "children") or "sound_shards" not in draws.attrs:
        return []
    sound = set(np.atleast_1d(draws.attrs["sound_shards"]).tolist())
    missing = [shard for shard in range(int(draws.attrs["num_shards"])) if shard not in sound]
    if not missing:
        return []
    share = len(missing) / (len(missing) + len(sound))
    return [
        f"shards {missing} are missing: the combined draws reflect neither their rows nor "
        f"{share:.0%} of the tempered prior. Sample them, or pass the model and all rows with a "
        "combiner that corrects for it."
    ]
