"""The posterior draws of a result as points of a model, and whether they are draws of that model.

A result of another model may have all parameters of a smaller one, in which they mean something
else: the intercept of a regression is no mean of its outcome.
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float, Int

from ..data.params import to_points
from ..data.rows import NUMBER_KINDS
from ..data.space_description import described_names
from ..model import Model
from ..results.tree import draws_by_parameter, text_list

if TYPE_CHECKING:
    from xarray import DataTree

MAX_LABELS = 5  # in a message

Points = Float[np.ndarray, "chain draw dim"]


def posterior_points(tree: "DataTree", model: Model) -> Points:
    """Return the draws of a result as points."""
    posterior = tree["posterior"]
    if missing := set(model.space) - set(posterior.data_vars):
        raise ValueError(
            f"the model has the parameters {list(model.space)}, but the tree has no draws of "
            f"{sorted(missing)}: it is a result of another model, with "
            f"{sorted(map(str, posterior.data_vars))}."
        )
    for name, part in model.space.items():
        if (shape := posterior[name].transpose("chain", "draw", ...).shape[2:]) != part.shape:
            raise ValueError(
                f"the model's {name!r} has the shape {part.shape}, but the tree's draws have "
                f"{shape}: the tree is a result of another model."
            )
    check_no_other_parameters(tree, model)
    _check_labels(tree, model)
    points = np.asarray(to_points(model.space, draws_by_parameter(tree)))
    return points.reshape(posterior.sizes["chain"], posterior.sizes["draw"], -1)


def check_no_other_parameters(tree: Any, model: Model) -> None:
    """Refuse a result of a model with further parameters.

    If a result does not say which of its variables are parameters, all are that the model does not
    compute. Where it does say, users may have added or dropped variables.
    """
    names = [str(name) for name in tree["posterior"].data_vars]
    own = {*model.space, *_derived_names(model)}
    if model.local is not None:
        own |= {*model.local.space, *_variables_of_groups(tree, model.local.groups)}
    parameters = _recorded_parameters(tree)
    others = [name for name in (names if parameters is None else parameters) if name not in own]
    if not others:
        return
    raise ValueError(
        f"the model has the parameters {list(model.space)}, but the tree has {others}, too: it is "
        "a result of another model. Pass the model that it was made with."
        + ("" if parameters else f" If {others} are no parameters, drop them from the tree.")
    )


def _recorded_parameters(tree: Any) -> list[str] | None:
    """Return the parameters of the model that a result was made with, if it says."""
    if "space" not in tree.attrs:
        return None
    kept = [name for name in described_names(tree.attrs["space"]) if name in tree["posterior"]]
    return [*kept, *text_list(tree, "local_parameters")]


def _derived_names(model: Model) -> list[str]:
    derived = model.derived
    if derived is None:
        return []
    at_point = jax.ShapeDtypeStruct((model.space.dim,), float)
    return list(jax.eval_shape(lambda point: derived(model.space.constrain(point)), at_point))


def _variables_of_groups(tree: Any, groups: str) -> list[str]:
    variables = tree["posterior"].data_vars.items()
    return [str(name) for name, array in variables if groups in array.dims]


def _check_labels(tree: "DataTree", model: Model) -> None:
    """Refuse a model that numbers levels, or columns of a frame, in another way than the result."""
    posterior = tree["posterior"]
    for dim, own in model.levels.items():
        if dim not in posterior.coords or posterior[dim].dtype.kind in NUMBER_KINDS:
            continue
        labels, names = posterior[dim].to_numpy().astype(str).tolist(), list(map(str, own))
        if labels != names:
            raise ValueError(
                f"the model has the labels {names[:MAX_LABELS]} along {dim!r}, but the tree has "
                f"{labels[:MAX_LABELS]}: numbers would mean other levels. Make the model from the "
                f"rows that the result was fitted to, or with coords={{{dim!r}: [...]}}."
            )


def spaced_draws(points: Points, num_draws: int | None) -> Int[np.ndarray, " draw"]:
    """Return the numbers of evenly spaced draws of every chain, so many in all; None: all."""
    num_chains, total = points.shape[:2]
    count = total if num_draws is None else min(total, max(1, num_draws // num_chains))
    return np.arange(count) * total // count
