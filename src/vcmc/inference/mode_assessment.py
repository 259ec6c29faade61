"""Assess draws of several modes: those of each as if its region were the posterior, and weights."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from ..data.params import to_params
from ..diagnostics.mode_regions import ModeDraws, RegionTarget
from ..diagnostics.mode_verdict import AssessedMode, judge_modes
from ..diagnostics.modes import ModeSearch, remote_notes
from ..diagnostics.reweighting import MAX_PARETO_K
from ..diagnostics.verdict import Diagnosis
from ..linalg.shrinkage import TINY
from ..target import Target
from .assessment import Assessment, diagnose_draws, sentences

MIN_DRAWS = 10  # of a mode that is assessed: the draws of one with less mass are too few


def assess_modes(
    points: Float[np.ndarray, "chain draw dim"],
    modes: ModeDraws,
    target: Target,
    notes: list[str],
    seed: int,
    *,
    remarks: Sequence[str] = (),
    exact: str = "",
    is_refined: bool = False,
) -> Assessment:
    """Estimate the errors of draws from several modes.

    Args:
        points: the draws.
        modes: the modes, and which draws are from which.
        target: the full-data target.
        notes: warnings of earlier stages.
        seed: seed of the choice of draws at which the target is evaluated.
        remarks: warnings about few shards.
        exact: how all draws were made, if they are exact up to Monte Carlo error.
        is_refined: whether the draws are refined already.
    """
    model = target.model
    flat = points.reshape(-1, points.shape[2])
    notes, remarks = sentences(notes), sentences(remarks)
    notes = notes + remote_notes(_sd_ratio(flat, modes))
    assessed = []
    for mode, weight in enumerate(modes.weights):
        draws = flat[modes.labels == mode]
        region = RegionTarget(target, modes.regions, mode)
        made = modes.exact[mode] or exact
        pareto_k = float(modes.pareto_k[mode])
        diagnosis = Diagnosis("doubtful", ["It has too few draws to be assessed."])
        if len(draws) >= MIN_DRAWS:
            diagnosis = diagnose_draws(
                draws[None],
                region,
                [],
                seed,
                remarks=remarks,
                exact=made,
                source=modes.sources[mode],
                search=ModeSearch(),
                reweighs=bool(made) or pareto_k < MAX_PARETO_K,
            )
        error = float(modes.standard_errors[mode])
        values = to_params(model.space, draws, model.derived) if len(draws) else {}
        assessed.append(AssessedMode(float(weight), error, pareto_k, diagnosis, values))
    diagnosis = judge_modes(assessed, notes, float(len(flat)), model.labels, exact)
    if is_refined:
        diagnosis = diagnosis.unrefinable
    return Assessment(diagnosis, notes, remarks, tuple(mode.verdict for mode in assessed))


def _sd_ratio(draws: Float[np.ndarray, "draw dim"], modes: ModeDraws) -> float:
    """Return the largest ratio of an sd to that of the draws, which are of modes in whole numbers.

    A mode with the share 10⁻⁴ of the mass has no draw among some thousand. Where weights are shares
    of visits of chains, that of a mode without a visit is the one by its Gaussian.
    """
    shares = np.bincount(modes.labels, minlength=len(modes.weights)) / len(modes.labels)
    by_gaussians = softmax(modes.regions.log_masses)
    weights = np.where(modes.weights > 0, modes.weights, by_gaussians)
    steps = (modes.regions.centres - draws.mean(axis=0)) / np.maximum(draws.std(axis=0), TINY)
    squares = 1 + (weights - shares) @ steps**2
    return float(np.sqrt(squares.max()))
