"""Convert PyMC models with groups: the terms of their rows and groups.

The terms of one row, and of one group,
are those of the graph with one row and one group; their sum must be the joint density of the whole
model, which is checked on some groups.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...data.grouped import checked_table, encode_groups
from ...data.rows import Rows, as_rows, native
from ...groups.quadrature import AbstractQuadrature
from ...model import Model
from ...space import Params, Product, Scalar, Space
from .graph import Graph, GraphFunction
from .group_terms import (
    CheckedGroups,
    Parts,
    check_terms,
    checked_groups,
    same_by_group,
    warn_of_omitted_values,
)
from .group_variables import (
    GroupVariables,
    deterministic_axes,
    group_spaces,
    group_variables,
)
from .pymc_checks import check_rows, check_variables
from .pymc_predictive import GraphSimulator
from .static_indices import with_static_indices

Labels = tuple[dict[str, Any], dict[str, Any]]


def grouped_model(
    model: Any,
    rows: Any,
    groups: str,
    group_rows: Any,
    space: Mapping[str, Space],
    quadrature: AbstractQuadrature | None,
    labels: Labels,
) -> Model:
    """Convert a model with groups.

    Args:
        model: the PyMC model.
        rows: rows to learn shapes from; the column of groups may hold labels of any kind.
        groups: the column of groups, a `pm.Data`, and the dim of local variables.
        group_rows: a table with one row per group, by the names of its `pm.Data`.
        space: spaces that say more than the support does.
        quadrature: how local parameters are integrated out.
        labels: the dims and coords of the model.
    """
    table = {} if group_rows is None else checked_table(group_rows, groups)
    encoded, _ = encode_groups(rows, groups, table or None)
    arrays = as_rows(encoded)
    names = [name for name in table if name != groups]
    check_rows(model, {**arrays, **{name: table[name] for name in names}})
    check_variables(model, {*arrays, *names}, ())
    variables = group_variables(model, groups)
    graph = Graph(model, [*arrays, *names], variables.local_latents)
    row = {name: native(array[:1])[0] for name, array in arrays.items()}
    row |= {name: native(table[name])[0] for name in names}
    spaces, local_spaces = group_spaces(graph, variables, _alone(row, groups), space)
    some = checked_groups(arrays, groups, {name: table[name] for name in names})
    products = Product(spaces), Product(local_spaces)
    axes = deterministic_axes(graph, variables, products, some)
    terms = _Terms(graph, variables, axes, groups, row)
    derived = _derived(terms, products, some)
    dims, coords = _labels(labels, groups, {**variables.local_latents, **axes})
    converted = Model(
        spaces,
        terms.log_prior,
        terms.log_likelihood,
        derived=derived[0],
        dims=dims,
        coords=coords,
        columns=arrays,
        local_space=local_spaces,
        log_local_prior=terms.log_local_prior,
        local_derived=derived[1],
        groups=groups,
        group_table=table or None,
        quadrature=quadrature,
        simulate=GraphSimulator(
            model,
            [*arrays, *names],
            groups,
            variables.local_latents,
            variables.group_observed,
        ),
    )
    check_terms(converted, some, variables.local_latents, terms.log_joint)
    return converted


def _alone(row: Rows, groups: str) -> dict[str, Any]:
    """Return one row of one group as arrays of length one."""
    one = {name: jnp.asarray(value)[None] for name, value in row.items()}
    return {**one, groups: jnp.zeros(1, int)}


def _labels(labels: Labels, groups: str, local_axes: Mapping[str, int | None]) -> Labels:
    """Return dims, with that of groups first, and coords without those of groups."""
    dims, coords = labels
    ordered = {
        name: axes
        if local_axes.get(name) is None
        else (groups, *(dim for axis, dim in enumerate(axes) if axis != local_axes[name]))
        for name, axes in dims.items()
    }
    return ordered, {dim: values for dim, values in coords.items() if dim != groups}


class _Terms:
    """The terms of single rows and groups, and the joint density of several groups.

    Args:
        graph: the graph of the model.
        variables: its random variables.
        derived: the deterministic values to compute, and the axis of groups of the local ones.
        groups: the column of groups.
        row: an example of a row.
    """

    def __init__(
        self,
        graph: Graph,
        variables: GroupVariables,
        derived: Mapping[str, int | None],
        groups: str,
        row: Rows,
    ):
        self.axes, self.derived, self.groups, self.row = (
            variables.local_latents,
            dict(derived),
            groups,
            row,
        )
        self.template = _alone(row, groups)
        self.values = graph.function([graph.model[name] for name in derived]) if derived else None
        self.parts = Parts(*(_sum_of(graph, names) for names in variables.parts))

    def log_prior(self, params: Params) -> Scalar:
        return _total(self.parts.prior(params, self.template))

    def log_likelihood(self, params: Params, local: Params, rows: Rows) -> Float[Array, " row"]:
        return self._by_one(self.parts.likelihood, params, local, rows)

    def log_local_prior(self, params: Params, local: Params, rows: Rows) -> Float[Array, " group"]:
        return self._by_one(self.parts.local_prior, params, local, rows)

    def log_joint(self, values: Params, rows: Rows) -> Parts:
        """Return the joint density of several groups by parts."""
        return Parts(*(_total(part(values, rows)) for part in self.parts))

    def _by_one(
        self, function: GraphFunction, params: Params, local: Params, rows: Rows
    ) -> Float[Array, " term"]:
        def term(local: Params, row: Rows) -> Scalar:
            return _total(self.run(function, params, local, row))

        return jax.vmap(with_static_indices(term))(dict(local), dict(rows))

    def run(self, function: GraphFunction, params: Params, local: Params, row: Rows) -> list[Array]:
        """Run a graph on one row of one group."""
        values = {name: jnp.expand_dims(value, self.axes[name]) for name, value in local.items()}
        return function({**params, **values}, _alone(row, self.groups))

    def deterministic(self, params: Params, local: Params, row: Rows) -> Params:
        """Return deterministic values of one group, the local ones without an axis of groups."""
        assert self.values is not None
        values = zip(self.derived.items(), self.run(self.values, params, local, row), strict=True)
        return {
            name: value if axis is None else jnp.squeeze(value, axis)
            for (name, axis), value in values
        }

    def all_deterministic(self, values: Params, rows: Rows) -> Params:
        """Return deterministic values of several groups together."""
        assert self.values is not None
        return dict(zip(self.derived, self.values(values, rows), strict=True))


def _total(terms: list[Array]) -> Scalar:
    return jnp.sum(jnp.stack(terms))


def _sum_of(graph: Graph, names: list[str]) -> GraphFunction:
    return graph.function([graph.log_density(graph.model[name]).sum() for name in names])


def _derived(
    terms: _Terms, spaces: tuple[Product, Product], some: CheckedGroups
) -> tuple[Any, Any]:
    """Return global and local deterministic values as functions; None where there are none."""
    if not terms.derived:
        return None, None
    axes = terms.axes, terms.derived
    names = same_by_group(spaces, some, axes, terms.deterministic, terms.all_deterministic)
    warn_of_omitted_values([name for name in terms.derived if name not in names])
    global_names = [name for name in names if terms.derived[name] is None]
    local_names = [name for name in names if terms.derived[name] is not None]
    example = spaces[1].constrain(jnp.zeros(spaces[1].dim))

    def derived(params: Params) -> Params:
        values = terms.deterministic(params, example, terms.row)
        return {name: values[name] for name in global_names}

    def local_derived(params: Params, local: Params, rows: Rows) -> Params:
        run = jax.vmap(terms.deterministic, in_axes=(None, 0, 0))
        values = run(params, dict(local), dict(rows))
        return {name: values[name] for name in local_names}

    return derived if global_names else None, local_derived if local_names else None
