"""The verb `refine`: from combined draws to draws of the posterior itself.

Importance sampling is tried first; where its weights are too uneven, many short chains run on the
full-data target.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.params import to_params
from ..diagnostics.importance import smoothed_weights
from ..diagnostics.selfcheck import corrected
from ..errors import warn_doubtful
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..results.tree import add_groups
from ..samplers.proposals import Proposal, systematic_resample
from ..target import Target
from .arguments import check_integer
from .assessment import ERROR_GROUPS, assess, posterior_points
from .clock import Clock
from .ensemble import MAX_ITERATIONS, MAX_RHAT, MIN_ESS, NUM_CHAINS, Goal, run_chains
from .preparation import result_target

if TYPE_CHECKING:
    from xarray import DataTree

NUM_PILOT_PROPOSALS = 500  # evaluated to decide whether importance sampling suffices
MAX_PROPOSALS = 5000  # if more are needed, chains run instead
MAX_PARETO_K = 0.5  # below it, the variance of the importance ratios is finite
MIN_DRAWS_PER_COORDINATE = 5  # for a proposal as wide as the posterior
PROPOSAL_MARGIN = 1.2  # factor on the number of proposals that the pilot's effective share implies

DEFAULT_GOAL = Goal()


class RefinedDraws(NamedTuple):
    """Draws that are exact up to Monte Carlo error, their settings, and warnings."""

    points: Float[np.ndarray, "chain draw dim"]
    settings: dict[str, Any]
    notes: list[str]


def refine(
    tree: "DataTree",
    model: Model,
    rows: Any,
    *,
    min_ess: float = MIN_ESS,
    num_chains: int = NUM_CHAINS,
    max_iterations: int = MAX_ITERATIONS,
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
) -> "DataTree":
    """Turn combined draws into draws of the posterior itself, by evaluating the full-data target.

    Draws that are far off are shifted and scaled first. Then a Student t proposal with the draws'
    mean and covariance is tried: if the Pareto k of its importance ratios is below 0.5 and few
    enough proposals are needed, the result is resampled proposals. Otherwise many short chains
    run on the full target from the combined draws, in whitened coordinates, all in one batch.

    Args:
        tree: a result of `infer` or `combine`.
        model: the model.
        rows: all rows, as `infer` takes them.
        min_ess: effective draws to reach in every coordinate.
        num_chains: chains that run as one batch.
        max_iterations: largest number of iterations of every chain.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of all random numbers.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.

    Returns:
        The tree with new draws in `posterior`: of many chains, for which R-hat is meaningful, or
        of one chain of resampled proposals. The attribute `refined_by` says which.
    """
    if not min_ess > 0:
        raise ValueError(f"min_ess must be above 0; got {min_ess!r}.")
    check_integer("num_chains", num_chains, 2)
    check_integer("max_iterations", max_iterations, 20)
    clock = Clock()
    with ProgressDisplay(progress) as display:
        stage = display.stage("refine", None)
        target = result_target(model, rows, int(tree.attrs.get("num_shards", 1)), executor, seed)
        model = target.model
        points = posterior_points(tree, model)
        goal = Goal(float(min_ess), num_chains, max_iterations)
        refined = refine_draws(points, target, goal, seed, stage.advance)
        stage.finish()
    clock.lap("refine")
    # notes about the shards do not matter to refined draws
    assessment = assess(refined.points, target, refined.notes, seed, is_refined=True)
    clock.lap("diagnose")
    warn_doubtful(assessment.warnings)
    params = to_params(model.space, jnp.asarray(refined.points), model.derived)
    return add_groups(
        tree,
        {**assessment.groups, "posterior": params},
        {**refined.settings, **clock.seconds, **assessment.attributes},
        drop=("weights", "optimization", *ERROR_GROUPS.values()),
    )


def refine_draws(
    points: Float[np.ndarray, "chain draw dim"],
    target: Target,
    goal: Goal = DEFAULT_GOAL,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> RefinedDraws:
    """Refine draws that are given as points."""
    draws = corrected(points.reshape(-1, points.shape[2]), target, seed)
    refined = _by_importance(draws, target, goal.min_ess, seed, advance)
    if isinstance(refined, RefinedDraws):
        return refined
    num_rejected = refined
    run = run_chains(target, draws, goal, seed, advance)
    settings = {
        "refined_by": "chains",
        "refined_rhat": run.rhat,
        "refined_ess": run.ess,
        "refined_acceptance": run.acceptance,
        "refined_evaluations": run.num_evaluations + num_rejected,
    }
    if run.has_converged:
        return RefinedDraws(run.draws, settings, [])
    note = (
        f"refinement did not converge: R-hat is {run.rhat:.3f} (goal: below {MAX_RHAT}) with "
        f"{run.ess:.0f} effective draws (goal: {goal.min_ess:.0f}) after {goal.max_iterations} "
        f"iterations of {goal.num_chains} chains. Raise max_iterations, or use fewer shards."
    )
    return RefinedDraws(run.draws, settings, [note])


def _by_importance(
    draws: Float[np.ndarray, "draw dim"],
    target: Target,
    min_ess: float,
    seed: int,
    advance: Callable[[], None],
) -> RefinedDraws | int:
    """Return resampled proposals, or, if their weights are too uneven, how many were evaluated."""
    num_draws, dim = draws.shape
    if num_draws < MIN_DRAWS_PER_COORDINATE * dim:
        return 0
    generator = np.random.default_rng((seed, 1))
    proposal = Proposal.of(draws)
    count = max(num_draws, int(np.ceil(min_ess)))
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
    if not (shape < MAX_PARETO_K and ess >= min_ess):
        return len(points)
    settings = {
        "refined_by": "importance sampling",
        "refined_pareto_k": shape,
        "refined_ess": ess,
        "refined_evaluations": len(points),
    }
    return RefinedDraws(points[systematic_resample(weights, count, generator)][None], settings, [])
