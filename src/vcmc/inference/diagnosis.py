"""How good a result is: estimated errors of means and sds, and a verdict in words."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array, Float

from .. import executors
from ..data.params import to_params, to_points
from ..data.partition import check_seed
from ..data.shard import AbstractPartition
from ..diagnostics import convergence
from ..diagnostics.modes import other_mode
from ..diagnostics.selfcheck import Errors, self_check
from ..diagnostics.verdict import Diagnosis, judge
from ..model import Model
from ..results.tree import posterior_draws
from ..target import Target
from .assembly import check_kind, check_together, checked_target, partition_of, warn

if TYPE_CHECKING:
    from xarray import DataTree

GROUPS = {
    "mean": "mean_error",
    "mean_se": "mean_error_se",
    "sd": "sd_error",
    "sd_se": "sd_error_se",
}
NUMBERS = ("pareto_k", "ksd", "ksd_p_value", "not_linear")


def diagnose(
    tree: "DataTree",
    model: Model | None = None,
    rows: Any = None,
    *,
    executor: Any = None,
    seed: int = 0,
) -> Diagnosis:
    """How far a result is from the posterior, by full-data scores at some of its draws: no reference chain is needed.

    Args:
        tree: what `infer`, `combine` or `refine` returned.
        model: the model; it may be left out if the tree was diagnosed when it was made, as those of `infer` are.
        rows: all rows, as `infer` takes them.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of the choice of draws.
    """
    if "posterior" not in getattr(tree, "children", {}):
        raise TypeError(
            "tree must be what infer or combine returned, with a group 'posterior'; got "
            f"{type(tree).__name__} with the groups {list(getattr(tree, 'children', {}))}."
        )
    check_together("diagnose", model, rows)
    if model is None:
        return stored_diagnosis(tree)
    target = target_of(tree, model, rows, executor, seed)
    draws = posterior_points(tree, target.model)
    return diagnose_draws(draws, target, _texts(tree, "shard_warnings"), seed)


def _texts(tree: "DataTree", name: str) -> list[str]:
    """A list of texts among a tree's attributes; a file makes one text of a list of one."""
    found = tree.attrs.get(name, [])
    return [found] if isinstance(found, str) else list(found)


def target_of(tree: "DataTree", model: Model, rows: Any, executor: Any, seed: int) -> Target:
    """The full-data target of a result's model."""
    check_kind(
        "model", model, Model, "vcmc.Model(...), vcmc.from_numpyro(...) or vcmc.from_pymc(...)"
    )
    executor = executors.executor_of(executor)
    check_seed(seed)
    num_shards = (
        None if isinstance(rows, AbstractPartition) else int(tree.attrs.get("num_shards", 1))
    )
    return checked_target(
        model, partition_of(rows, num_shards, seed), executor, jax.random.key(seed)
    )


def posterior_points(tree: "DataTree", model: Model) -> Float[np.ndarray, "chain draw dim"]:
    """A result's draws as points."""
    posterior = tree["posterior"]
    if missing := set(model.space) - set(posterior.data_vars):
        raise ValueError(
            f"the model has the parameters {list(model.space)}, but the tree has no draws of {sorted(missing)}."
        )
    points = np.asarray(to_points(model.space, posterior_draws(tree)))
    return points.reshape(posterior.sizes["chain"], posterior.sizes["draw"], -1)


def diagnose_draws(
    draws: Float[np.ndarray, "chain draw dim"], target: Target, notes: list[str], seed: int
) -> Diagnosis:
    """Judge draws, given as points, by the full-data target; `notes` is what was doubtful before."""
    model = target.model
    shapes: dict[str, tuple[int, ...]] = {}

    def quantities(points: Float[Array, "draw dim"]) -> Float[np.ndarray, "draw quantity"]:
        params = to_params(model.space, points, model.derived)
        shapes.update({name: values.shape[1:] for name, values in params.items()})
        return np.concatenate(
            [values.reshape(len(values), -1) for values in params.values()], axis=1
        )

    with np.errstate(invalid="ignore", divide="ignore"):  # what does not vary has no error
        check = self_check(draws.reshape(-1, draws.shape[2]), target, quantities, seed)
    ess = float(np.nanmin(convergence.ess(draws[None])))
    errors = {}
    if check.errors is not None:
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
        parts = [np.split(each, ends[:-1]) for each in check.errors]
        for number, (name, shape) in enumerate(shapes.items()):
            errors[name] = Errors(*(part[number].reshape(shape) for part in parts))
    elsewhere = other_mode(draws.reshape(-1, draws.shape[2]), target, seed)
    return judge(check, errors, notes, ess, elsewhere)


def stored(
    diagnosis: Diagnosis, notes: list[str]
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """A diagnosis as groups and attributes of a tree, with what was doubtful before it; what is doubtful is warned of."""
    groups = {
        group: {name: np.asarray(getattr(each, part)) for name, each in diagnosis.errors.items()}
        for part, group in GROUPS.items()
    }
    attributes = {
        "verdict": diagnosis.verdict,
        "verdict_text": diagnosis.text,
        "verdict_reasons": diagnosis.reasons,
        "can_be_refined": int(diagnosis.can_be_refined),
        **{name: getattr(diagnosis, name) for name in NUMBERS},
        "shard_warnings": notes,
        "warnings": warn(notes if diagnosis.verdict in ("good", "unknown") else [diagnosis.text]),
    }
    return {name: group for name, group in groups.items() if group}, attributes


def stored_diagnosis(tree: "DataTree") -> Diagnosis:
    """The diagnosis that a tree holds."""
    if "verdict" not in tree.attrs:
        raise ValueError(
            "this tree was not diagnosed when it was made; give diagnose the model and its rows: "
            "vcmc.diagnose(tree, model, rows)."
        )
    errors = {}
    if "mean_error" in tree.children:
        for name in tree["mean_error"].data_vars:
            errors[str(name)] = Errors(*(tree[group][name].to_numpy() for group in GROUPS.values()))
    numbers = {name: float(tree.attrs[name]) for name in NUMBERS}
    reasons = _texts(tree, "verdict_reasons")
    can_be_refined = bool(tree.attrs["can_be_refined"])
    return Diagnosis(tree.attrs["verdict"], reasons, can_be_refined, errors, **numbers)
