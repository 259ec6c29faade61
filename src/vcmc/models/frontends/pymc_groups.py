"""Convert PyMC models with groups: which free random variables are local, and their terms.

A free random variable with the dim of the groups is local. The terms of one row, and of one group,
are those of the graph with one row and one group; their sum must be the joint density of the whole
model, which is checked on some groups.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data.grouped import checked_table, encode_groups
from ...data.rows import Rows, as_rows, native
from ...groups.quadrature import AbstractQuadrature
from ...model import Model
from ...space import Params, Scalar, Space
from .graph import Graph, GraphFunction
from .group_terms import check_terms, checked_groups
from .supports import spaces_of


class LocalVariables(NamedTuple):
    """Free random variables, global and local.

    Attributes:
        latents: names of global ones.
        local_latents: the axis of groups of each local one.
    """

    latents: list[str]
    local_latents: dict[str, int]


def grouped_model(
    model: Any,
    rows: Any,
    groups: str,
    group_rows: Any,
    space: Mapping[str, Space],
    quadrature: AbstractQuadrature | None,
) -> Model:
    """Convert a model with groups.

    Args:
        model: the PyMC model.
        rows: rows to learn shapes from; the column of groups may hold labels of any kind.
        groups: the column of groups, a `pm.Data`, and the dim of local variables.
        group_rows: a table with one row per group, by the names of its `pm.Data`.
        space: spaces that say more than the support does.
        quadrature: how local parameters are integrated out.
    """
    table = {} if group_rows is None else checked_table(group_rows, groups)
    encoded, _ = encode_groups(rows, groups, table or None)
    arrays = as_rows(encoded)
    names = [name for name in table if name != groups]
    _check_data(model, [*arrays, *names])
    variables = _variables(model, groups)
    graph = Graph(model, [*arrays, *names], variables.local_latents)
    first_row = {name: native(array[:1])[0] for name, array in arrays.items()}
    first_row |= {name: native(table[name])[0] for name in names}
    template = {name: np.asarray(value)[None] for name, value in first_row.items()}
    template[groups] = np.zeros(1, int)

    latents = [rv for rv in model.free_RVs if rv.name in variables.latents]
    local_latents = [rv for rv in model.free_RVs if rv.name in variables.local_latents]
    prior = _sum_of(graph, latents)
    local_prior = _sum_of(graph, local_latents)
    likelihood = _sum_of(graph, model.observed_RVs)
    spaces, local_spaces = _spaces(graph, variables, template, space)

    def run(function: GraphFunction, params: Params, local: Params, row: Rows) -> list[Array]:
        """Run a graph on one row of one group."""
        values = {
            name: jnp.expand_dims(value, variables.local_latents[name])
            for name, value in local.items()
        }
        one = {name: jnp.asarray(value)[None] for name, value in row.items()}
        one[groups] = jnp.zeros(1, int)
        return function({**params, **values}, one)

    def log_prior(params: Params) -> Scalar:
        return jnp.sum(jnp.stack(prior(params, template)))

    def log_likelihood(params: Params, local: Params, rows: Rows) -> Float[Array, " row"]:
        def term(local: Params, row: Rows) -> Scalar:
            return jnp.sum(jnp.stack(run(likelihood, params, local, row)))

        return jax.vmap(term)(dict(local), dict(rows))

    def log_local_prior(params: Params, local: Params, rows: Rows) -> Float[Array, " group"]:
        def term(local: Params, row: Rows) -> Scalar:
            return jnp.sum(jnp.stack(run(local_prior, params, local, row)))

        return jax.vmap(term)(dict(local), dict(rows))

    converted = Model(
        spaces,
        log_prior,
        log_likelihood,
        local_space=local_spaces,
        log_local_prior=log_local_prior,
        groups=groups,
        group_table=table or None,
        quadrature=quadrature,
    )
    some = checked_groups(arrays, groups, {name: table[name] for name in names})
    joint = _sum_of(graph, [*model.free_RVs, *model.observed_RVs])

    def log_joint(values: Params, rows: Rows) -> Scalar:
        return jnp.sum(jnp.stack(joint(values, rows)))

    check_terms(converted, some, variables.local_latents, log_joint)
    return converted


def _sum_of(graph: Graph, variables: Any) -> GraphFunction:
    return graph.function([graph.log_density(variable).sum() for variable in variables])


def _check_data(model: Any, names: list[str]) -> None:
    data = {variable.name for variable in model.data_vars}
    if missing := [name for name in names if name not in data]:
        raise ValueError(
            f"rows and group_rows must be named as the model's pm.Data, {sorted(data)}; got "
            f"{missing}."
        )


def _variables(model: Any, groups: str) -> LocalVariables:
    if model.potentials:
        raise ValueError("models with groups cannot have pm.Potential: write distributions.")
    dims = model.named_vars_to_dims
    if groups not in model.coords and groups not in {d for axes in dims.values() for d in axes}:
        raise ValueError(
            f"groups={groups!r} must be the dim of local variables, e.g. "
            f'pm.Normal("alpha", mu, tau, dims={groups!r}); the dims are {sorted(model.coords)}.'
        )
    found = LocalVariables([], {})
    for variable in model.free_RVs:
        axes = list(dims.get(variable.name) or ())
        if groups in axes:
            found.local_latents[variable.name] = axes.index(groups)
        else:
            found.latents.append(variable.name)
    if not found.local_latents:
        raise ValueError(
            f"groups={groups!r}: no free random variable has this dim, so that none is local."
        )
    if not found.latents:
        raise ValueError("a model with groups must have a global variable, e.g. their mean.")
    return found


def _spaces(
    graph: Graph, variables: LocalVariables, rows: Rows, declared: Mapping[str, Space]
) -> tuple[dict[str, Space], dict[str, Space]]:
    """Return the spaces of global variables, and of the local ones of one group."""
    free = graph.model.free_RVs
    shapes = {}
    for rv, shape in zip(free, graph.shapes(free, rows), strict=True):
        kept = list(shape)
        if rv.name in variables.local_latents:
            del kept[variables.local_latents[rv.name]]
        shapes[rv.name] = tuple(kept)
    spaces = spaces_of(graph, shapes, rows, declared)
    return (
        {name: spaces[name] for name in variables.latents},
        {name: spaces[name] for name in variables.local_latents},
    )
