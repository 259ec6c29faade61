"""Check that the terms of single rows and groups add up to a model's joint density."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ...data.rows import Rows, native
from ...model import Model
from ...space import Params
from .checks import example_params

NUM_CHECKED_GROUPS = 4
MAX_CHECKED_ROWS = 5  # of a group
RELATIVE_TOLERANCE = 1e-8


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

    def local_values(self, model: Model, seed: int) -> dict[str, Array]:
        """Return local params of these groups at random points."""
        assert model.local is not None
        points = np.random.default_rng(seed).normal(size=(self.num_groups, model.local.space.dim))
        return model.local.constrain(jnp.asarray(0.5 * points))


def checked_groups(arrays: Rows, column: str, table: Mapping[str, np.ndarray]) -> CheckedGroups:
    """Return some rows of the first groups."""
    codes = native(arrays[column])
    chosen = np.unique(codes)[:NUM_CHECKED_GROUPS]
    indices = np.concatenate([np.flatnonzero(codes == code)[:MAX_CHECKED_ROWS] for code in chosen])
    return CheckedGroups(
        column,
        np.searchsorted(chosen, codes[indices]),
        {name: native(array[indices]) for name, array in arrays.items()},
        {name: native(array)[chosen] for name, array in table.items()},
    )


def check_terms(
    model: Model,
    some: CheckedGroups,
    axes: Mapping[str, int],
    log_joint: Callable[[Params, Rows], Any],
) -> None:
    """Compare terms and joint density at random points.

    Args:
        model: the converted model.
        some: rows of some groups.
        axes: the axis of groups of each local parameter in the model's own language.
        log_joint: the joint density of the model in its own language.
    """
    for seed, params in enumerate(example_params(model.space, spread=0.5)):
        local = some.local_values(model, seed)
        at_axis = {name: jnp.moveaxis(value, 0, axes[name]) for name, value in local.items()}
        expected = log_joint({**params, **at_axis}, some.rows_and_table)
        check_joint(model, some, params, local, float(expected))


def check_joint(
    model: Model, some: CheckedGroups, params: Params, local: Params, expected: float
) -> None:
    """Raise an error unless the terms add up to the joint density that is expected."""
    parts = model.local
    assert parts is not None
    rows = some.rows_with_table
    first = np.array([int(np.argmax(some.numbers == n)) for n in range(some.num_groups)])
    of_row = {name: value[some.numbers] for name, value in local.items()}
    likelihood = parts.log_likelihood(params, of_row, rows)
    prior = parts.log_prior(params, local, {name: value[first] for name, value in rows.items()})
    terms = float(model.log_prior(params) + jnp.sum(prior) + jnp.sum(likelihood))
    if not np.isclose(expected, terms, rtol=RELATIVE_TOLERANCE, atol=RELATIVE_TOLERANCE):
        raise ValueError(
            f"groups={some.column!r}: the log density of {some.num_groups} groups is "
            f"{expected:.8g}, but the terms of single rows and groups add up to {terms:.8g}. A "
            "row may use the local parameters of its own group only, and local parameters must be "
            "independent given the global ones. Let the other factor be global, or the larger unit "
            "be the group."
        )
