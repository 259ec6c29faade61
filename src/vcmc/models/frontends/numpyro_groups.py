"""Convert NumPyro models with groups: the terms of their rows and groups.

The terms of one row, and of one group, are those of the model with one row and one group, so that
no term can depend on another group. The sum of all terms must be the joint density of the whole
model, which is checked on some groups.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data.columns import check_group_column
from ...data.grouped import checked_table, encode_groups
from ...data.rows import Rows, as_rows, native, original_columns
from ...groups.quadrature import AbstractQuadrature
from ...model import Model
from ...space import Params, Product, Scalar, Space
from .checks import MORE_ROWS, example_params
from .group_sites import FEW_GROUPS, GroupArguments, GroupRoles, group_roles
from .group_terms import (
    CheckedGroups,
    Parts,
    check_terms,
    checked_groups,
    same_by_group,
    warn_of_omitted_values,
)
from .labels import site_labels
from .numpyro_predictive import GroupedSiteSimulator, entries
from .sites import Seeded, log_prob, renamed_sites, sites_on, trace_at
from .static_indices import with_static_indices


class UserLabels(NamedTuple):
    """The user's names of axes by site, and labels by name of an axis."""

    dims: Mapping[str, Any]
    coords: Mapping[str, Any]


def grouped_model(
    model: Callable[..., Any],
    rows: Any,
    columns: Mapping[str, Any],
    arguments: tuple[str, str | None, Any],
    constants: Mapping[str, Any],
    check_arguments: Callable[..., None],
    space: Mapping[str, Space],
    quadrature: AbstractQuadrature | None,
    labels: UserLabels,
) -> Model:
    """Convert a model with groups.

    Args:
        model: the NumPyro model.
        rows: rows to learn shapes from.
        columns: those columns that the model reads, text as numbers of levels.
        arguments: the column of groups, the argument with their number, and the table of groups.
        constants: arguments that are neither per row nor per group.
        check_arguments: compares the names of rows and constants with the model's arguments.
        space: spaces that say more than the support does.
        quadrature: how local parameters are integrated out.
        labels: names of axes, and labels along them.
    """
    column, count, group_rows = arguments
    table = {} if group_rows is None else checked_table(group_rows, column)
    check_group_column(column, original_columns(rows))
    groups = GroupArguments(column, count, table)
    check_arguments(model, original_columns(rows), {**constants, **groups.constants(1)})
    arrays = as_rows(encode_groups(columns, column, table or None)[0])
    roles = group_roles(model, arrays, groups, constants)
    first_row = {name: native(array[:1])[0] for name, array in arrays.items()}
    first_row |= {name: groups.constants(1)[name][0] for name in groups.names}
    single = Seeded(model, {**constants, **groups.count_argument(1)})
    spaces, local_spaces = _spaces(single, roles, first_row, column, space)
    terms = _Terms(single, roles, column, first_row, Product(local_spaces))
    some = checked_groups(arrays, column, {name: table[name] for name in groups.names})
    whole = _Whole(Seeded(model, {**constants, **groups.count_argument(some.num_groups)}), roles)
    derived = _derived(terms, whole, roles, Product(spaces), some)
    dims, coords = _labels(model, columns, arrays, groups, constants, roles, labels)
    simulator = _simulator(model, arrays, groups, constants, roles)
    converted = Model(
        spaces,
        terms.log_prior,
        terms.log_likelihood,
        derived=derived[0],
        dims=dims,
        coords=coords,
        columns=arrays,
        renamed=terms.renamed(example_params(spaces)[0]),
        local_space=local_spaces,
        log_local_prior=terms.log_local_prior,
        local_derived=derived[1],
        groups=column,
        group_table=table or None,
        quadrature=quadrature,
        simulate=simulator,
        simulate_local=simulator.simulate_local,
    )
    check_terms(converted, some, roles.local_latents, whole.log_joint)
    return converted


def _simulator(
    model: Callable[..., Any],
    arrays: Rows,
    groups: GroupArguments,
    constants: Mapping[str, Any],
    roles: GroupRoles,
) -> GroupedSiteSimulator:
    """Return what draws the sites observed by row."""
    more_rows = sites_on(
        Seeded(model, {**constants, **groups.constants(FEW_GROUPS)}), arrays, MORE_ROWS
    )
    axes = {}
    for name in roles.observed:
        sizes = zip(roles.sites[name].shape, more_rows[name].shape, strict=True)
        axes[name] = next(axis for axis, (few, more) in enumerate(sizes) if few != more)
    shapes = {name: roles.sites[name].shape for name in axes}
    return GroupedSiteSimulator(
        model,
        constants,
        axes,
        shapes,
        entries(arrays),
        groups.column,
        groups.number,
        roles.local_latents,
    )


def _total(trace: Mapping[str, Any], names: Any) -> Scalar:
    return sum((jnp.sum(log_prob(trace[name])) for name in names), jnp.zeros(()))


class _Terms:
    """The terms of single rows and groups.

    Args:
        model: the model with one group.
        roles: the roles of its sites.
        column: the argument with the number of every row's group.
        row: an example of a row.
        local_space: the space of one group's local parameters.
    """

    def __init__(
        self, model: Seeded, roles: GroupRoles, column: str, row: Rows, local_space: Product
    ):
        self.model, self.roles, self.column, self.row = model, roles, column, row
        self.local_space = local_space
        self.example = local_space.constrain(jnp.zeros(local_space.dim))

    def trace(self, params: Params, local: Params, row: Rows) -> dict[str, Any]:
        """Run the model on one row of one group."""
        axes = self.roles.local_latents
        values = {name: jnp.expand_dims(value, axes[name]) for name, value in local.items()}
        one = {name: jnp.asarray(value)[None] for name, value in row.items()}
        one[self.column] = jnp.asarray(np.zeros(1, int))
        return trace_at(self.model, {**params, **values}, one)

    def log_prior(self, params: Params) -> Scalar:
        return _total(self.trace(params, self.example, self.row), self.roles.latents)

    def log_likelihood(self, params: Params, local: Params, rows: Rows) -> Float[Array, " row"]:
        def term(local: Params, row: Rows) -> Scalar:
            return _total(self.trace(params, local, row), self.roles.observed)

        return jax.vmap(with_static_indices(term))(dict(local), dict(rows))

    def log_local_prior(self, params: Params, local: Params, rows: Rows) -> Float[Array, " group"]:
        names = [*self.roles.local_latents, *self.roles.group_observed]

        def term(local: Params, row: Rows) -> Scalar:
            return _total(self.trace(params, local, row), names)

        return jax.vmap(with_static_indices(term))(dict(local), dict(rows))

    def deterministic(self, params: Params, local: Params, row: Rows) -> Params:
        """Return the deterministic sites of one group, the local ones without an axis of groups."""
        trace = self.trace(params, local, row)
        values = {name: jnp.asarray(trace[name]["value"]) for name in self.roles.derived}
        return {
            name: value if (axis := self.roles.derived[name]) is None else jnp.squeeze(value, axis)
            for name, value in values.items()
        }

    def renamed(self, params: Params) -> dict[str, str]:
        """Return the names of sites in the model, by their names in results."""
        return renamed_sites(self.trace(params, self.example, self.row))


class _Whole(NamedTuple):
    """The model of several groups together, in its own language.

    Attributes:
        model: the model with this number of groups.
        roles: the roles of its sites.
    """

    model: Seeded
    roles: GroupRoles

    def log_joint(self, values: Params, rows: Rows) -> Parts:
        """Return the joint density by parts."""
        trace = trace_at(self.model, values, rows)
        local = [*self.roles.local_latents, *self.roles.group_observed]
        parts = (self.roles.latents, local, self.roles.observed)
        return Parts(*(_total(trace, names) for names in parts))

    def deterministic(self, values: Params, rows: Rows) -> Params:
        """Return the deterministic sites."""
        trace = trace_at(self.model, values, rows)
        return {name: jnp.asarray(trace[name]["value"]) for name in self.roles.derived}


def _derived(
    terms: _Terms, whole: _Whole, roles: GroupRoles, space: Product, some: CheckedGroups
) -> tuple[Any, Any]:
    """Return global and local deterministic sites as functions; None where there are none."""
    names = (
        same_by_group(
            (space, terms.local_space),
            some,
            (roles.local_latents, roles.derived),
            terms.deterministic,
            whole.deterministic,
        )
        if roles.derived
        else []
    )
    warn_of_omitted_values([*(name for name in roles.derived if name not in names), *roles.by_row])
    global_names = [name for name in names if roles.derived[name] is None]
    local_names = [name for name in names if roles.derived[name] is not None]

    def derived(params: Params) -> Params:
        values = terms.deterministic(params, terms.example, terms.row)
        return {name: values[name] for name in global_names}

    def local_derived(params: Params, local: Params, rows: Rows) -> Params:
        run = jax.vmap(terms.deterministic, in_axes=(None, 0, 0))
        values = run(params, dict(local), dict(rows))
        return {name: values[name] for name in local_names}

    return derived if global_names else None, local_derived if local_names else None


def _labels(
    model: Callable[..., Any],
    rows: Any,
    arrays: Rows,
    groups: GroupArguments,
    constants: Mapping[str, Any],
    roles: GroupRoles,
    labels: UserLabels,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the dims of sites, and coords; the dim of groups is their column."""
    seeded = Seeded(model, {**constants, **groups.constants(FEW_GROUPS)})
    dims, coords = site_labels(seeded, roles.sites, rows, arrays, labels.dims, labels.coords)
    axes = {**roles.local_latents, **roles.derived}
    for name, axis in axes.items():
        if axis is not None and name not in labels.dims:
            names = [dim for index, dim in enumerate(dims[name]) if index != axis]
            dims[name] = (groups.column, *names)
    return dims, {dim: values for dim, values in coords.items() if dim != groups.column}


def _spaces(
    single: Seeded, roles: GroupRoles, row: Rows, column: str, declared: Mapping[str, Space]
) -> tuple[dict[str, Space], dict[str, Space]]:
    """Return the spaces of global latent sites, and of the local ones of one group."""
    one = {name: np.asarray(value)[None] for name, value in row.items()} | {
        column: np.zeros(1, int)
    }
    traces = [trace_at(single.with_seed(seed), {}, one) for seed in (1, 2)]
    names = [*roles.latents, *roles.local_latents]
    if unknown := set(declared) - set(names):
        raise ValueError(f"space names {sorted(unknown)}, but the latent sites are {names}.")
    spaces: dict[str, Space] = {}
    for name in names:
        first, second = (trace[name]["fn"].support for trace in traces)
        leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
        if not all(np.array_equal(a, b) for a, b in leaves):
            raise ValueError(
                f"the bounds of {name!r} depend on other parameters, which models with groups "
                "cannot have: rescale it, e.g. sample it from Uniform(0, 1) and multiply."
            )
        shape = list(np.shape(traces[0][name]["value"]))
        if name in roles.local_latents:
            del shape[roles.local_latents[name]]
        spaces[name] = declared.get(name) or Space(first, *shape)
    return (
        {name: spaces[name] for name in roles.latents},
        {name: spaces[name] for name in roles.local_latents},
    )
