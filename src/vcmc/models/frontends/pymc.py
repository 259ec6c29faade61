"""Convert PyMC models.

Free random variables are the prior and observed ones the likelihood. Data that are rows become
inputs; everything else in the model is constant. PyMC is imported only when it is used.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data.categories import encode_text, is_text, read_columns, text_coords
from ...data.rows import Rows, as_rows, original_columns
from ...errors import warn_user
from ...groups.quadrature import AbstractQuadrature
from ...model import Derived, Model
from ...space import Params, Product, Scalar, Space
from .checks import (
    FEW_ROWS,
    MORE_ROWS,
    check_prior,
    example_params,
    first_line,
    first_rows,
    row_axis,
    same_for_all_rows,
    sum_per_row,
    warn_of_omitted,
)
from .graph import Graph, GraphFunction
from .pymc_checks import (
    check_potentials,
    check_rows,
    check_support,
    check_variables,
    warn_of_resampling,
)
from .pymc_groups import grouped_model
from .pymc_predictive import GraphSimulator
from .recognition import recognised_groups
from .supports import spaces_of


def from_pymc(
    model: Any,
    rows: Any,
    *,
    space: Mapping[str, Space] | None = None,
    prior_potentials: Iterable[str] = (),
    likelihood_potentials: Iterable[str] = (),
    groups: str | None = None,
    group_rows: Any = None,
    quadrature: AbstractQuadrature | None = None,
) -> Model:
    """Convert a PyMC model: free random variables are the prior, observed ones the likelihood.

    Args:
        model: a `pymc.Model`. Its observations, and all else that differs from row to row, are in
            `pm.Data`.
        rows: rows to learn shapes from, all of them or the first few, by the names of their
            `pm.Data`. Other `pm.Data` are constants, and other columns are ignored. Columns of
            text become numbers of the model's coords with the column's name.
        space: spaces that say more than the support does, e.g. `vcmc.Exchangeable`.
        prior_potentials: names of `pm.Potential` that belong to the prior.
        likelihood_potentials: names of `pm.Potential` that belong to the likelihood; their value
            must be one number per row.
        groups: for a hierarchical model, the `pm.Data` with the number of every row's group, and
            the dim of its local variables, e.g. `pm.Normal("alpha", mu, tau, dims="county")`. In
            `rows` it may be labels of any kind.
        group_rows: a table with one row per group, whose column `groups` has the labels; its other
            columns are `pm.Data` with this dim. Groups that have no rows are predicted.
        quadrature: how local variables are integrated out, e.g. `vcmc.GaussHermite(15)`.
    """
    pymc = _pymc()
    if not isinstance(model, pymc.Model):
        raise TypeError(f"model must be a pymc.Model; got {type(model).__name__}.")
    dims, coords = _labels(model)
    columns = _columns(model, rows, coords, groups)
    if groups is not None:
        if declared := [*prior_potentials, *likelihood_potentials]:
            raise ValueError(
                f"a model with groups cannot have pm.Potential; got {declared}. Write their terms "
                "as distributions."
            )
        return grouped_model(
            model, columns, groups, group_rows, space or {}, quadrature, (dims, coords)
        )
    arrays = as_rows(columns)
    in_prior, in_likelihood = tuple(prior_potentials), tuple(likelihood_potentials)
    check_rows(model, arrays)
    check_potentials(model, {*in_prior, *in_likelihood})
    check_variables(model, set(arrays), in_likelihood)

    graph = Graph(model, arrays)
    shapes = _shapes(graph, arrays)
    template = first_rows(arrays)
    spaces = spaces_of(graph, shapes, template, space or {})
    prior_variables = [*model.free_RVs, *(model[name] for name in in_prior)]
    prior = graph.function([graph.log_density(variable).sum() for variable in prior_variables])
    names = [*(rv.name for rv in model.observed_RVs), *in_likelihood]
    likelihood, axes = _likelihood(graph, names, shapes, arrays)

    def log_prior(params: Params) -> Scalar:
        return jnp.sum(jnp.stack(prior(params, template)))

    def log_likelihood(params: Params, rows: Rows) -> Float[Array, " row"]:
        parts = zip(likelihood(params, rows), axes, strict=True)
        return jnp.sum(jnp.stack([sum_per_row(values, axis) for values, axis in parts]), axis=0)

    examples = example_params(spaces)
    prior_terms = jax.jit(lambda params, rows: jnp.stack(prior(params, rows)))
    check_support([rv.name for rv in model.free_RVs], prior_terms, spaces, template)
    check_prior(
        lambda params, rows: jnp.sum(prior_terms(params, rows)),
        examples,
        arrays,
        "write it into the model as a number, or as pm.Data not in rows",
    )
    if found := recognised_groups(log_likelihood, Product(spaces), arrays):
        warn_user(
            f'{found.sentence}from_pymc(..., groups="{found.column}") with dims="{found.column}" '
            f"for {', '.join(map(repr, found.names))}.",
            UserWarning,
        )
    derived = _derived(graph, examples, arrays)
    warn_of_resampling(model)
    return Model(
        spaces,
        log_prior,
        log_likelihood,
        derived=derived,
        dims=dims,
        coords=coords,
        simulate=GraphSimulator(model, arrays),
        columns=arrays,
    )


def _columns(
    model: Any, rows: Any, coords: Mapping[str, Any], groups: str | None
) -> dict[str, Any]:
    """Return the columns that are `pm.Data` of the model, text as numbers of levels."""
    names = {variable.name for variable in model.data_vars}
    if not names & set(map(str, original_columns(rows))):
        return dict(original_columns(rows))  # `check_rows` says what is wrong
    columns = read_columns(rows, names)
    known = text_coords(coords)
    for name, column in columns.items():
        if name not in known and name != groups and is_text(column):
            raise ValueError(
                f"rows[{name!r}] is text, and the model must say which number a level gets: "
                f"pm.Model(coords={{{name!r}: [...]}}), where {name!r} may also be a dim. Or pass "
                "numbers."
            )
    return encode_text(columns, known, skip={groups})[0]


def is_pymc(model: Any) -> bool:
    """Return whether `model` is a PyMC model, without importing PyMC."""
    return "pymc" in sys.modules and isinstance(model, sys.modules["pymc"].Model)


def _pymc() -> Any:
    try:
        import pymc
    except ImportError:
        raise ImportError("PyMC models need PyMC. Try: pip install 'vcmc[pymc]'") from None
    return pymc


def _shapes(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the free random variables, which must not depend on the rows."""
    variables = graph.model.free_RVs
    few, more = (
        graph.shapes(variables, {name: _resize(array, count) for name, array in arrays.items()})
        for count in (FEW_ROWS, MORE_ROWS)
    )
    dims = graph.model.named_vars_to_dims
    row_dims = {dims[name][0] for name in arrays if dims.get(name)} - {None}
    for rv, few_shape, more_shape in zip(variables, few, more, strict=True):
        shared = row_dims & set(dims.get(rv.name) or ())
        if few_shape != more_shape or shared:
            evidence = f"shape {few_shape} for {FEW_ROWS} rows, {more_shape} for {MORE_ROWS}"
            if shared:
                evidence = f"dims {sorted(shared)}"
            raise ValueError(
                f"free random variable {rv.name!r} has one value per row ({evidence}), so that "
                "shards cannot share it: integrate it out of the likelihood (for a random effect "
                "per row, use the marginal distribution)."
            )
    return {rv.name: shape for rv, shape in zip(variables, few, strict=True)}


def _resize(array: np.ndarray, count: int) -> np.ndarray:
    return np.resize(array, (count, *array.shape[1:]))


def _likelihood(
    graph: Graph,
    names: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    arrays: Mapping[str, np.ndarray],
) -> tuple[GraphFunction, list[int]]:
    """Return the terms of the log likelihood, and the row axis of each."""
    terms = [graph.log_density(graph.model[name]) for name in names]
    for name, term in zip(names, terms, strict=True):
        if term.ndim == 0:
            raise ValueError(_no_row_axis(graph, name, ()))
    likelihood = graph.function(terms)
    params = {name: jax.ShapeDtypeStruct(shape, float) for name, shape in shapes.items()}
    term_shapes = []
    for count in (FEW_ROWS, MORE_ROWS):
        rows = {
            name: jax.ShapeDtypeStruct((count, *array.shape[1:]), jnp.asarray(array[:1]).dtype)
            for name, array in arrays.items()
        }
        try:
            term_shapes.append([term.shape for term in jax.eval_shape(likelihood, params, rows)])
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(_fixed_size(graph, set(arrays), count, first_line(error))) from None
    axes = []
    for name, few, more in zip(names, *term_shapes, strict=True):
        axis = row_axis(few, more)
        if axis is None:
            raise ValueError(_no_row_axis(graph, name, few))
        axes.append(axis)
    return likelihood, axes


def _fixed_size(graph: Graph, rows: set[str], count: int, problem: str) -> str:
    others = [data.name for data in graph.model.data_vars if data.name not in rows]
    return (
        f"the model must run on any number of rows, but fails on {count}: {problem} Is a size "
        "hard-coded in it, by shape=N or by dims of a fixed length? Use y.shape[0] for the number "
        'of rows of y = pm.Data("y", ...). '
        + (f"Are {others} per row? Name them in rows, too. " if others else "")
        + "Is an array that differs from row to row not in pm.Data? Wrap it."
    )


def _no_row_axis(graph: Graph, name: str, shape: tuple[int, ...]) -> str:
    if name in {potential.name for potential in graph.model.potentials}:
        return (
            f"pm.Potential({name!r}) is declared as likelihood and must have one value per row; "
            f"got shape {shape} for {FEW_ROWS} rows. Do not sum it over rows."
        )
    return (
        f"observed {name!r} has one joint distribution over all rows, so that rows are not "
        "independent given the parameters and cannot be split into shards. Let each row be an "
        "independent unit, e.g. a whole series or group. If this is unintended, check the shapes: "
        "(N, 1) and (N,) broadcast to (N, N)."
    )


def _labels(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the dims of the model's variables, and the coords of those that have some.

    Dims without coords are numbered from zero, as PyMC does it.
    """
    names = [variable.name for variable in (*model.free_RVs, *model.deterministics)]
    dims = {name: tuple(model.named_vars_to_dims.get(name) or ()) for name in names}
    coords = {dim: values for dim, values in model.coords.items() if values is not None}
    return {name: axes for name, axes in dims.items() if axes}, coords


def _derived(
    graph: Graph, examples: list[dict[str, Array]], arrays: Mapping[str, np.ndarray]
) -> Derived | None:
    """Return the deterministics that do not depend on the rows, as a function of params."""
    names = [variable.name for variable in graph.model.deterministics]
    if not names:
        return None
    values = graph.function(graph.model.deterministics)
    run = jax.jit(lambda params, rows: dict(zip(names, values(params, rows), strict=True)))
    constant = same_for_all_rows(run, names, examples, arrays)
    warn_of_omitted([name for name in names if name not in constant])
    if not constant:
        return None
    constant_values = graph.function([graph.model[name] for name in constant])
    template = first_rows(arrays)

    def derived(params: Params) -> Params:
        return dict(zip(constant, constant_values(params, template), strict=True))

    return derived
