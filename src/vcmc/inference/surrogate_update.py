"""Update a result with new rows when the old rows are gone: its draws stand for them.

Yesterday's posterior is today's prior. A density that is fitted to the old draws
(`models/surrogate.py`) takes the place of the model's prior, which it contains, and the new rows
are sampled, combined and assessed as those of `infer` are. What the density leaves uncertain is
added to the standard errors of the result (`diagnostics/surrogate_errors.py`), and the verdict says
where it cannot be trusted (`diagnostics/surrogate_trust.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._compile_cache import use_compile_cache
from ..combiners import AbstractCombiner, Variational
from ..data.grouped import GroupedPartition
from ..data.params import to_params
from ..data.shard import AbstractPartition
from ..diagnostics import convergence
from ..diagnostics.selfcheck import Errors
from ..diagnostics.surrogate_errors import OldPosterior, Sensitivity, sensitivity
from ..diagnostics.surrogate_trust import (
    ADVICE,
    NUM_WEIGHTED,
    Update,
    WeightedDraws,
    contradiction,
    disagreement,
    extrapolation,
    weighted_draws,
)
from ..diagnostics.verdict import STANDARD_ERRORS, STATISTICS, Diagnosis, Evidence, judge_again
from ..errors import ModelError
from ..model import Model
from ..models.surrogate import Surrogate
from ..models.surrogate_prior import SurrogateModel
from ..progress import ProgressDisplay, ProgressMode
from ..results.effective_draws import max_effective_draws
from ..results.tree import SIZES_GROUP
from ..samplers import AbstractSampler
from ..target import Target
from .arguments import check_model, check_result
from .assessment import (
    Assessment,
    Points,
    posterior_points,
    result_tree,
    stored_diagnosis,
    weights_of,
)
from .clock import Clock
from .combination import Posterior
from .local_stage import check_mode
from .local_tasks import LocalsMode
from .partitioning import choose_shards
from .preparation import checked_target, prepare
from .request import Request
from .stages import Stages
from .stored_update import SAMPLE_STREAM, stream_seed
from .update_groups import UPDATES, now, update_groups

if TYPE_CHECKING:
    from xarray import DataTree

NOT_DETERMINED = (
    "Other densities that fit the old draws as well lead to another result: what the old rows say "
    f"around the new draws is a guess. {ADVICE}"
)
UNKNOWN_OLD = "How good the old result is, is not known: it was not assessed with a model and rows."


def update_without_rows(
    tree: "DataTree",
    model: Model,
    new_rows: Any,
    *,
    name: str = "",
    num_shards: int | None = None,
    seed: int | None = None,
    num_draws: int | None = None,
    shard_draws: int | None = None,
    sampler: AbstractSampler | None = None,
    combiner: AbstractCombiner | None = None,
    executor: Any = None,
    weights: str | None = None,
    refine: bool = False,
    locals: LocalsMode | None = None,  # noqa: A002
    progress: ProgressMode = True,
    compile_cache: bool = True,
) -> "DataTree":
    """Update a result with new rows alone; its draws stand for the old rows.

    Args:
        tree: a result of `infer`, `combine`, `refine` or an update.
        model: the model that made it. Its prior is in the old draws and is not used again.
        new_rows: rows that the old result has not seen, as `infer` takes them; for a model with
            groups, of new groups.
        name: a name for the rows; by default the number of the update.
        num_shards: number of shards of the new rows; by default chosen as `infer` does.
        seed: seed of all random numbers; by default that of the old result.
        num_draws: draws of the posterior; by default 5000.
        shard_draws: draws of every chain in every shard.
        sampler: how a shard is sampled.
        combiner: how draws of shards are combined.
        executor: where shards are sampled and evaluated.
        weights: the column of rows with their weights; by default that of the old result.
        refine: turn the draws into exact ones of the surrogate and the new rows.
        locals: for a model with groups, how local parameters of the new groups are reported.
        progress: show progress if standard error is a terminal.
        compile_cache: whether to use the user's cache of compiled programs.

    Returns:
        A tree as that of `update`, whose shards are those of the new rows. Its verdict carries the
        doubts about the old result, and its standard errors those about the surrogate.
    """
    check_result(tree)
    check_model(model)
    check_mode(locals, has_store=False)
    number = num_updates(tree)
    seed = int(tree.attrs.get("seed", 0)) if seed is None else seed
    combiner = Variational() if combiner is None else combiner
    request = Request.checked(
        seed=stream_seed(seed, number, SAMPLE_STREAM),
        num_draws=num_draws,
        shard_draws=shard_draws,
        error=None,
        thin=1,
        sampler=sampler,
        combiner=combiner,
        executor=executor,
        prior=None,
        store=None,
        weights=weights_of(tree, weights),
    )
    combiner.check(model.space)
    old_points = posterior_points(tree, model)
    old = _old_posterior(tree, model, old_points, seed)
    surrogate = old.fitted()
    with use_compile_cache(compile_cache), ProgressDisplay(progress) as display:
        updated = SurrogateModel(model, surrogate)
        partition, request = choose_shards(updated, new_rows, num_shards, request, progress)
        _check_groups(tree, partition)
        # with the surrogate, shards of few rows have proper posteriors close to normal
        request = replace(request, may_reduce_shards=False)
        result = _run(tree, updated, partition, request, old, display, refine, locals)
        entry = {"name": name or str(number), "time": now()}
        return _tree(tree, updated, result, entry)


class _Result(NamedTuple):
    """The new posterior, its assessment, and attributes of its tree."""

    posterior: Posterior
    assessment: Assessment
    settings: dict[str, Any]


def _run(
    tree: "DataTree",
    model: SurrogateModel,
    partition: AbstractPartition,
    request: Request,
    old: OldPosterior,
    display: ProgressDisplay,
    refine: bool,
    locals_mode: LocalsMode | None,
) -> _Result:
    """Run all stages on the new rows, and judge the result with the surrogate's errors."""
    clock = Clock()
    check_key, *_ = jax.random.split(jax.random.key(request.seed), 3)
    target = checked_target(model, partition, request.executor, check_key)
    prepared = prepare(target, request, display, clock)
    stages = Stages(request, None, display, clock, overlap=False)
    prepared, posterior = stages.sample_and_combine(prepared)
    if refine:
        posterior = stages.refine(prepared, posterior)
    assessment = stages.assess(prepared, posterior, is_refined=refine)
    assessment, numbers = _assess_surrogate(tree, model, old, target, posterior, assessment)
    clock.lap("surrogate")
    posterior, assessment = stages.draw_locals(prepared, posterior, assessment, locals_mode)
    settings = prepared.settings | posterior.settings | clock.seconds
    return _Result(posterior, assessment, settings | {"exact": posterior.exact} | numbers)


def _tree(tree: "DataTree", model: Model, result: _Result, entry: dict[str, Any]) -> "DataTree":
    """Return the tree of a result, with the history of the old one."""
    sizes = np.atleast_1d(result.settings["shard_sizes"])
    number = num_updates(tree)
    entry |= {
        "num_rows": int(np.sum(sizes)),
        "num_shards": len(sizes),
        "verdict": result.assessment.diagnosis.verdict,
    }
    posterior = result.posterior.groups["posterior"]
    own = update_groups(tree, posterior, model, entry, [number] * len(sizes))
    settings = result.settings | {"update": number}
    return result_tree({**result.posterior.groups, **own}, settings, result.assessment)


def num_updates(tree: "DataTree") -> int:
    """Return the number of states that a result has in its history; one without updates."""
    return int(tree[UPDATES].sizes["update"]) if UPDATES in tree.children else 1


def _old_posterior(tree: "DataTree", model: Model, points: Points, seed: int) -> OldPosterior:
    """Return the draws of a result, with what is known of their errors.

    Exact draws have those of Monte Carlo alone, which the draws themselves tell; but not if they
    are exact for an earlier surrogate, whose errors add up.
    """
    flat = points.reshape(-1, points.shape[2])
    # second moments mix more slowly than means where trajectories are long
    squares = (points - flat.mean(axis=0)) ** 2
    effective = min(float(np.nanmin(convergence.ess(part[None]))) for part in (points, squares))
    effective = min(effective, float(len(flat)), max_effective_draws(tree))
    errors = None
    is_exact = tree.attrs.get("exact") and "surrogate_maps" not in tree.attrs
    if "mean_error" in tree.children and not is_exact:
        stored = stored_diagnosis(tree).errors
        if all(name in stored for name in model.space):
            parts = zip(*(stored[name] for name in model.space), strict=True)
            errors = Errors(*(np.concatenate([np.ravel(part) for part in kind]) for kind in parts))
    values = _quantities(model, flat, with_derived=False)
    generator = np.random.default_rng((seed, 7))
    return OldPosterior.of(flat, values, errors, effective, generator)


def _quantities(
    model: Model, points: Float[np.ndarray, "draw dim"], with_derived: bool = True
) -> Float[np.ndarray, "draw quantity"]:
    derived = model.derived if with_derived else None
    params = to_params(model.space, jnp.asarray(points), derived)
    return np.concatenate([values.reshape(len(values), -1) for values in params.values()], axis=1)


class _Trial(NamedTuple):
    """What was found out about a surrogate, and the names of quantities."""

    sensitivity: Sensitivity
    weighted: WeightedDraws
    update: Update


def _assess_surrogate(
    tree: "DataTree",
    model: SurrogateModel,
    old: OldPosterior,
    target: Target,
    posterior: Posterior,
    assessment: Assessment,
) -> tuple[Assessment, dict[str, Any]]:
    """Add the surrogate's errors to the assessment; return it, and numbers for the tree."""
    points = posterior.points.reshape(-1, posterior.points.shape[2])
    shapes = {
        name: values.shape[1:]
        for name, values in to_params(model.space, jnp.asarray(points[:1]), model.derived).items()
    }
    with np.errstate(all="ignore"):  # far away, densities vanish
        trial = _try_surrogate(model, old, target, points, _names(model, shapes))
    errors = _larger_errors(assessment.diagnosis, trial, shapes, posterior)
    faults = [contradiction(trial.weighted, trial.update.names)]
    doubts = [extrapolation(trial.update), *_old_doubts(tree)]
    if not doubts[0] and not trial.sensitivity.is_determined:
        doubts[0] = NOT_DETERMINED
    remarks = [disagreement(trial.update)]
    ess = float(np.nanmin(convergence.ess(posterior.points[None])))
    faults, doubts, remarks = (list(filter(None, part)) for part in (faults, doubts, remarks))
    evidence = Evidence(ess, faults, doubts, remarks, labels=model.labels)
    diagnosis = judge_again(assessment.diagnosis, errors, evidence)
    sentence = _surrogate_sentence(model.surrogate, trial.sensitivity)
    basis = f"{diagnosis.basis} {sentence}".strip()
    # vcmc.refine with the new rows alone would be about another posterior
    diagnosis = replace(diagnosis, basis=basis, can_be_refined=False)
    numbers = {
        "surrogate_maps": model.surrogate.num_maps,
        "surrogate_error": _largest_error(trial.sensitivity),
        "surrogate_pareto_k": trial.weighted.pareto_k,
    }
    return assessment._replace(diagnosis=diagnosis), numbers


def _try_surrogate(
    model: SurrogateModel,
    old: OldPosterior,
    target: Target,
    points: Float[np.ndarray, "draw dim"],
    names: Sequence[str],
) -> _Trial:
    values, old_values = _quantities(model, points), _quantities(model, old.draws)
    surrogate = model.surrogate
    white, log_densities = surrogate.evaluate(old.draws)
    count = min(NUM_WEIGHTED, len(old.draws))
    chosen = np.arange(count) * len(old.draws) // count
    log_posterior = np.asarray(target(jnp.asarray(old.draws[chosen]))[0])
    weighted = weighted_draws(log_posterior - log_densities[chosen], old_values[chosen], values)
    new_white = surrogate.evaluate(points)[0]
    update = Update(old_values, values, white, new_white, old.num_effective, names)
    return _Trial(sensitivity(old, surrogate, points, values), weighted, update)


def _names(model: Model, shapes: dict[str, tuple[int, ...]]) -> list[str]:
    """Return the names of all quantities."""
    return [
        label
        for name, shape in shapes.items()
        for label in model.labels.elements(name, shape).values()
    ]


def _larger_errors(
    diagnosis: Diagnosis,
    trial: _Trial,
    shapes: dict[str, tuple[int, ...]],
    posterior: Posterior,
) -> dict[str, Errors]:
    """Return the errors of a diagnosis with those of the surrogate in the standard errors.

    Exact draws whose errors were not estimated have those of Monte Carlo; others have none.
    """
    if not diagnosis.errors and not posterior.exact:
        return {}
    ess = float(np.nanmin(convergence.ess(posterior.points[None])))
    larger, first = {}, 0
    for name, shape in shapes.items():
        last = first + int(np.prod(shape))
        variances = trial.sensitivity.variances[:, first:last].reshape(4, *shape)
        own = diagnosis.errors.get(name)
        parts: list[np.ndarray] = []
        for variance, statistic in zip(variances, STATISTICS, strict=True):
            error = np.zeros(shape) if own is None else getattr(own, statistic)
            chance = STANDARD_ERRORS[statistic] / np.sqrt(ess)
            known = chance if own is None else getattr(own, f"{statistic}_se")
            parts += [error, np.sqrt(known**2 + variance)]
        larger[name] = Errors(*parts)
        first = last
    return larger


def _largest_error(found: Sensitivity) -> float:
    """Return the largest standard error of a mean that the surrogate causes."""
    return float(np.sqrt(np.nanmax(found.variances[0])))


def _surrogate_sentence(surrogate: Surrogate, found: Sensitivity) -> str:
    shape = "a Gaussian" if not surrogate.num_maps else "a skewed or heavy-tailed density"
    return (
        f"The old rows are represented by {shape} that was fitted to the old draws, which adds up "
        f"to {_largest_error(found):.2f} sd to the standard errors of means."
    )


def _old_doubts(tree: "DataTree") -> list[str]:
    """Return a sentence on the verdict of the old result, unless it was good."""
    verdict = tree.attrs.get("verdict", "unknown")
    if verdict == "good":
        return []
    if verdict == "unknown":
        return [UNKNOWN_OLD]
    reasons = stored_diagnosis(tree).reasons
    old = [reason for reason in reasons if reason.startswith(OLD_RESULT)]
    return old or [f"{OLD_RESULT} {verdict}: {' '.join(reasons)}".strip()]


OLD_RESULT = "The old result was"


def _check_groups(tree: "DataTree", partition: AbstractPartition) -> None:
    """Refuse new rows of groups that the old result has: their old rows are needed."""
    if not isinstance(partition, GroupedPartition) or SIZES_GROUP not in tree.children:
        return
    known = set()
    for labels in tree[SIZES_GROUP].to_dataset().coords.values():
        known |= set(np.asarray(labels).tolist())
    if repeated := [label for label in np.asarray(partition.labels).tolist() if label in known]:
        shown = ", ".join(map(str, repeated[:3]))
        raise ModelError(
            f"{len(repeated)} groups of the new rows ({shown}) are in the old result. Without "
            "their old rows nothing tells how these and the new ones go together: give the old "
            "rows with rows=, or update with rows of new groups alone."
        )
