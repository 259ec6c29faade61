"""The verb `diagnose`: how far a result is from the posterior."""

from typing import TYPE_CHECKING, Any

from ..diagnostics.verdict import Diagnosis
from ..model import Model
from ..results.effective_draws import stored_source
from ..results.mode_groups import stored_modes
from ..results.tree import text_list
from .arguments import check_model_with_rows, check_result
from .assessment import (
    diagnose_draws,
    stored_diagnosis,
    weights_of,
)
from .mode_assessment import assess_modes
from .preparation import result_target
from .result_points import posterior_points

if TYPE_CHECKING:
    from xarray import DataTree


def diagnose(
    tree: "DataTree",
    model: Model | None = None,
    rows: Any = None,
    *,
    weights: str | None = None,
    executor: Any = None,
    seed: int = 0,
) -> Diagnosis:
    """Estimate how far a result is from the posterior; no reference chain is needed.

    Full-data scores at some of the draws tell, by Stein's identities, how far means and standard
    deviations are off.

    Args:
        tree: a result of `infer`, `combine` or `refine`.
        model: the model; it may be left out if the tree holds a diagnosis, as those of `infer` do.
        rows: all rows, as `infer` takes them.
        weights: the column of rows with their weights; by default that of the result, if any.
        executor: where the log density is evaluated; by default `executors.Local()`.
        seed: seed of the choice of draws.

    Returns:
        A `Diagnosis`: print it for a table of errors, each ± its standard error, and a verdict.
    """
    check_result(tree)
    check_model_with_rows("diagnose", model, rows)
    if model is None:
        return stored_diagnosis(tree)
    target = result_target(
        model, rows, int(tree.attrs.get("num_shards", 1)), executor, seed, weights_of(tree, weights)
    )
    points = posterior_points(tree, target.model)
    notes, exact = text_list(tree, "shard_warnings"), str(tree.attrs.get("exact", ""))
    remarks = text_list(tree, "shard_remarks")
    if (modes := stored_modes(tree)) is not None:
        return assess_modes(points, modes, target, notes, seed, exact=exact).diagnosis
    return diagnose_draws(
        points,
        target,
        notes,
        seed,
        remarks=remarks,
        exact=exact,
        is_weighted="bent_pareto_k" in tree.attrs,
        source=stored_source(tree),
    )
