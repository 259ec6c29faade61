"""Local parameters by group: means, sds and quantiles, from draws or from a summary.

The plots of groups and their section of the report page are both made from these.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..data.labels import element_label
from .quantities import local_names
from .tree import NUM_ROWS, SIZES_GROUP

if TYPE_CHECKING:
    from xarray import DataTree

LEVELS = {"q05": 0.05, "q50": 0.5, "q95": 0.95}
STATISTICS = ("mean", "sd", *LEVELS)  # in the order of the fields below

MAX_DESCRIBED = 4  # local quantities, in text
MAX_LABEL_LENGTH = 40  # characters of a label, in text


class GroupSummary(NamedTuple):
    """Mean, sd, median and 5–95 % interval of one local quantity by group."""

    name: str
    label: str
    groups: np.ndarray
    mean: Float[np.ndarray, " group"]
    sd: Float[np.ndarray, " group"]
    low: Float[np.ndarray, " group"]
    median: Float[np.ndarray, " group"]
    high: Float[np.ndarray, " group"]

    def order(self) -> Int[np.ndarray, " group"]:
        """Return the numbers of the groups in the order of their means."""
        return np.argsort(self.mean, kind="stable")

    def at(self, numbers: Int[np.ndarray, " selected"]) -> "GroupSummary":
        """Return some of the groups."""
        return GroupSummary(self.name, self.label, *(array[numbers] for array in self[2:]))

    @property
    def total_sd(self) -> float:
        """The sd of the values of all groups together: between their means, and around them."""
        return float(np.sqrt(np.var(self.mean) + np.mean(self.sd**2)))


def group_summaries(tree: "DataTree", names: Iterable[str] | None = None) -> list[GroupSummary]:
    """Return every local quantity of a result, by group.

    Args:
        tree: a result of a model with groups.
        names: local parameters, or labels of single elements; by default all.
    """
    column = tree.attrs.get("groups")
    if column is None:
        raise ValueError("the result has no groups: it is not of a model with local parameters.")
    available = local_names(tree)
    if not available:
        raise ValueError('the result has no local parameters: it was made with locals="none".')
    summaries = [summary for name in available for summary in _elements(tree, name, column)]
    if names is None:
        return summaries
    chosen = {names} if isinstance(names, str) else set(names)
    known = {name for summary in summaries for name in (summary.name, summary.label)}
    if unknown := sorted(chosen - known):
        raise ValueError(
            f"names must be local parameters, {available}, or single elements, e.g. "
            f"{summaries[0].label!r}; got {unknown[0]!r}."
        )
    return [summary for summary in summaries if chosen & {summary.name, summary.label}]


def describe_groups(tree: "DataTree") -> str:
    """Return a line on the groups of a result, and one on the extremes of each local quantity.

    It is empty if the result has no local parameters.
    """
    if not local_names(tree):
        return ""
    summaries, sizes = group_summaries(tree), group_sizes(tree)
    rows = "" if sizes is None else f", of {sizes.min()} to {sizes.max()} rows"
    lines = [f"{len(summaries[0].groups)} groups ({tree.attrs['groups']}){rows}."]
    for summary in summaries[:MAX_DESCRIBED]:
        order = summary.order()
        low, high = (_described(summary, int(order[end])) for end in (0, -1))
        lines.append(f"{summary.label}: means from {low} to {high}.")
    if len(summaries) > MAX_DESCRIBED:
        lines.append(f"… and {len(summaries) - MAX_DESCRIBED} more local parameters.")
    return "\n".join(lines)


def _described(summary: GroupSummary, number: int) -> str:
    mean, sd = summary.mean[number], summary.sd[number]
    # two digits of the sd
    num_decimals = max(0, 1 - int(np.floor(np.log10(sd)))) if 0 < sd < np.inf else 3
    label = str(summary.groups[number])[:MAX_LABEL_LENGTH]
    return f"{mean:.{num_decimals}f} ± {sd:.{num_decimals}f} ({label})"


def _elements(tree: "DataTree", name: str, column: str) -> Iterator[GroupSummary]:
    labels, statistics = _statistics(tree, name, column)
    for index in np.ndindex(statistics[0].shape[1:]):
        values = [statistic[(slice(None), *index)] for statistic in statistics]
        yield GroupSummary(name, element_label(name, index), labels, *values)


def group_sizes(tree: "DataTree") -> Int[np.ndarray, " group"] | None:
    """Return the number of rows of every group, in the order of the labels; None if not stored."""
    if SIZES_GROUP not in tree.children:
        return None
    return tree[SIZES_GROUP][NUM_ROWS].to_numpy()


def _statistics(tree: "DataTree", name: str, column: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the labels of groups, and statistics of a parameter with groups as first axis."""
    if "local_mean" in tree.children:
        first = tree["local_mean"][name].transpose(column, ...)
        stored = [
            tree[f"local_{statistic}"][name].transpose(column, ...).to_numpy()
            for statistic in STATISTICS
        ]
        return first[column].to_numpy(), stored
    array = tree["posterior"][name].transpose("chain", "draw", column, ...)
    draws = array.to_numpy().reshape(-1, *array.shape[2:])
    levels = np.quantile(draws, list(LEVELS.values()), axis=0)
    return array[column].to_numpy(), [draws.mean(axis=0), draws.std(axis=0), *levels]
