"""The variables of a PyMC model with groups: which are local, and their spaces.

Free and observed random variables are local by their dims, deterministic values by their shapes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from ...data.rows import Rows
from ...space import Product, Space
from .checks import FEW_ROWS, MORE_ROWS
from .graph import Graph
from .group_sites import FEW_GROUPS, MORE_GROUPS, group_axis
from .group_terms import CheckedGroups, Parts, warn_of_omitted_values
from .supports import spaces_of


class GroupVariables(NamedTuple):
    """Random variables, global and local.

    Attributes:
        latents: names of global free ones.
        local_latents: the axis of groups of each local free one.
        observed: names of those observed by row.
        group_observed: names of those observed by group.
    """

    latents: list[str]
    local_latents: dict[str, int]
    observed: list[str]
    group_observed: list[str]

    @property
    def parts(self) -> Parts:
        """Names of variables by part of the joint density."""
        local = [*self.local_latents, *self.group_observed]
        return Parts(self.latents, local, self.observed)


def group_variables(model: Any, groups: str) -> GroupVariables:
    """Find out which variables are local, by their dims."""
    if model.potentials:
        raise ValueError("models with groups cannot have pm.Potential: write distributions.")
    dims = model.named_vars_to_dims
    if groups not in model.coords and groups not in {d for axes in dims.values() for d in axes}:
        raise ValueError(
            f"groups={groups!r} must be the dim of local variables, e.g. "
            f'pm.Normal("alpha", mu, tau, dims={groups!r}); the dims are {sorted(model.coords)}.'
        )
    found = GroupVariables([], {}, [], [])
    for variable in model.free_RVs:
        axes = list(dims.get(variable.name) or ())
        if groups not in axes:
            found.latents.append(variable.name)
            continue
        axis = axes.index(groups)
        if axis >= variable.ndim - variable.owner.op.ndim_supp:
            raise ValueError(
                f"free random variable {variable.name!r} has one joint distribution over all "
                "groups, but local variables must be independent given the global ones."
            )
        found.local_latents[variable.name] = axis
    for variable in model.observed_RVs:
        by_group = groups in (dims.get(variable.name) or ())
        (found.group_observed if by_group else found.observed).append(variable.name)
    if not found.local_latents:
        raise ValueError(
            f"groups={groups!r}: no free random variable has this dim, so that none is local: "
            f'give it to them, e.g. pm.Normal("alpha", mu, tau, dims={groups!r}).'
        )
    if not found.latents:
        raise ValueError("a model with groups must have a global variable, e.g. their mean.")
    return found


def group_spaces(
    graph: Graph, variables: GroupVariables, rows: Rows, declared: Mapping[str, Space]
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


def deterministic_axes(
    graph: Graph, variables: GroupVariables, spaces: tuple[Product, Product], some: CheckedGroups
) -> dict[str, int | None]:
    """Return the axis of groups of deterministic values, if any; omit those that rows have."""
    names = [variable.name for variable in graph.model.deterministics]
    if not names:
        return {}
    values = graph.function(graph.model.deterministics)

    def shapes(num_groups: int, num_rows: int) -> list[tuple[int, ...]]:
        params = {name: part.shape for name, part in spaces[0].items()}
        for name, axis in variables.local_latents.items():
            shape = spaces[1][name].shape
            params[name] = (*shape[:axis], num_groups, *shape[axis:])
        rows = {name: (num_rows, *array.shape[1:]) for name, array in some.rows.items()}
        rows |= {name: (num_groups, *array.shape[1:]) for name, array in some.table.items()}
        structs = [
            {name: jax.ShapeDtypeStruct(shape, float) for name, shape in part.items()}
            for part in (params, rows)
        ]
        return [value.shape for value in jax.eval_shape(values, *structs)]

    few, more_groups = shapes(FEW_GROUPS, FEW_ROWS), shapes(MORE_GROUPS, FEW_ROWS)
    more_rows = shapes(FEW_GROUPS, MORE_ROWS)
    axes = {
        name: group_axis(few[index], more_groups[index])
        for index, name in enumerate(names)
        if few[index] == more_rows[index]
    }
    warn_of_omitted_values([name for name in names if name not in axes])
    return axes
