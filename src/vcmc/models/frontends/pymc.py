"""PyMC models, as they stand.

Free random variables make the prior and observed ones the likelihood. Data that are rows become inputs; all else in
the model is constant. PyMC is imported only here, when it is asked for.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data.rows import Rows, as_rows
from ...model import Derived, Model
from ...space import Params, Scalar, Space
from .checks import (
    FEW,
    MORE,
    check_prior,
    example_params,
    first_rows,
    row_axis,
    same_for_all_rows,
    sum_per_row,
    warn_of_left_out,
)
from .graph import Graph, GraphFunction, ancestors, first_line
from .supports import spaces_of


def from_pymc(
    model: Any,
    rows: Any,
    *,
    space: Mapping[str, Space] | None = None,
    prior_potentials: Iterable[str] = (),
    likelihood_potentials: Iterable[str] = (),
) -> Model:
    """A PyMC model as a `Model`: free random variables are its prior, observed ones its likelihood.

    Args:
        model: a `pymc.Model`. What it observes, and what else differs from row to row, is in `pm.Data`.
        rows: rows to learn shapes from, all of them or the first few, by the names of their `pm.Data`.
            Other `pm.Data` are constants.
        space: spaces that say more than the support does, such as `vcmc.Exchangeable`.
        prior_potentials: names of `pm.Potential` that belong to the prior.
        likelihood_potentials: names of `pm.Potential` that belong to the likelihood; their value
            must be one number per row.
    """
    pymc = _pymc()
    if not isinstance(model, pymc.Model):
        raise TypeError(f"model must be a pymc.Model; got {type(model).__name__}.")
    arrays = as_rows(rows)
    in_prior, in_likelihood = tuple(prior_potentials), tuple(likelihood_potentials)
    _check_rows(model, arrays)
    _check_variables(model, set(arrays))
    _check_potentials(model, {*in_prior, *in_likelihood})

    graph = Graph(model, arrays)
    shapes = _shapes(graph, arrays)
    template = first_rows(arrays)
    spaces = spaces_of(graph, shapes, template, space or {})
    prior = graph.function(
        [
            graph.log_density(each).sum()
            for each in [*model.free_RVs, *(model[name] for name in in_prior)]
        ]
    )
    names = [*(rv.name for rv in model.observed_RVs), *in_likelihood]
    likelihood, axes = _likelihood(graph, names, shapes, arrays)

    def log_prior(params: Params) -> Scalar:
        return jnp.sum(jnp.stack(prior(params, template)))

    def log_likelihood(params: Params, given: Rows) -> Float[Array, " row"]:
        parts = likelihood(params, given)
        return jnp.sum(
            jnp.stack([sum_per_row(*each) for each in zip(parts, axes, strict=True)]), axis=0
        )

    examples = example_params(spaces)
    by_part = jax.jit(lambda params, given: jnp.stack(prior(params, given)))
    _check_support([rv.name for rv in model.free_RVs], by_part, spaces, template)
    check_prior(
        lambda params, given: jnp.sum(by_part(params, given)),
        examples,
        arrays,
        "write it into the model as a number, or as pm.Data not in rows",
    )
    derived = _derived(graph, examples, arrays)
    return Model(spaces, log_prior, log_likelihood, derived=derived)


def is_pymc(model: Any) -> bool:
    """Whether something is a PyMC model; PyMC is not imported to find out."""
    return "pymc" in sys.modules and isinstance(model, sys.modules["pymc"].Model)


def _pymc() -> Any:
    try:
        import pymc
    except ImportError:
        raise ImportError("PyMC models need PyMC. Try: pip install 'vcmc[pymc]'") from None
    return pymc


def _check_rows(model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    data = {variable.name: variable for variable in model.data_vars}
    if not data:
        raise ValueError(
            "the model has no pm.Data, so its data are baked into it, and shards cannot have rows of their own: wrap "
            'what is observed, and what differs from row to row, as in pm.Data("y", y).'
        )
    if unknown := set(arrays) - set(data):
        raise ValueError(
            f"the names of rows must be those of pm.Data in the model, {list(data)}; got {list(arrays)}, so "
            f"{sorted(unknown)} are not."
        )
    for name, array in arrays.items():
        if array.ndim != data[name].ndim:
            raise ValueError(
                f"rows[{name!r}] must have {data[name].ndim} axes, as pm.Data({name!r}) has; got shape {array.shape}."
            )
        if data[name].type.shape[0] is not None:
            raise ValueError(
                f"pm.Data({name!r}) has a fixed number of rows, {data[name].type.shape[0]}, and shards have others: leave out "
                "its shape=."
            )
        whole = np.issubdtype(data[name].dtype, np.integer) and array.dtype.kind == "f"
        if whole and np.any(array != np.round(array)):
            raise ValueError(
                f"rows[{name!r}] must hold whole numbers, as pm.Data({name!r}) does; got others, such as "
                f"{array[array != np.round(array)].ravel()[0]}."
            )


def _check_variables(model: Any, rows: set[str]) -> None:
    """Free and observed random variables must be there, and be such as shards can have."""
    free, observed = model.free_RVs, model.observed_RVs
    if not observed:
        raise ValueError(
            f"the model must observe its rows (observed=pm.Data(...)); got {[rv.name for rv in free]}, all of them free."
        )
    if not free:
        raise ValueError(
            f"the model must have a free random variable to infer; got {[rv.name for rv in observed]}, all of them observed."
        )
    names = {rv.name for rv in observed}
    for rv in free:
        if rv.name.endswith("_unobserved") and rv.name.replace("_unobserved", "_observed") in names:
            raise ValueError(
                f"PyMC imputes missing values of {rv.name.removesuffix('_unobserved')!r}, and a missing value belongs to one "
                "row, so that shards cannot share it: drop these rows, or fill them and let a 0/1 column tell "
                "the likelihood which are missing."
            )
        if not rv.dtype.startswith("float"):
            raise ValueError(
                f"free random variable {rv.name!r} is discrete, and gradients cannot sample it: sum it out, with pm.Mixture "
                "in place of a latent assignment."
            )
    for rv in observed:
        _check_observed(model, rv, rows)


def _check_observed(model: Any, rv: Any, rows: set[str]) -> None:
    value = model.rvs_to_values[rv]
    operations = {
        type(each.owner.op).__name__ for each in ancestors([rv, value]) if each.owner is not None
    }
    if any(name.startswith("Minibatch") for name in operations):
        raise ValueError(
            f"{rv.name!r} is scaled or subsampled (total_size, pm.Minibatch), and shards do that already: leave it out, "
            "and observe all rows."
        )
    inside = {each.name for each in ancestors([value]) if each in model.data_vars}
    if not inside:
        raise ValueError(
            f"what {rv.name!r} observes is an array that is baked into the model, so that shards cannot have rows of their "
            f'own, and every shard would count it again: wrap it, as in observed=pm.Data("y", y), and name it in rows.'
        )
    if not inside & rows:
        raise ValueError(
            f"{rv.name!r} observes pm.Data {sorted(inside)}, which rows do not name, so that every shard would count it again; "
            f"got rows {sorted(rows)}. Add it to rows."
        )


def _check_potentials(model: Any, declared: set[str]) -> None:
    potentials = [each.name for each in model.potentials]
    if unknown := declared - set(potentials):
        raise ValueError(
            f"potentials {sorted(unknown)} are declared but not in the model, whose potentials are {potentials}."
        )
    for name in potentials:
        if name not in declared:
            raise ValueError(
                f"pm.Potential({name!r}) may belong to the prior or to the likelihood, and only you know: declare it with "
                f"from_pymc(..., prior_potentials=[{name!r}]), or, if its value is one number per row, "
                f"likelihood_potentials=[{name!r}]."
            )


def _shapes(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Shapes of the free random variables, which must not follow the rows."""
    few, more = (
        graph.shapes(
            graph.model.free_RVs, {name: _resized(array, count) for name, array in arrays.items()}
        )
        for count in (FEW, MORE)
    )
    dims = graph.model.named_vars_to_dims
    row_dims = {dims[name][0] for name in arrays if dims.get(name)} - {None}
    for rv, here, there in zip(graph.model.free_RVs, few, more, strict=True):
        shared = row_dims & set(dims.get(rv.name) or ())
        if here != there or shared:
            why = (
                f"dims {sorted(shared)}"
                if shared
                else f"shape {here} for {FEW} rows, {there} for {MORE}"
            )
            raise ValueError(
                f"free random variable {rv.name!r} has one value per row ({why}), so it cannot be shared by shards: "
                "integrate it out of the likelihood (for a random effect per row, use the marginal distribution)."
            )
    return {rv.name: shape for rv, shape in zip(graph.model.free_RVs, few, strict=True)}


def _check_support(
    names: Sequence[str], by_part: Any, spaces: Mapping[str, Space], template: Rows
) -> None:
    """Every variable must have a density wherever its space says that it may be."""
    for params in example_params(spaces, count=10, spread=3.0):
        for name, value in zip(names, by_part(params, template), strict=False):
            if not np.isfinite(value):
                raise ValueError(
                    f"{name!r} has no density at {params[name]}, which its transform in PyMC allows ({spaces[name]}): say where "
                    f"it lives, as in from_pymc(..., space={{{name!r}: vcmc.Interval(0, 1)}})."
                )


def _resized(array: np.ndarray, count: int) -> np.ndarray:
    return np.resize(array, (count, *array.shape[1:]))


def _likelihood(
    graph: Graph,
    names: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    arrays: Mapping[str, np.ndarray],
) -> tuple[GraphFunction, list[int]]:
    """The log likelihood's parts, and which axis of each is the rows'."""
    parts = [graph.log_density(graph.model[name]) for name in names]
    for name, part in zip(names, parts, strict=True):
        if part.ndim == 0:
            raise ValueError(_no_row_axis(graph, name, ()))
    likelihood = graph.function(parts)
    params = {name: jax.ShapeDtypeStruct(shape, float) for name, shape in shapes.items()}
    found = []
    for count in (FEW, MORE):
        some = {
            name: jax.ShapeDtypeStruct((count, *array.shape[1:]), jnp.asarray(array[:1]).dtype)
            for name, array in arrays.items()
        }
        try:
            found.append([part.shape for part in jax.eval_shape(likelihood, params, some)])
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(_fixed_size(graph, set(arrays), count, first_line(error))) from None
    axes = []
    for name, few, more in zip(names, *found, strict=True):
        axis = row_axis(few, more)
        if axis is None:
            raise ValueError(_no_row_axis(graph, name, few))
        axes.append(axis)
    return likelihood, axes


def _fixed_size(graph: Graph, rows: set[str], count: int, problem: str) -> str:
    others = [each.name for each in graph.model.data_vars if each.name not in rows]
    return (
        f"the model must run on any number of rows, but not on {count}: {problem} Is a size hard-coded in it, as shape=N or "
        'through dims of a fixed length? Write y.shape[0] for the number of rows of y = pm.Data("y", ...). '
        + (f"Are {others} per row? Name them in rows too. " if others else "")
        + "Is an array that differs from row to row not in pm.Data? Wrap it."
    )


def _no_row_axis(graph: Graph, name: str, shape: tuple[int, ...]) -> str:
    if name in {each.name for each in graph.model.potentials}:
        return (
            f"pm.Potential({name!r}) is declared a likelihood and must have one value per row; got shape {shape} for "
            f"{FEW} rows. Do not sum it over rows."
        )
    return (
        f"observed {name!r} has one joint distribution over all rows, so rows are not independent given the parameters and "
        "cannot be dealt into shards. Let each row be an independent unit, such as a whole series or group. If you "
        "did not mean this, look at the shapes: (N, 1) beside (N,) broadcasts to (N, N)."
    )


def _derived(
    graph: Graph, examples: list[dict[str, Array]], arrays: Mapping[str, np.ndarray]
) -> Derived | None:
    """Deterministic variables that do not depend on the rows; those that do are not the posterior's to report."""
    names = [each.name for each in graph.model.deterministics]
    if not names:
        return None
    values = graph.function(graph.model.deterministics)
    run = jax.jit(lambda params, given: dict(zip(names, values(params, given), strict=True)))
    steady = same_for_all_rows(run, names, examples, arrays)
    warn_of_left_out([name for name in names if name not in steady])
    if not steady:
        return None
    kept = graph.function([graph.model[name] for name in steady])
    template = first_rows(arrays)

    def derived(params: Params) -> Params:
        return dict(zip(steady, kept(params, template), strict=True))

    return derived
