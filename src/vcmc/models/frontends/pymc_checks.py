"""Checks that a PyMC model can be sharded."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array

from ...data.rows import Rows
from ...errors import warn_user
from ...space import Params, Space
from .checks import example_params
from .graph import ancestors

NUM_SUPPORT_POINTS = 10  # at which variables must have a density …
SUPPORT_POINT_SCALE = 3.0  # … with this sd in real coordinates


def check_rows(model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise an error if the rows do not fit the model's `pm.Data`."""
    data = {variable.name: variable for variable in model.data_vars}
    if not data:
        raise ValueError(
            "the model has no pm.Data, so that its data are fixed and shards cannot have rows of "
            "their own: wrap its observations, and all else that differs from row to row, e.g. "
            'pm.Data("y", y).'
        )
    if unknown := set(arrays) - set(data):
        raise ValueError(
            f"the names of rows must be those of pm.Data in the model, {list(data)}; got "
            f"{list(arrays)}, so {sorted(unknown)} are not."
        )
    for name, array in arrays.items():
        if array.ndim != data[name].ndim:
            raise ValueError(
                f"rows[{name!r}] must have {data[name].ndim} axes, as pm.Data({name!r}) has; got "
                f"shape {array.shape}."
            )
        num_rows = data[name].type.shape[0]
        if num_rows is not None:
            raise ValueError(
                f"pm.Data({name!r}) has a fixed number of rows, {num_rows}, but shards have fewer: "
                "leave out its shape=."
            )
        expects_integers = np.issubdtype(data[name].dtype, np.integer)
        if expects_integers and array.dtype.kind == "f" and np.any(array != np.round(array)):
            raise ValueError(
                f"rows[{name!r}] must hold integers, as pm.Data({name!r}) does; got, e.g., "
                f"{array[array != np.round(array)].ravel()[0]}."
            )


def check_variables(model: Any, rows: set[str], likelihood_potentials: Sequence[str]) -> None:
    """Raise an error if the model's random variables cannot be sharded."""
    free, observed = model.free_RVs, model.observed_RVs
    if not observed and not likelihood_potentials:
        raise ValueError(
            "the model must observe its rows with observed=pm.Data(...), or have a pm.Potential "
            f"that is declared in likelihood_potentials=[...]; got {[rv.name for rv in free]}, "
            "all of them free."
        )
    if not free:
        raise ValueError(
            "the model must have a free random variable to infer; got "
            f"{[rv.name for rv in observed]}, all of them observed."
        )
    names = {rv.name for rv in observed}
    for rv in free:
        if rv.name.endswith("_unobserved") and rv.name.replace("_unobserved", "_observed") in names:
            raise ValueError(
                f"PyMC imputes missing values of {rv.name.removesuffix('_unobserved')!r}, and a "
                "missing value belongs to one row, so that shards cannot share it: drop these "
                "rows, or fill them and mark them for the likelihood by a column of 0 and 1."
            )
        if not rv.dtype.startswith("float"):
            raise ValueError(
                f"free random variable {rv.name!r} is discrete, and gradient-based samplers cannot "
                "sample it: sum it out, with pm.Mixture instead of a latent assignment."
            )
    for rv in observed:
        _check_observed(model, rv, rows)


def _check_observed(model: Any, rv: Any, rows: set[str]) -> None:
    value = model.rvs_to_values[rv]
    operations = {
        type(variable.owner.op).__name__
        for variable in ancestors([rv, value])
        if variable.owner is not None
    }
    if any(name.startswith("Minibatch") for name in operations):
        raise ValueError(
            f"{rv.name!r} is scaled or subsampled (total_size, pm.Minibatch), as shards already "
            "are: leave it out, and observe all rows."
        )
    data = {variable.name for variable in ancestors([value]) if variable in model.data_vars}
    if not data:
        raise ValueError(
            f"{rv.name!r} observes an array that is fixed in the model, so that every shard would "
            'count it again: wrap it, e.g. observed=pm.Data("y", y), and name it in rows.'
        )
    if not data & rows:
        raise ValueError(
            f"{rv.name!r} observes pm.Data {sorted(data)}, which is not among the rows "
            f"{sorted(rows)}, so that every shard would count it again. Add it to rows."
        )


def warn_of_resampling(model: Any) -> None:
    """Warn of parameters that PyMC's predictions would draw from their prior."""
    sources = {
        rv.name: {part.name for part in ancestors([rv]) if part in model.data_vars}
        for rv in model.free_RVs
    }
    names = [name for name, data in sources.items() if data]
    if not names:
        return
    data = sorted(set.union(*sources.values()))
    warn_user(
        f"pm.sample_posterior_predictive would draw {', '.join(map(repr, names))} from the prior, "
        f"as PyMC takes pm.Data {', '.join(map(repr, data))} for changed, on which they depend, "
        "e.g. by their shapes. For predictions, pass it "
        "pymc.model.transform.optimization.freeze_dims_and_data(model), or give these parameters "
        "dims= that have coords in pm.Model(coords={...}).",
        UserWarning,
    )


def check_potentials(model: Any, declared: set[str]) -> None:
    """Raise an error unless every potential is declared as prior or likelihood."""
    potentials = [potential.name for potential in model.potentials]
    if unknown := declared - set(potentials):
        raise ValueError(
            f"potentials {sorted(unknown)} are declared but not in the model, whose potentials are "
            f"{potentials}."
        )
    for name in potentials:
        if name not in declared:
            raise ValueError(
                f"pm.Potential({name!r}) may belong to the prior or to the likelihood: declare it "
                f"with from_pymc(..., prior_potentials=[{name!r}]) or, if its value is one number "
                f"per row, with likelihood_potentials=[{name!r}]."
            )


def check_support(
    names: Sequence[str],
    prior_terms: Callable[[Params, Rows], Array],
    spaces: Mapping[str, Space],
    rows: Rows,
) -> None:
    """Raise an error if a variable has no density somewhere in its space."""
    for params in example_params(spaces, count=NUM_SUPPORT_POINTS, spread=SUPPORT_POINT_SCALE):
        for name, value in zip(names, prior_terms(params, rows), strict=False):
            if not np.isfinite(value):
                raise ValueError(
                    f"{name!r} has no density at {params[name]}, which its transform in PyMC "
                    f"allows ({spaces[name]}): declare its space, e.g. "
                    f"from_pymc(..., space={{{name!r}: vcmc.Interval(0, 1)}})."
                )
