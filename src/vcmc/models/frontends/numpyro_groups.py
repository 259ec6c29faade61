"""Convert NumPyro models with groups: which latent sites are local, and their terms.

Sites whose shapes follow the number of groups are local. The terms of one row, and of one group,
are those of the model with one row and one group, so that no term can depend on another group. The
sum of all terms must be the joint density of the whole model, which is checked on some groups.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data.grouped import checked_table, encode_groups
from ...data.rows import Rows, as_rows, native
from ...groups.quadrature import AbstractQuadrature
from ...model import Model
from ...space import Params, Product, Scalar, Space
from .checks import FEW_ROWS, MORE_ROWS, example_params, row_axis
from .group_terms import check_terms, checked_groups
from .sites import Seeded, Site, log_prob, renamed_sites, sites_on, trace_at
from .static_indices import with_static_indices

# Numbers of groups on which models are compared: different, and unlikely as other sizes.
FEW_GROUPS, MORE_GROUPS = 11, 13


class GroupArguments(NamedTuple):
    """How a model takes its groups.

    Attributes:
        column: the argument with the number of every row's group.
        number: the argument with the number of groups, if it has one.
        table: arguments with one entry per group, and the labels under `column`.
    """

    column: str
    number: str | None
    table: dict[str, np.ndarray]

    def constants(self, num_groups: int) -> dict[str, Any]:
        """Return the arguments for a number of groups, with entries of the table as examples."""
        arrays = {
            name: np.resize(native(array), (num_groups, *array.shape[1:]))
            for name, array in self.table.items()
            if name != self.column
        }
        return arrays | ({self.number: num_groups} if self.number else {})

    @property
    def names(self) -> list[str]:
        """Names of the arguments with one entry per group."""
        return [name for name in self.table if name != self.column]


class GroupRoles(NamedTuple):
    """The roles of sites in a model with groups.

    Attributes:
        latents: global latent sites.
        local_latents: local latent sites, and the axis of groups of each.
        observed: sites observed by row.
        group_observed: sites observed by group.
        derived: global deterministic sites.
        local_derived: local deterministic sites, and the axis of groups of each.
    """

    latents: list[str]
    local_latents: dict[str, int]
    observed: list[str]
    group_observed: list[str]
    derived: list[str]
    local_derived: dict[str, int]


def grouped_model(
    model: Callable[..., Any],
    rows: Any,
    arguments: tuple[str, str | None, Any],
    constants: Mapping[str, Any],
    check_arguments: Callable[..., None],
    space: Mapping[str, Space],
    quadrature: AbstractQuadrature | None,
) -> Model:
    """Convert a model with groups.

    Args:
        model: the NumPyro model.
        rows: rows to learn shapes from.
        arguments: the column of groups, the argument with their number, and the table of groups.
        constants: arguments that are neither per row nor per group.
        check_arguments: compares the names of rows and constants with the model's arguments.
        space: spaces that say more than the support does.
        quadrature: how local parameters are integrated out.
    """
    column, count, group_rows = arguments
    table = {} if group_rows is None else checked_table(group_rows, column)
    encoded, _ = encode_groups(rows, column, table or None)
    arrays = as_rows(encoded)
    groups = GroupArguments(column, count, table)
    check_arguments(model, arrays, {**constants, **groups.constants(1)})
    roles = _roles(model, arrays, groups, constants)
    single = Seeded(model, {**constants, **({count: 1} if count else {})})

    def trace_one(params: Params, local: Params, row: Rows) -> dict[str, Any]:
        """Run the model on one row of one group."""
        values = {
            name: jnp.expand_dims(value, roles.local_latents[name]) for name, value in local.items()
        }
        one = {name: jnp.asarray(value)[None] for name, value in row.items()}
        one[column] = jnp.asarray(np.zeros(1, int))
        return trace_at(single, {**params, **values}, one)

    def total(trace: Mapping[str, Any], names: Any) -> Scalar:
        return sum((jnp.sum(log_prob(trace[name])) for name in names), jnp.zeros(()))

    def row_term(params: Params, local: Params, row: Rows) -> Scalar:
        return total(trace_one(params, local, row), roles.observed)

    def group_term(params: Params, local: Params, first_row: Rows) -> Scalar:
        trace = trace_one(params, local, first_row)
        return total(trace, [*roles.local_latents, *roles.group_observed])

    first_row = {name: native(array[:1])[0] for name, array in arrays.items()}
    first_row |= {name: value[0] for name, value in groups.constants(1).items() if name != count}
    spaces, local_spaces = _spaces(single, roles, first_row, column, space)
    local_product = Product(local_spaces)
    local_example = local_product.constrain(jnp.zeros(local_product.dim))

    def log_prior(params: Params) -> Scalar:
        return total(trace_one(params, local_example, first_row), roles.latents)

    def log_likelihood(params: Params, local: Params, rows: Rows) -> Float[Array, " row"]:
        return jax.vmap(with_static_indices(row_term), in_axes=(None, 0, 0))(
            dict(params), dict(local), dict(rows)
        )

    def log_local_prior(params: Params, local: Params, rows: Rows) -> Float[Array, " group"]:
        return jax.vmap(with_static_indices(group_term), in_axes=(None, 0, 0))(
            dict(params), dict(local), dict(rows)
        )

    def derived(params: Params) -> Params:
        trace = trace_one(params, local_example, first_row)
        return {name: jnp.asarray(trace[name]["value"]) for name in roles.derived}

    def one_derived(params: Params, local: Params, row: Rows) -> Params:
        trace = trace_one(params, local, row)
        return {
            name: jnp.squeeze(jnp.asarray(trace[name]["value"]), axis)
            for name, axis in roles.local_derived.items()
        }

    def local_derived(params: Params, local: Params, rows: Rows) -> Params:
        return jax.vmap(one_derived, in_axes=(None, 0, 0))(params, dict(local), dict(rows))

    converted = Model(
        spaces,
        log_prior,
        log_likelihood,
        derived=derived if roles.derived else None,
        renamed=renamed_sites(trace_one(example_params(spaces)[0], local_example, first_row)),
        local_space=local_spaces,
        log_local_prior=log_local_prior,
        local_derived=local_derived if roles.local_derived else None,
        groups=column,
        group_table=table or None,
        quadrature=quadrature,
    )
    some = checked_groups(arrays, column, {name: table[name] for name in groups.names})
    counted = {count: some.num_groups} if count else {}
    whole = Seeded(model, {**constants, **counted})

    def log_joint(values: Params, rows: Rows) -> Scalar:
        trace = trace_at(whole, values, rows)
        return total(trace, [name for name, site in trace.items() if site["type"] == "sample"])

    check_terms(converted, some, roles.local_latents, log_joint)
    return converted


def _roles(
    model: Callable[..., Any], arrays: Rows, groups: GroupArguments, constants: Mapping[str, Any]
) -> GroupRoles:
    """Find out which sites are local, by their shapes for two numbers of groups and of rows."""

    def sites(num_groups: int, num_rows: int) -> dict[str, Site]:
        seeded = Seeded(model, {**constants, **groups.constants(num_groups)})
        return sites_on(seeded, arrays, num_rows)

    few, more_groups = sites(FEW_GROUPS, FEW_ROWS), sites(MORE_GROUPS, FEW_ROWS)
    more_rows = sites(FEW_GROUPS, MORE_ROWS)
    roles = GroupRoles([], {}, [], [], [], {})
    for name, site in few.items():
        axis = _group_axis(site.shape, more_groups[name].shape)
        by_group = site.shape != more_groups[name].shape
        by_row = site.shape != more_rows[name].shape
        if by_group and (by_row or axis is None):
            raise ValueError(
                f"site {name!r} has the shape {site.shape} for {FEW_GROUPS} groups and {FEW_ROWS} "
                f"rows: it must have one axis of groups, or one axis of rows."
            )
        if site.kind == "latent":
            if by_row:
                raise ValueError(
                    f"latent site {name!r} has one value per row; local parameters have one value "
                    f"per group of {groups.column!r}. Integrate it out of the likelihood."
                )
            if site.is_discrete:
                raise ValueError(
                    f"latent site {name!r} is discrete, and cannot be integrated out by nodes: "
                    "sum it out, e.g. with dist.MixtureSameFamily."
                )
            if axis is None:
                roles.latents.append(name)
            elif axis >= site.num_batch_axes:
                raise ValueError(
                    f"latent site {name!r} has one joint distribution over all groups, but local "
                    "parameters must be independent given the global ones: use numpyro.plate(...) "
                    "for groups, and no to_event over them."
                )
            else:
                roles.local_latents[name] = axis
        elif site.kind == "observed":
            (roles.group_observed if by_group else roles.observed).append(name)
            _check_observed(site, more_rows[name], by_group)
        elif site.kind == "deterministic":
            if axis is not None:
                roles.local_derived[name] = axis
            elif not by_row:
                roles.derived.append(name)
        else:
            raise ValueError(
                f"site {name!r} is a {site.kind} site, which models with groups cannot have."
            )
    if not roles.local_latents:
        raise ValueError(
            f"groups={groups.column!r}: no latent site has one value per group. Local sites are "
            "in a plate whose size is the number of groups: name the model's argument with this "
            f'number, e.g. num_groups="num_{groups.column}".'
        )
    if not roles.latents:
        raise ValueError("a model with groups must have a global latent site, e.g. their mean.")
    if not roles.observed:
        raise ValueError(
            "the model must observe its rows with numpyro.sample(..., obs=...); got the sites "
            f"{list(few)}, none of which is observed."
        )
    return roles


def _check_observed(site: Site, more_rows: Site, by_group: bool) -> None:
    shapes = zip(site.log_prob_shapes, more_rows.log_prob_shapes, strict=True)
    if by_group or any(row_axis(*pair) is not None for pair in shapes):
        return
    raise ValueError(
        f"observed site {site.name!r} must have one value per row or per group; got the shape "
        f"{site.shape} for {FEW_ROWS} rows."
    )


def _group_axis(few: tuple[int, ...], more: tuple[int, ...]) -> int | None:
    if len(few) != len(more):
        return None
    axes = [axis for axis, pair in enumerate(zip(few, more, strict=True)) if pair[0] != pair[1]]
    if len(axes) == 1 and (few[axes[0]], more[axes[0]]) == (FEW_GROUPS, MORE_GROUPS):
        return axes[0]
    return None


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
