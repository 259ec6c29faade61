"""From combined draws to exact ones: importance sampling where it will do, else many short chains on the full target."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.params import to_params
from ..diagnostics.importance import smoothed_weights
from ..diagnostics.selfcheck import corrected
from ..diagnostics.verdict import Diagnosis
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..results.tree import add_groups
from ..samplers.proposals import Proposal, resampled
from ..target import Target
from .assembly import Clock
from .diagnosis import GROUPS, diagnose_draws, posterior_points, stored, target_of
from .ensemble import GOOD_RHAT, MAX_ITERATIONS, MIN_ESS, NUM_CHAINS, Goal, run_chains

if TYPE_CHECKING:
    from xarray import DataTree

NUM_PILOTS = 500  # proposals by which it is decided whether importance sampling will do
MAX_PROPOSALS = 5000
GOOD_K = 0.5  # shape of the ratios' tail: below, their variance is finite
ENOUGH = 5  # draws per coordinate, for a proposal that is as wide as the posterior


GOAL = Goal()


class Refined(NamedTuple):
    """Draws that are exact up to Monte Carlo error, how they were made, and what is doubtful about them."""

    draws: Float[np.ndarray, "chain draw dim"]
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

    Draws that are far off are shifted and scaled. Then a Gaussian-like proposal with the draws' mean and covariance is tried:
    if the Pareto k of its importance ratios is below 0.5 and few enough proposals are needed, the draws are resampled
    proposals. Otherwise many short chains run on the full target
    from the combined draws, in coordinates that the draws whiten, all in one batch.

    Args:
        tree: what `infer` or `combine` returned.
        model: the model.
        rows: all rows, as `infer` takes them.
        min_ess: effective draws of every coordinate to reach.
        num_chains: chains that run as one batch.
        max_iterations: iterations of every chain at most.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of everything random.
        progress: show progress if standard error is a terminal; "lines" writes plain lines elsewhere.

    Returns:
        The tree with other draws in `posterior`: of many chains, whose R-hat means what it says, or of one. Its attributes
        say in `refined_by` how they were made.
    """
    _check(min_ess, num_chains, max_iterations)
    clock = Clock()
    with ProgressDisplay(progress) as bars:
        stage = bars.stage("refine", None)
        target = target_of(tree, model, rows, executor, seed)
        model = target.model
        draws = posterior_points(tree, model)
        goal = Goal(float(min_ess), num_chains, max_iterations)
        refined = refine_draws(draws, target, goal, seed, stage.advance)
        stage.finish()
    clock.lap("refine")
    diagnosis = diagnose_refined(refined, target, seed)
    clock.lap("diagnose")
    groups, verdict = stored(
        diagnosis, refined.notes
    )  # those of the shards do not matter to these draws
    groups["posterior"] = to_params(model.space, jnp.asarray(refined.draws), model.derived)
    settings = {**refined.settings, **clock.seconds, **verdict}
    return add_groups(tree, groups, settings, drop=("weights", "optimization", *GROUPS.values()))


def refine_draws(
    draws: Float[np.ndarray, "chain draw dim"],
    target: Target,
    goal: Goal = GOAL,
    seed: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> Refined:
    """Refine draws that are given as points."""
    flat = corrected(draws.reshape(-1, draws.shape[2]), target, seed)
    found = _by_importance(flat, target, goal.min_ess, seed, advance)
    if isinstance(found, Refined):
        return found
    run = run_chains(target, flat, goal, seed, advance)
    settings = {
        "refined_by": "chains",
        "refined_rhat": run.rhat,
        "refined_ess": run.ess,
        "refined_acceptance": run.acceptance,
        "refined_evaluations": run.num_evaluations + found,
    }
    if run.settled:
        return Refined(run.draws, settings, [])
    note = (
        f"refinement did not settle: R-hat {run.rhat:.3f} (asked: below {GOOD_RHAT}), {run.ess:.0f} effective draws (asked: {goal.min_ess:.0f}) "
        f"after {goal.max_iterations} iterations of {goal.num_chains} chains. Raise max_iterations, or use fewer shards."
    )
    return Refined(run.draws, settings, [note])


def _by_importance(
    draws: Float[np.ndarray, "draw dim"],
    target: Target,
    min_ess: float,
    seed: int,
    advance: Callable[[], None],
) -> Refined | int:
    """Resampled proposals, if their ratios allow it; else how many were evaluated in vain."""
    num_draws, dim = draws.shape
    if num_draws < ENOUGH * dim:
        return 0
    generator = np.random.default_rng((seed, 1))
    proposal = Proposal.of(draws)
    count = max(num_draws, int(np.ceil(min_ess)))
    points, ratios = proposal.propose(NUM_PILOTS, target, generator, advance)
    if not np.isfinite(ratios).any():
        return NUM_PILOTS
    weights, shape = smoothed_weights(ratios - np.max(ratios))
    share = 1 / np.sum(weights**2) / NUM_PILOTS
    needed = int(np.ceil(1.2 * count / share))
    if not (shape < GOOD_K and needed <= MAX_PROPOSALS):
        return NUM_PILOTS
    if needed > NUM_PILOTS:
        more = proposal.propose(needed - NUM_PILOTS, target, generator, advance)
        points = np.concatenate([points, more.points])
        ratios = np.concatenate([ratios, more.log_ratios])
    weights, shape = smoothed_weights(ratios - np.max(ratios))
    ess = float(1 / np.sum(weights**2))
    if not (shape < GOOD_K and ess >= min_ess):
        return len(points)
    settings = {
        "refined_by": "importance sampling",
        "refined_pareto_k": shape,
        "refined_ess": ess,
        "refined_evaluations": len(points),
    }
    return Refined(points[resampled(weights, count, generator)][None], settings, [])


def diagnose_refined(refined: Refined, target: Target, seed: int) -> Diagnosis:
    """The diagnosis of refined draws, for which there is nothing more to do but to draw more."""
    return replace(diagnose_draws(refined.draws, target, refined.notes, seed), can_be_refined=False)


def _check(min_ess: Any, num_chains: Any, max_iterations: Any) -> None:
    if not min_ess > 0:
        raise ValueError(f"min_ess must be above 0; got {min_ess!r}.")
    if not isinstance(num_chains, int) or num_chains < 2:
        raise ValueError(f"num_chains must be a whole number of 2 or more; got {num_chains!r}.")
    if not isinstance(max_iterations, int) or max_iterations < 20:
        raise ValueError(
            f"max_iterations must be a whole number of 20 or more; got {max_iterations!r}."
        )
