"""Check that the terms of single rows and groups add up to a model's joint density.

Terms are compared at random points, part by part, on some rows of some groups: a part that differs
says which assumption the model breaks. Deterministic values are compared likewise.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...data.rows import Rows, native
from ...errors import warn_user
from ...model import Model
from ...space import Params, Product
from .checks import example_params

NUM_CHECKED_GROUPS = 30
MAX_CHECKED_ROWS = 10  # of a group
RELATIVE_TOLERANCE = 1e-8

REASONS = {
    "the prior of global parameters": (
        "It may depend neither on local parameters nor on rows: compute what it needs beforehand."
    ),
    "the prior of local parameters": (
        "Local parameters must be independent given the global ones, and may depend on their own "
        "group only: on entries of group_rows=, not on rows or on other groups."
    ),
    "the likelihood": (
        "A row may use the local parameters of its own group only. If a row touches two groups, "
        "let one factor be global, or the larger unit be the group."
    ),
}


class Parts(NamedTuple):
    """Log densities of a model, in the order of `REASONS`."""

    prior: Any
    local_prior: Any
    likelihood: Any


class CheckedGroups(NamedTuple):
    """Some rows of some groups.

    Attributes:
        column: the column of groups.
        numbers: the number of each row's group among these groups.
        rows: the rows.
        table: arrays with one entry per group.
    """

    column: str
    numbers: Int[np.ndarray, " row"]
    rows: dict[str, np.ndarray]
    table: dict[str, np.ndarray]

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return int(self.numbers.max()) + 1

    @property
    def rows_and_table(self) -> dict[str, np.ndarray]:
        """The arguments of the whole model: rows, with numbers of groups, and the table."""
        return {**self.rows, self.column: self.numbers, **self.table}

    @property
    def rows_with_table(self) -> dict[str, np.ndarray]:
        """Rows with the entries of their groups in the table."""
        return {**self.rows, **{name: array[self.numbers] for name, array in self.table.items()}}

    @property
    def first_rows(self) -> dict[str, np.ndarray]:
        """The first row of every group, with its entries in the table."""
        first = np.unique(self.numbers, return_index=True)[1]
        return {name: array[first] for name, array in self.rows_with_table.items()}

    def local_values(self, space: Product, seed: int) -> dict[str, Array]:
        """Return local params of these groups at random points."""
        points = np.random.default_rng(seed).normal(size=(self.num_groups, space.dim))
        return jax.vmap(space.constrain)(jnp.asarray(0.5 * points))


def checked_groups(arrays: Rows, column: str, table: Mapping[str, np.ndarray]) -> CheckedGroups:
    """Return some rows of some groups, both at random."""
    codes = native(arrays[column])
    generator = np.random.default_rng(0)
    present = np.unique(codes)
    count = min(len(present), NUM_CHECKED_GROUPS)
    chosen = np.sort(generator.choice(present, count, replace=False))
    indices = []
    for code in chosen:
        members = np.flatnonzero(codes == code)
        size = min(len(members), MAX_CHECKED_ROWS)
        indices.append(np.sort(generator.choice(members, size, replace=False)))
    together = np.concatenate(indices)
    return CheckedGroups(
        column,
        np.searchsorted(chosen, codes[together]),
        {name: native(array[together]) for name, array in arrays.items()},
        {name: native(array)[chosen] for name, array in table.items()},
    )


def check_terms(
    model: Model,
    some: CheckedGroups,
    axes: Mapping[str, int],
    log_joint: Callable[[Params, Rows], Parts],
) -> None:
    """Compare terms and joint density at random points.

    Args:
        model: the converted model.
        some: rows of some groups.
        axes: the axis of groups of each local parameter in the model's own language.
        log_joint: the joint density of the model in its own language, by parts.
    """
    assert model.local is not None
    for seed, params in enumerate(example_params(model.space, spread=0.5)):
        local = some.local_values(model.local.space, seed)
        expected = log_joint({**params, **_at_axes(local, axes)}, some.rows_and_table)
        check_joint(model, some, params, local, expected)


def _at_axes(local: Params, axes: Mapping[str, int]) -> dict[str, Array]:
    return {name: jnp.moveaxis(value, 0, axes[name]) for name, value in local.items()}


def check_joint(
    model: Model, some: CheckedGroups, params: Params, local: Params, expected: Parts
) -> None:
    """Raise an error unless the terms add up to the parts of the joint density."""
    parts = model.local
    assert parts is not None
    of_row = {name: value[some.numbers] for name, value in local.items()}
    terms = Parts(
        model.log_prior(params),
        jnp.sum(parts.log_prior(params, local, some.first_rows)),
        jnp.sum(parts.log_likelihood(params, of_row, some.rows_with_table)),
    )
    for whole, total, (part, reason) in zip(expected, terms, REASONS.items(), strict=True):
        whole, total = float(whole), float(total)
        if not np.isclose(whole, total, rtol=RELATIVE_TOLERANCE, atol=RELATIVE_TOLERANCE):
            raise ValueError(
                f"groups={some.column!r}: {part} has the log density {whole:.8g} for "
                f"{some.num_groups} groups together, but {total:.8g} for one group at a time. "
                f"{reason}"
            )


def same_by_group(
    spaces: tuple[Product, Product],
    some: CheckedGroups,
    axes: tuple[Mapping[str, int], Mapping[str, int | None]],
    single: Callable[[Params, Params, Rows], Params],
    whole: Callable[[Params, Rows], Params],
) -> list[str]:
    """Return the names of those deterministic values that are the same for one group at a time.

    Args:
        spaces: of global and of local parameters.
        some: rows of some groups.
        axes: the axis of groups of each local parameter, and of each deterministic value, if any.
        single: deterministic values, given params, local params and a row of one group.
        whole: deterministic values, given all params, with their axes of groups, and rows.
    """
    local_axes, value_axes = axes
    names = list(value_axes)
    for seed, params in enumerate(example_params(spaces[0], spread=0.5)):
        local = some.local_values(spaces[1], seed)
        together = whole({**params, **_at_axes(local, local_axes)}, some.rows_and_table)
        alone = jax.vmap(single, in_axes=(None, 0, 0))(params, local, some.first_rows)
        names = [name for name in names if _agree(alone[name], together[name], value_axes[name])]
    return names


def _agree(alone: Array, together: Array, axis: int | None) -> bool:
    expected: Float[Any, " *shape"] = together if axis is None else jnp.moveaxis(together, axis, 0)
    if jnp.shape(expected) != jnp.shape(alone)[axis is None :]:
        return False
    return np.allclose(alone, expected, rtol=RELATIVE_TOLERANCE, atol=RELATIVE_TOLERANCE)


def warn_of_omitted_values(names: list[str]) -> None:
    """Warn that deterministic values are omitted, and say how to compute them."""
    if names:
        warn_user(
            f"deterministic {', '.join(map(repr, names))} depend on rows or on several groups, of "
            "which no shard has all, and are omitted from the result. Compute them from its draws, "
            "as in docs/back.md.",
            UserWarning,
        )
