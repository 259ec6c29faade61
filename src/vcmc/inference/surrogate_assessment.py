"""Judge an update without the old rows: add the errors of what stands for them.

Where the old rows are represented by a density that was fitted to the old draws, its errors enlarge
the standard errors of the result, and the verdict says where it cannot be trusted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.params import to_params
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
from ..model import Model
from ..models.surrogate import Surrogate
from ..models.surrogate_prior import SurrogateModel
from ..results.effective_draws import max_effective_draws
from ..target import Target
from .assessment import Assessment, Points, stored_diagnosis
from .combination import Posterior

if TYPE_CHECKING:
    from xarray import DataTree

MAPS, ERROR, PARETO_K = "surrogate_maps", "surrogate_error", "surrogate_pareto_k"  # attributes
NOT_DETERMINED = (
    "Other densities that fit the old draws as well lead to another result: what the old rows say "
    f"around the new draws is a guess. {ADVICE}"
)
UNKNOWN_OLD = "How good the old result is, is not known: it was not assessed with a model and rows."
OLD_RESULT = "The old result was"


def old_posterior(tree: "DataTree", model: Model, points: Points, seed: int) -> OldPosterior:
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
    is_exact = tree.attrs.get("exact") and MAPS not in tree.attrs
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


def assess_surrogate(
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
    doubts = [extrapolation(trial.update), *old_doubts(tree)]
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
        MAPS: model.surrogate.num_maps,
        ERROR: _largest_error(trial.sensitivity),
        PARETO_K: trial.weighted.pareto_k,
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
    log_likelihoods = log_posterior - log_densities[chosen]
    weighted = weighted_draws(log_likelihoods, old_values[chosen], values, old.num_effective)
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


def old_doubts(tree: "DataTree") -> list[str]:
    """Return a sentence on the verdict of the old result, unless it was good."""
    verdict = tree.attrs.get("verdict", "unknown")
    if verdict == "good":
        return []
    if verdict == "unknown":
        return [UNKNOWN_OLD]
    reasons = stored_diagnosis(tree).reasons
    old = [reason for reason in reasons if reason.startswith(OLD_RESULT)]
    return old or [f"{OLD_RESULT} {verdict}: {' '.join(reasons)}".strip()]
