"""The stages of a run after its preparation: sample, combine, refine, assess, and improve.

An error of a stage says which stage it was, and carries the draws that were made before it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..combiners import AbstractCombiner, Modes, Variational
from ..combiners.base import Subposteriors
from ..diagnostics.modes import ModeSearch
from ..errors import AssessmentError, CombineError, ShardError
from ..progress import ProgressDisplay
from ..results.tree import make_tree
from .assessment import ONE_SHARD, Assessment
from .clock import Clock
from .combination import combine_shards
from .draw_counts import DRAWS_GROWTH, MAX_SHARD_DRAWS
from .ensemble import Goal
from .error_goal import SHARD_DRAWS_GROWTH, refinement_goal, shortfall
from .local_stage import LocalsRequest, with_locals
from .local_tasks import LocalsMode
from .mode_sampling import sample_near_modes, seek_modes
from .posterior import Posterior, assess_posterior
from .preparation import Prepared
from .refinement import DEFAULT_GOAL, refine_draws
from .request import Request
from .run_record import RunRecord
from .sampling import ShardDraws, sample, shard_tree
from .shard_summary import summarize_shards, summarize_uneven_shards

if TYPE_CHECKING:
    from xarray import DataTree


@dataclass(frozen=True)
class Stages:
    """The stages of a run, with what they share."""

    request: Request
    record: RunRecord | None
    display: ProgressDisplay
    clock: Clock
    overlap: bool

    def sample_and_combine(self, prepared: Prepared) -> tuple[Prepared, Posterior]:
        """Sample and combine; go on until there are enough draws, unless their number is given."""
        search = None
        while True:
            draws = sample(prepared, self.request, self.display, self.overlap)
            self.clock.lap("sample")
            search = search or seek_modes(prepared, self.request, draws)
            if search is not None and search.is_several:
                draws = sample_near_modes(prepared, self.request, draws, search, self.display)
            self.clock.lap("modes")
            posterior = combine_draws(
                prepared, self.request, draws, self.display, self.clock, search
            )
            more = DRAWS_GROWTH * prepared.plan.num_draws
            is_fixed = self.request.shard_draws is not None or more > MAX_SHARD_DRAWS
            is_fixed |= prepared.target.num_shards == 1
            if is_fixed or not posterior.needs_more_draws:
                return prepared, posterior
            prepared = self.extend(prepared, more)

    def extend(self, prepared: Prepared, shard_draws: int) -> Prepared:
        """Ask for more draws of every shard."""
        if self.record:
            self.record.extend(prepared.plan, shard_draws)
        return prepared.with_shard_draws(shard_draws)

    def refine(
        self, prepared: Prepared, posterior: Posterior, goal: Goal = DEFAULT_GOAL
    ) -> Posterior:
        """Refine the combined draws."""
        refined = _refine(prepared, posterior, goal, self.request.seed, self.display)
        self.clock.lap("refine")
        return refined

    def assess(self, prepared: Prepared, posterior: Posterior, is_refined: bool) -> Assessment:
        """Estimate the errors of the posterior draws."""
        assessment = _assess(prepared, posterior, self.request.seed, self.display, is_refined)
        self.clock.lap("diagnose")
        return assessment

    def draw_locals(
        self,
        prepared: Prepared,
        posterior: Posterior,
        assessment: Assessment,
        mode: LocalsMode | None,
    ) -> tuple[Posterior, Assessment]:
        """Draw the local parameters of groups, if the model has any."""
        if prepared.target.model.local is None:
            return posterior, assessment
        with _keep_posterior("drawing the local parameters for", prepared, posterior):
            store = self.request.store
            request = LocalsRequest(
                mode, self.request.seed, store.locals if store else None, self.display
            )
            groups, settings, assessment = with_locals(
                prepared.target, posterior.points, request, posterior.groups, assessment
            )
        self.clock.lap("locals")
        settings = posterior.settings | settings
        return posterior._replace(groups=groups, settings=settings), assessment

    def improve(
        self, prepared: Prepared, posterior: Posterior, assessment: Assessment, is_refined: bool
    ) -> tuple[Prepared, Posterior, Assessment]:
        """Take more draws, then refine, until the error is as asked for, or say why it is not."""
        error = cast(float, self.request.error)
        diagnosis = assessment.diagnosis
        is_extensible = self.request.shard_draws is None and prepared.target.num_shards > 1
        if shortfall(diagnosis, error) and diagnosis.errors and is_extensible and not is_refined:
            more = SHARD_DRAWS_GROWTH * prepared.plan.num_draws
            prepared, posterior = self.sample_and_combine(self.extend(prepared, more))
            assessment = self.assess(prepared, posterior, is_refined=False)
        if shortfall(assessment.diagnosis, error) and not is_refined:
            posterior = self.refine(prepared, posterior, refinement_goal(error))
            assessment = self.assess(prepared, posterior, is_refined=True)
        reason = shortfall(assessment.diagnosis, error)
        settings = {"error_goal": error, "error_goal_reached": int(not reason)}
        posterior = posterior._replace(settings=posterior.settings | settings)
        return prepared, posterior, assessment.with_doubt(reason) if reason else assessment


def combine_draws(
    prepared: Prepared,
    request: Request,
    draws: ShardDraws,
    display: ProgressDisplay,
    clock: Clock,
    search: ModeSearch | None = None,
) -> Posterior:
    """Combine the draws of all shards of a target, mode by mode if several were found."""
    target = prepared.target
    combiner: AbstractCombiner = request.combiner
    if search is not None:
        combiner = Modes() if search.is_several else Variational()
        combiner = request.combiner if isinstance(request.combiner, type(combiner)) else combiner
    model, space = target.model, target.model.space
    failure = (
        "the shards were sampled, but combining them failed ({error}). Their draws are in this "
        "error's `tree`: vcmc.combine(error.tree, model=model, rows=rows, combiner=...)."
    )
    with _keep_draws(CombineError, failure, lambda: shard_tree(model, draws, prepared.settings)):
        stage = display.stage("combine", None)
        if draws.counts is None:
            summary = summarize_shards(space, draws.points)
        else:
            summary = summarize_uneven_shards(space, draws.points[:, 0], draws.counts)
        summary = summary._replace(batches=draws.batches)
        clock.lap("check")
        shards = Subposteriors(
            summary.points,
            space,
            target,
            request.seed,
            stage.advance,
            draws.learned,
            request.num_draws,
            search,
        )
        posterior = combine_shards(
            combiner,
            shards,
            summary,
            prior=request.prior,
            stats=draws.stats,
            derived=model.derived,
        )
        stage.finish()
        clock.lap("combine")
    # draws that are exact near the mode they are from know nothing of others
    of_search = posterior.search.notes_of_one if posterior.search else []
    seconds = {"sample_seconds": draws.seconds} if draws.seconds else {}
    return posterior._replace(
        groups=posterior.groups | seconds | model.labels.groups,
        notes=of_search + ([] if posterior.exact else prepared.warnings.notes + posterior.notes),
        remarks=() if posterior.exact else (*prepared.warnings.remarks, *posterior.remarks),
        exact=ONE_SHARD if target.num_shards == 1 and not posterior.modes else posterior.exact,
    )


def _refine(
    prepared: Prepared, posterior: Posterior, goal: Goal, seed: int, display: ProgressDisplay
) -> Posterior:
    target = prepared.target
    with _keep_posterior("refining", prepared, posterior):
        stage = display.stage("refine", None)
        regions = posterior.modes.regions if posterior.modes else None
        refined = refine_draws(posterior.points, target, goal, seed, stage.advance, regions)
        stage.finish()
    notes = refined.notes if refined.exact else refined.notes + posterior.notes
    remarks = () if refined.exact else posterior.remarks
    return refined.posterior(posterior.groups, target.model, notes, remarks)


def _assess(
    prepared: Prepared,
    posterior: Posterior,
    seed: int,
    display: ProgressDisplay,
    is_refined: bool,
) -> Assessment:
    with _keep_posterior("diagnosing", prepared, posterior):
        stage = display.stage("diagnose", None)
        assessment = assess_posterior(posterior, prepared.target, seed, is_refined=is_refined)
        stage.finish()
    return assessment


def _keep_posterior(
    activity: str, prepared: Prepared, posterior: Posterior
) -> AbstractContextManager[None]:
    failure = (
        f"the draws were combined, but {activity} them failed ({{error}}). Combined draws and "
        "shard draws are in this error's `tree`; how good they are is not known."
    )
    settings = prepared.settings | posterior.settings
    return _keep_draws(AssessmentError, failure, lambda: make_tree(posterior.groups, settings))


@contextmanager
def _keep_draws(
    kind: type[ShardError], failure: str, tree: Callable[[], "DataTree"]
) -> Iterator[None]:
    """Turn an error of a stage into one that says which stage it was and carries the draws."""
    try:
        yield
    except Exception as error:
        message = failure.format(error=f"{type(error).__name__}: {error}")
        raise kind(message, tree()) from error
