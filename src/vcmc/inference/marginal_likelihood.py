r"""The verb `evidence`: the log marginal likelihood of a model, with its standard error.

$$\log p(X) = \log \int p(X \mid \theta) \, p(\theta) \, d\theta.$$

The density of points, Jacobian included, has the same integral. It is estimated by importance
sampling from a Student t with the draws' mean and covariance, or from a mixture of them with one
for every mode; where the ratios are uneven, by bridge sampling between that and the draws.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..diagnostics import convergence
from ..diagnostics.bridge import LogIntegral, bridge_estimate, importance_estimate
from ..diagnostics.flat_directions import describe_direction
from ..diagnostics.html_table import html_note
from ..diagnostics.mode_regions import ModeDraws
from ..diagnostics.prior_tails import falls_off, linear_directions
from ..model import Model
from ..results.mode_groups import stored_modes
from ..samplers.mixture import ModeMixture
from ..samplers.proposals import MAX_POINTS, Proposal
from ..target import Target
from .arguments import check_integer
from .assessment import weights_of
from .preparation import check_num_rows, result_target
from .result_points import posterior_points

if TYPE_CHECKING:
    from xarray import DataTree

NUM_DRAWS = 1000
MIN_DRAWS = 50  # for a Pareto k, and for a covariance from the other draws
MAX_PARETO_K = 0.5  # below it, the variance of the ratios is finite
MAX_STANDARD_ERROR = 0.1  # nats: a Bayes factor to 10 %
MAX_DIFFERENCE = 0.4  # nats between the two estimates: a third of the mass
MAX_NAMED = 3  # coordinates, or directions, in a message
MAX_TERMS = 5  # of a direction

Points = Float[np.ndarray, "draw dim"]


@dataclass(frozen=True)
class LogEvidence:
    """A log marginal likelihood, in nats. Printed, it is one line.

    Attributes:
        value: the estimate.
        standard_error: its Monte Carlo standard error.
        verdict: "good" if the standard error is below 0.1 and can be trusted, else "poor".
        method: "importance sampling" or "bridge sampling".
        pareto_k: tail shape of the importance ratios of the posterior to the Student t.
        reason: why the verdict is poor.
    """

    value: float
    standard_error: float
    verdict: Literal["good", "poor"]
    method: str
    pareto_k: float
    reason: str = ""

    def __str__(self) -> str:
        text = (
            f"log marginal likelihood {self.value:.2f} ± {self.standard_error:.3f} "
            f"({self.method}, Pareto k {self.pareto_k:.2f}): {self.verdict}."
        )
        return f"{text} {self.reason}".rstrip()

    def _repr_html_(self) -> str:
        return html_note(str(self)).strip()


def evidence(
    tree: "DataTree",
    model: Model,
    rows: Any,
    *,
    weights: str | None = None,
    num_draws: int = NUM_DRAWS,
    executor: Any = None,
    seed: int = 0,
) -> LogEvidence:
    """Estimate the log marginal likelihood of a model, for Bayes factors.

    It has the constants of prior and likelihood as the model writes them: those of NumPyro and
    PyMC models are complete, and a `Model` whose `log_prior` lacks a constant has an evidence that
    lacks it, too. Evidence depends on the prior even where the posterior hardly does, so a model
    with an improper prior has none, and is refused.

    Args:
        tree: a result of `infer`, `combine` or `refine`.
        model: the model.
        rows: all rows, as `infer` takes them.
        weights: the column of rows with their weights; by default that of the result, if any.
        num_draws: points at which the full-data log density is evaluated, of a Student t and of
            the posterior each.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of the points.

    Returns:
        A `LogEvidence` with `value`, `standard_error` and a `verdict`.
    """
    if "posterior" not in getattr(tree, "children", {}):
        raise TypeError(
            "tree must be a result of infer or combine, with a group 'posterior'; got "
            f"{type(tree).__name__} with the groups {list(getattr(tree, 'children', {}))}."
        )
    check_integer("num_draws", num_draws, MIN_DRAWS)
    num_shards = int(tree.attrs.get("num_shards", 1))
    column = weights_of(tree, weights)
    target = result_target(model, rows, num_shards, executor, seed, column)
    if column is None:  # rows of weight zero are not counted
        check_num_rows(tree, target)
    points = posterior_points(tree, target.model)
    flat = points.reshape(-1, points.shape[2])
    if len(flat) < 2 * MIN_DRAWS:
        raise ValueError(
            f"evidence needs at least {2 * MIN_DRAWS} posterior draws; got {len(flat)}. Run infer "
            "with a larger num_draws."
        )
    _check_exchangeable(target.model)
    _check_proper(target.model, flat.mean(axis=0))
    estimates = _estimate(points, stored_modes(tree), target, num_draws, seed)
    return _judged(estimates, str(tree.attrs.get("verdict", "unknown")))


class Estimates(NamedTuple):
    """Both estimates, and the Pareto k of importance sampling."""

    importance: LogIntegral
    bridge: LogIntegral
    pareto_k: float


def _estimate(
    points: Float[np.ndarray, "chain draw dim"],
    modes: ModeDraws | None,
    target: Target,
    num_draws: int,
    seed: int,
) -> Estimates:
    """Evaluate the target at some draws, and at points of a proposal fitted to the others."""
    generator = np.random.default_rng((seed, 3))
    flat = points.reshape(-1, points.shape[2])
    count = min(num_draws, len(flat) // 2)
    order = generator.permutation(len(flat))
    held_out, others = order[:count], order[count:]
    proposal = _proposal(flat, modes, others)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        at_proposals, at_draws = (
            _log_ratios(chosen, proposal, target)
            for chosen in (proposal.draw(num_draws, generator), flat[held_out])
        )
        _check_possible(at_draws)
        ess = float(np.nanmin(convergence.ess(points[None])))
        importance, shape = importance_estimate(at_proposals)
        bridge = bridge_estimate(at_draws, at_proposals, min(count, max(1.0, ess)))
    return Estimates(importance, bridge, shape)


def _proposal(flat: Points, modes: ModeDraws | None, chosen: np.ndarray) -> ModeMixture:
    """Return a Student t with the moments of some draws, or one for the draws of every mode."""
    if modes is None:
        return ModeMixture((Proposal.of(flat[chosen]),), np.ones(1))
    regions = modes.regions
    around = ModeMixture.around(regions.centres, regions.precisions, modes.weights)
    parts = [flat[chosen[modes.labels[chosen] == mode]] for mode in range(len(modes.weights))]
    proposals = [
        Proposal.of(part)._replace(freedom=proposal.freedom) if len(part) >= MIN_DRAWS else proposal
        for part, proposal in zip(parts, around.proposals, strict=True)
    ]
    return around._replace(proposals=tuple(proposals))


def _log_ratios(
    points: Points, proposal: ModeMixture, target: Target
) -> Float[np.ndarray, " draw"]:
    batches = np.array_split(points, -(-len(points) // MAX_POINTS))
    values = np.concatenate([np.asarray(target(jnp.asarray(batch))[0]) for batch in batches])
    log_ratios = values - proposal.log_density(points)
    return np.where(np.isfinite(log_ratios), log_ratios, -np.inf)


def _check_possible(at_draws: Float[np.ndarray, " draw"]) -> None:
    """Refuse rows that are impossible at all draws, whose evidence would not be a number."""
    if not np.isfinite(at_draws).any():
        raise ValueError(
            f"the log density is not finite at any of {len(at_draws)} posterior draws: the model "
            "cannot have been fitted to these rows. Check that the tree belongs to the model, and "
            "that the rows have the values that it expects, e.g. 0 and 1."
        )


def _judged(estimates: Estimates, verdict: str) -> LogEvidence:
    """Choose an estimate, and say whether it can be trusted.

    Importance sampling does not depend on the draws, which may be wrong; bridge sampling does.
    """
    importance, bridge, shape = estimates
    is_trusted = shape < MAX_PARETO_K and importance.standard_error <= MAX_STANDARD_ERROR
    chosen = importance if is_trusted else bridge
    reason = ""
    difference = abs(importance.value - bridge.value)
    if not chosen.standard_error <= MAX_STANDARD_ERROR:
        reason = (
            f"The standard error is above {MAX_STANDARD_ERROR} nats. Try a larger num_draws, or "
            "vcmc.refine first."
        )
    elif not is_trusted and verdict != "good":
        reason = (
            "The importance ratios are uneven, and bridge sampling needs draws that are right: the "
            f"verdict on these is {verdict}. Try vcmc.refine first."
        )
    elif is_trusted and verdict == "good" and not difference <= MAX_DIFFERENCE:
        reason = (
            f"Importance sampling and bridge sampling differ by {difference:.2f} nats: the Student "
            "t misses some of the posterior's mass."
        )
    return LogEvidence(
        chosen.value,
        chosen.standard_error,
        "poor" if reason else "good",
        "importance sampling" if is_trusted else "bridge sampling",
        shape,
        reason,
    )


def _check_exchangeable(model: Model) -> None:
    """Refuse a model whose posterior has a mode for every labelling, of which draws show one."""
    if names := [name for name, space in model.space.items() if space.num_labels]:
        raise ValueError(
            f"the evidence of a model with exchangeable components ({names}) cannot be estimated "
            "from its draws: they have one of many equal labellings. Order the components, e.g. "
            "with vcmc.Ordered."
        )


def _check_proper(model: Model, centre: Float[np.ndarray, " dim"]) -> None:
    """Refuse a model whose log prior does not fall off along some direction."""
    flat = _flat_elements(model, centre) or _flat_directions(model, centre)
    if flat:
        raise ValueError(
            f"the prior of {', '.join(flat[:MAX_NAMED])} is improper: it does not fall off, so the "
            "model has no evidence. Give it a proper prior, e.g. Normal(0, 10)."
        )


def _flat_elements(model: Model, centre: Float[np.ndarray, " dim"]) -> list[str]:
    """Return coordinates, and parameters, along whose sum the log prior does not fall off."""
    dim = model.space.dim
    directions = [*np.eye(dim)]
    names = list(model.space.coordinates)
    for name in model.space:
        direction = np.zeros(dim)
        direction[list(model.space.indices(name))] = 1.0  # the sum of its elements
        directions.append(direction)
        names.append(name)
    is_proper = falls_off(model, (1.0, 1.0), centre, np.stack(directions))
    return list(dict.fromkeys(names[number] for number in np.flatnonzero(~is_proper)))


def _flat_directions(model: Model, centre: Float[np.ndarray, " dim"]) -> list[str]:
    """Return other directions along which the log prior does not fall off, in words."""
    directions = linear_directions(model, centre)
    if not len(directions):
        return []
    names = np.array(list(model.space.coordinates))
    is_proper = falls_off(model, (1.0, 1.0), centre, directions)
    return [describe_direction(names, part, MAX_TERMS) for part in directions[~is_proper]]
