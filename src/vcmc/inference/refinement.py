"""The verb `refine`: from combined draws to draws of the posterior itself.

Importance sampling is tried first; where its weights are too uneven, many short chains run on the
full-data target. The better of the draws before and after is returned: refined draws have a Monte
Carlo error of their own, and chains that have not converged may have gone astray.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..combiners.shapes import BENT_SETTINGS
from ..data.params import to_params
from ..diagnostics.importance import smoothed_weights
from ..diagnostics.mode_regions import ModeDraws, ModeRegions
from ..diagnostics.mode_search import find_modes
from ..diagnostics.selfcheck import corrected, largest_error
from ..errors import warn_doubtful
from ..linalg.operators import AbstractMatrix
from ..linalg.whitening import Whitening
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..results.mode_groups import MODE_ATTRIBUTES, MODE_GROUPS, mode_groups, stored_modes
from ..results.store import LOCAL_DRAWS
from ..results.tree import add_groups, text_list
from ..samplers.proposals import Proposal, systematic_resample
from ..target import Target
from .arguments import check_integer
from .assessment import (
    ERROR_GROUPS,
    weights_attribute,
    weights_of,
)
from .clock import Clock
from .combination import as_chains
from .ensemble import MAX_ITERATIONS, MAX_RHAT, MIN_ESS, NUM_CHAINS, Goal, Run, run_chains
from .local_stage import LocalsRequest, stored_mode, with_locals
from .mode_refinement import jumping_chains, visited_modes, visits
from .posterior import Posterior, assess_posterior
from .preparation import result_target
from .result_points import posterior_points

if TYPE_CHECKING:
    from xarray import DataTree

NUM_PILOT_PROPOSALS = 500  # evaluated to decide whether importance sampling suffices
MAX_PROPOSALS = 5000  # if more are needed, chains run instead
NUM_RESAMPLED = 1000  # draws, unless the goal is higher
MAX_PARETO_K = 0.5  # below it, the variance of the importance ratios is finite
MIN_DRAWS_PER_COORDINATE = 5  # for a proposal as wide as the posterior
MIN_NOTABLE_ERROR = 0.05  # sds: refined draws with smaller errors are not compared with others
MAX_TRUSTED_RHAT = 1.05  # of chains that are better than combined draws, converged or not
PROPOSAL_MARGIN = 1.2  # factor on the number of proposals that the pilot's effective share implies

DEFAULT_GOAL = Goal()


class RefinedDraws(NamedTuple):
    """Refined draws.

    Attributes:
        points: the draws.
        settings: what the tree records about the refinement.
        notes: warnings.
        exact: how the draws were made, if they are exact up to Monte Carlo error.
        modes: the modes that the draws are from, if there are several.
    """

    points: Float[np.ndarray, "chain draw dim"]
    settings: dict[str, Any]
    notes: list[str]
    exact: str = ""
    modes: ModeDraws | None = None

    def posterior(
        self,
        groups: dict[str, dict[str, np.ndarray]],
        model: Model,
        notes: list[str],
        remarks: tuple[str, ...],
    ) -> Posterior:
        """Return them as a posterior, with other groups of its tree, notes and remarks."""
        params = to_params(model.space, jnp.asarray(self.points), model.derived)
        groups = {name: group for name, group in groups.items() if name not in MODE_GROUPS}
        groups["posterior"] = params
        settings = self.settings
        if self.modes is not None:
            labels = self.modes.labels.reshape(self.points.shape[:2])
            groups |= mode_groups(self.modes, labels, model.space)
            settings = settings | {"mode_exact": list(self.modes.exact)}
        return Posterior(
            self.points, groups, notes, settings, self.exact, remarks, modes=self.modes
        )


def refine(
    tree: "DataTree",
    model: Model,
    rows: Any,
    *,
    weights: str | None = None,
    min_ess: float = MIN_ESS,
    num_chains: int = NUM_CHAINS,
    max_iterations: int | None = None,
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
) -> "DataTree":
    """Turn combined draws into draws of the posterior itself, by evaluating the full-data target.

    Draws that are far off are shifted and scaled first. Then a Student t proposal with the draws'
    mean and covariance is tried: if the Pareto k of its importance ratios is below 0.5 and few
    enough proposals are needed, the result is resampled proposals. Otherwise many short chains
    run on the full target from the combined draws, in whitened coordinates, all in one batch. If
    the posterior has several modes, they start in every mode and jump between them; the attribute
    `refined_modes` says which they have visited.

    Args:
        tree: a result of `infer` or `combine`.
        model: the model.
        rows: all rows, as `infer` takes them.
        weights: the column of rows with their weights; by default that of the result, if any.
        min_ess: effective draws to reach in every coordinate.
        num_chains: chains that run as one batch.
        max_iterations: largest number of iterations of every chain; by default 500, and 2000 if
            R-hat is below 1.1 by then.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of all random numbers.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.

    Returns:
        The tree with new draws in `posterior`: of many chains, or resampled proposals. The
        attribute `refined_by` says which, or that the draws before were better ("shift and
        scale", "nothing") and were kept.
    """
    if not min_ess > 0:
        raise ValueError(f"min_ess must be above 0; got {min_ess!r}.")
    check_integer("num_chains", num_chains, 2)
    if max_iterations is not None:
        check_integer("max_iterations", max_iterations, 20)
    clock = Clock()
    with ProgressDisplay(progress) as display:
        stage = display.stage("refine", None)
        num_shards = int(tree.attrs.get("num_shards", 1))
        column = weights_of(tree, weights)
        target = result_target(model, rows, num_shards, executor, seed, column)
        model = target.model
        points = posterior_points(tree, model)
        goal = Goal(float(min_ess), num_chains, max_iterations)
        modes = stored_modes(tree)
        regions = modes.regions if modes else None
        refined = refine_draws(points, target, goal, seed, stage.advance, regions)
        stage.finish()
    clock.lap("refine")
    # notes about the shards do not matter to exact draws
    notes = refined.notes + ([] if refined.exact else text_list(tree, "shard_warnings"))
    remarks = () if refined.exact else tuple(text_list(tree, "shard_remarks"))
    posterior = refined.posterior({}, model, notes, remarks)
    assessment = assess_posterior(posterior, target, seed, is_refined=True)
    clock.lap("diagnose")
    groups = {**assessment.groups, **posterior.groups}
    if model.local is not None:
        request = LocalsRequest(stored_mode(tree, model.local), seed)
        groups, _, assessment = with_locals(target, refined.points, request, groups, assessment)
        clock.lap("locals")
    warn_doubtful(assessment.warnings)
    return add_groups(
        tree,
        groups,
        {
            **posterior.settings,
            **clock.seconds,
            **assessment.attributes,
            "exact": refined.exact,
            **weights_attribute(column),
        },
        drop=(
            "weights",
            "optimization",
            "paired",
            "uses_target",
            *BENT_SETTINGS,
            LOCAL_DRAWS,
            "refined_modes",
            *ERROR_GROUPS.values(),
            *MODE_GROUPS,
            *MODE_ATTRIBUTES,
        ),
    )


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # points far from all mass
def refine_draws(
    points: Float[np.ndarray, "chain draw dim"],
    target: Target,
    goal: Goal = DEFAULT_GOAL,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
    regions: ModeRegions | None = None,
) -> RefinedDraws:
    """Refine draws that are given as points; `regions` are those of the modes, if known."""
    original = points.reshape(-1, points.shape[2])
    draws = original if regions else corrected(original, target, seed)
    if regions is None and not target.model.space.labelled():
        search = find_modes(target, Whitening.from_draws(draws), draws, seed)
        regions = ModeRegions.of(search.modes) if search.is_several else None
    if regions is not None:
        return _by_jumps(regions, target, goal, seed, advance)
    refined = num_rejected = _by_importance(draws, target, goal, seed, advance)
    if not isinstance(refined, RefinedDraws):
        refined = _by_chains(draws, target, goal, seed, advance)
        refined.settings["refined_evaluations"] += num_rejected
    return _better(points, draws.reshape(points.shape), refined, target, seed)


def _by_jumps(
    regions: ModeRegions, target: Target, goal: Goal, seed: int, advance: Callable[[], None]
) -> RefinedDraws:
    """Run chains from every mode, which jump between the modes."""
    run = jumping_chains(regions, target, goal, seed, advance)
    refined = _of_run(run, goal)
    modes = visited_modes(run.draws, regions, seed)
    sentence = visits(run.draws, modes)
    return refined._replace(
        modes=modes,
        settings=refined.settings | {"refined_modes": sentence},
        exact=f"{refined.exact} {sentence}" if refined.exact else "",
    )


def _by_chains(
    draws: Float[np.ndarray, "draw dim"],
    target: Target,
    goal: Goal,
    seed: int,
    advance: Callable[[], None],
) -> RefinedDraws:
    """Run chains from the draws."""
    return _of_run(run_chains(target, draws, goal, seed, advance), goal)


def _of_run(run: Run, goal: Goal) -> RefinedDraws:
    """Return the draws of chains, exact if these have converged."""
    settings = {
        "refined_by": "chains",
        "refined_rhat": run.rhat,
        "refined_ess": run.ess,
        "refined_acceptance": run.acceptance,
        "refined_evaluations": run.num_evaluations,
    }
    numbers = f"R-hat {run.rhat:.3f}, {run.ess:.0f} effective draws"
    if run.has_converged:
        exact = f"The draws are those of {goal.num_chains} chains on all rows ({numbers})."
        is_slow = goal.max_iterations is None and run.num_iterations > MAX_ITERATIONS
        slow = (
            f"the chains took {run.num_iterations} iterations to converge: where they mix so "
            "slowly, they may miss a small part of the posterior."
        )
        return RefinedDraws(run.draws, settings, [slow] if is_slow else [], exact)
    note = (
        f"refinement did not converge: R-hat is {run.rhat:.3f} (goal: below {MAX_RHAT}) with "
        f"{run.ess:.0f} effective draws (goal: {goal.min_ess:.0f}) after {run.num_iterations} "
        f"iterations of {goal.num_chains} chains. Raise max_iterations, or use fewer shards."
    )
    return RefinedDraws(run.draws, settings, [note])


def _better(
    points: Float[np.ndarray, "chain draw dim"],
    shifted: Float[np.ndarray, "chain draw dim"],
    refined: RefinedDraws,
    target: Target,
    seed: int,
) -> RefinedDraws:
    """Return refined draws, or the draws before, shifted and scaled or not, if they are better.

    Estimated errors are compared where the posterior is close to Gaussian. Elsewhere chains that
    have come close to each other are better; of others, draws with the larger objective, which is
    mean log density plus entropy.
    """
    after = _flat(refined.points)
    evaluations = {"refined_evaluations": refined.settings["refined_evaluations"]}
    if refined.settings.get("refined_rhat", 1.0) > MAX_TRUSTED_RHAT:
        objective, objective_before = (
            _objective(draws, target, seed) for draws in (after, _flat(points))
        )
        if not objective_before > objective:
            return refined
        note = "the draws before refinement were kept, as their objective is larger."
        return RefinedDraws(points, evaluations | {"refined_by": "nothing"}, [*refined.notes, note])
    error = largest_error(after, target, seed)
    if not error > MIN_NOTABLE_ERROR:
        return refined
    error_before = largest_error(_flat(shifted), target, seed)
    if not 2 * error_before < error:
        return refined
    settings = {
        "refined_by": "shift and scale",
        "refinement": (
            "The draws before refinement were kept: their estimated errors (at most "
            f"{error_before:.2g} sd) are below the Monte Carlo error of refined draws "
            f"({error:.2g} sd). Raise min_ess for better ones."
        ),
    }
    return RefinedDraws(shifted, evaluations | settings, [])


def _flat(points: Float[np.ndarray, "chain draw dim"]) -> Float[np.ndarray, "draw dim"]:
    return points.reshape(-1, points.shape[2])


def _objective(draws: Float[np.ndarray, "draw dim"], target: Target, seed: int) -> float:
    """Return the mean log density of some draws, plus the entropy of a Gaussian like them."""
    chosen = np.random.default_rng(seed).permutation(len(draws))[:NUM_PILOT_PROPOSALS]
    values = np.asarray(target(jnp.asarray(draws[chosen]))[0])
    if not np.isfinite(values).all():
        return -np.inf
    root = Whitening.from_draws(draws).root
    return float(values.mean() + cast(AbstractMatrix, root).log_det())


def _by_importance(
    draws: Float[np.ndarray, "draw dim"],
    target: Target,
    goal: Goal,
    seed: int,
    advance: Callable[[], None],
) -> RefinedDraws | int:
    """Return resampled proposals, or, if their weights are too uneven, how many were evaluated."""
    num_draws, dim = draws.shape
    if num_draws < MIN_DRAWS_PER_COORDINATE * dim:
        return 0
    generator = np.random.default_rng((seed, 1))
    proposal = Proposal.of(draws)
    count = max(min(num_draws, NUM_RESAMPLED), int(np.ceil(goal.min_ess)))
    points, log_ratios = proposal.propose(NUM_PILOT_PROPOSALS, target, generator, advance)
    if not np.isfinite(log_ratios).any():
        return NUM_PILOT_PROPOSALS
    weights, shape = smoothed_weights(log_ratios - np.max(log_ratios))
    effective_share = 1 / np.sum(weights**2) / NUM_PILOT_PROPOSALS
    num_needed = int(np.ceil(PROPOSAL_MARGIN * count / effective_share))
    if not (shape < MAX_PARETO_K and num_needed <= MAX_PROPOSALS):
        return NUM_PILOT_PROPOSALS
    if num_needed > NUM_PILOT_PROPOSALS:
        more = proposal.propose(num_needed - NUM_PILOT_PROPOSALS, target, generator, advance)
        points = np.concatenate([points, more.points])
        log_ratios = np.concatenate([log_ratios, more.log_ratios])
    weights, shape = smoothed_weights(log_ratios - np.max(log_ratios))
    ess = float(1 / np.sum(weights**2))
    if not (shape < MAX_PARETO_K and ess >= goal.min_ess):
        return len(points)
    settings = {
        "refined_by": "importance sampling",
        "refined_pareto_k": shape,
        "refined_ess": ess,
        "refined_evaluations": len(points),
    }
    exact = (
        f"The draws are resampled from {len(points)} proposals (Pareto k {shape:.2f}, {ess:.0f} "
        "effective draws)."
    )
    resampled = points[systematic_resample(weights, count, generator)]
    return RefinedDraws(as_chains(resampled, 1), settings, [], exact)
