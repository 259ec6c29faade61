"""The sites of a NumPyro model with groups: which are local, by their shapes.

Shapes are compared for two numbers of groups and two numbers of rows.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...data.rows import Rows, native
from .checks import FEW_ROWS, MORE_ROWS, row_axis
from .sites import Seeded, Site, sites_on

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
            name: np.resize(native(self.table[name]), (num_groups, *self.table[name].shape[1:]))
            for name in self.names
        }
        return arrays | self.count_argument(num_groups)

    def count_argument(self, num_groups: int) -> dict[str, int]:
        """Return the argument with the number of groups."""
        return {self.number: num_groups} if self.number else {}

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
        derived: global and local deterministic sites, and the axis of groups of the local ones.
        by_row: deterministic sites with one value per row.
        sites: all sites, for a few groups and rows.
    """

    latents: list[str]
    local_latents: dict[str, int]
    observed: list[str]
    group_observed: list[str]
    derived: dict[str, int | None]
    by_row: list[str]
    sites: dict[str, Site]


def group_roles(
    model: Callable[..., Any], arrays: Rows, groups: GroupArguments, constants: Mapping[str, Any]
) -> GroupRoles:
    """Find out which sites are local, by their shapes for two numbers of groups and of rows."""

    def sites(num_groups: int, num_rows: int) -> dict[str, Site]:
        seeded = Seeded(model, {**constants, **groups.constants(num_groups)})
        return sites_on(seeded, arrays, num_rows)

    few, more_groups = sites(FEW_GROUPS, FEW_ROWS), sites(MORE_GROUPS, FEW_ROWS)
    more_rows = sites(FEW_GROUPS, MORE_ROWS)
    roles = GroupRoles([], {}, [], [], {}, [], few)
    for name, site in few.items():
        axis = group_axis(site.shape, more_groups[name].shape)
        by_group = site.shape != more_groups[name].shape
        by_row = site.shape != more_rows[name].shape
        if by_group and (by_row or axis is None):
            raise ValueError(
                f"site {name!r} has the shape {site.shape} for {FEW_GROUPS} groups and {FEW_ROWS} "
                f"rows: it must have one axis of groups, or one axis of rows."
            )
        if site.kind == "latent":
            _check_latent(site, groups.column, axis, by_row)
            if axis is None:
                roles.latents.append(name)
            else:
                roles.local_latents[name] = axis
        elif site.kind == "observed":
            _check_observed(site, more_rows[name], by_group)
            (roles.group_observed if by_group else roles.observed).append(name)
        elif site.kind == "deterministic":
            if by_row:
                roles.by_row.append(name)
            else:
                roles.derived[name] = axis
        else:
            raise ValueError(
                f"site {name!r} ({site.kind}) cannot be in a model with groups: write its term as "
                "a distribution, e.g. numpyro.sample(..., obs=...) for rows."
            )
    _check_roles(roles, groups.column)
    return roles


def _check_roles(roles: GroupRoles, column: str) -> None:
    if not roles.local_latents:
        raise ValueError(
            f"groups={column!r}: no latent site has one value per group. Local sites are in a "
            "plate whose size is the number of groups, which is no number in the model but an "
            f'argument of it: name this argument, e.g. num_groups="num_{column}".'
        )
    if not roles.latents:
        raise ValueError("a model with groups must have a global latent site, e.g. their mean.")
    if not roles.observed:
        raise ValueError(
            "the model must observe its rows with numpyro.sample(..., obs=...); got the sites "
            f"{list(roles.sites)}, none of which is observed."
        )


def _check_latent(site: Site, column: str, axis: int | None, by_row: bool) -> None:
    if by_row:
        raise ValueError(
            f"latent site {site.name!r} has one value per row; local parameters have one value "
            f"per group of {column!r}. Integrate it out of the likelihood."
        )
    if site.is_discrete:
        raise ValueError(
            f"latent site {site.name!r} is discrete, and cannot be integrated out by nodes: sum it "
            "out, e.g. with dist.MixtureSameFamily."
        )
    if axis is not None and axis >= site.num_batch_axes:
        raise ValueError(
            f"latent site {site.name!r} has one joint distribution over all groups, but local "
            "parameters must be independent given the global ones: use numpyro.plate(...) for "
            "groups, and no to_event over them."
        )


def _check_observed(site: Site, more_rows: Site, by_group: bool) -> None:
    shapes = zip(site.log_prob_shapes, more_rows.log_prob_shapes, strict=True)
    if by_group or any(row_axis(*pair) is not None for pair in shapes):
        return
    if site.shape == more_rows.shape:
        raise ValueError(
            f"observed site {site.name!r} must have one value per row or per group; got the shape "
            f"{site.shape} for any number of rows."
        )
    raise ValueError(
        f"observed site {site.name!r} has one joint distribution over all rows, so that rows are "
        "not independent given the parameters: let each row have a distribution of its own, given "
        "the local parameters of its group."
    )


def group_axis(few: tuple[int, ...], more: tuple[int, ...]) -> int | None:
    """Return the axis of groups, given the shapes for few and for more groups; None without one.

    >>> group_axis((2, 11), (2, 13))
    1
    """
    if len(few) != len(more):
        return None
    axes = [axis for axis, pair in enumerate(zip(few, more, strict=True)) if pair[0] != pair[1]]
    if len(axes) == 1 and (few[axes[0]], more[axes[0]]) == (FEW_GROUPS, MORE_GROUPS):
        return axes[0]
    return None
