"""Plots of local parameters: intervals of all groups, sorted."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from .figure import new_figure
from .plots import COMBINED_COLOUR, MAX_LABELS, SHARD_COLOUR
from .summary import element_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

MAX_PANELS = 4
MAX_GROUPS = 1000  # that are drawn; of more, evenly spaced ones in their order


class GroupIntervals(NamedTuple):
    """Medians and 5–95 % intervals of one local quantity by group."""

    label: str
    groups: np.ndarray
    low: Float[np.ndarray, " group"]
    median: Float[np.ndarray, " group"]
    high: Float[np.ndarray, " group"]

    def ordered(self) -> "GroupIntervals":
        """Return groups in the order of their medians."""
        order = np.argsort(self.median, kind="stable")
        return GroupIntervals(self.label, *(array[order] for array in self[1:]))


def group_intervals(tree: "DataTree", names: Iterable[str] | None = None) -> list[GroupIntervals]:
    """Return the intervals of local parameters, from draws or from a summary."""
    column = tree.attrs.get("groups")
    if column is None:
        raise ValueError("the result has no groups: it is not of a model with local parameters.")
    if "local_mean" in tree.children:
        parts = [tree[f"local_{statistic}"] for statistic in ("q05", "q50", "q95")]
        local = {str(name): [part[name] for part in parts] for name in parts[0].data_vars}
    else:
        posterior = tree["posterior"]
        local = {
            str(name): [array.quantile(level, ("chain", "draw")) for level in (0.05, 0.5, 0.95)]
            for name, array in posterior.data_vars.items()
            if column in array.dims
        }
    if not local:
        raise ValueError('the result has no local parameters: it was made with locals="none".')
    chosen = list(local) if names is None else [names] if isinstance(names, str) else list(names)
    if unknown := [name for name in chosen if name not in local]:
        raise ValueError(f"names must be local parameters, {list(local)}; got {unknown[0]!r}.")
    intervals = []
    for name in chosen:
        arrays = [array.transpose(column, ...) for array in local[name]]
        labels = arrays[0][column].to_numpy()
        for index in np.ndindex(arrays[0].shape[1:]):
            values = [array.to_numpy()[(slice(None), *index)] for array in arrays]
            intervals.append(GroupIntervals(element_label(name, index), labels, *values))
    return intervals


def plot_groups(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Plot medians and 5–95 % intervals of local parameters, groups in the order of their medians.

    Args:
        tree: a result of a model with groups.
        names: local parameters; by default the first four elements.
    """
    intervals = group_intervals(tree, names)
    intervals = intervals if names is not None else intervals[:MAX_PANELS]
    count = min(len(intervals[0].groups), MAX_GROUPS)
    height = 1.2 + 0.16 * min(count, MAX_LABELS)
    figure = new_figure(3.4 * len(intervals), height)
    panels = figure.subplots(1, len(intervals), squeeze=False)[0]
    for axes, unordered in zip(panels, intervals, strict=True):
        ordered = unordered.ordered()
        shown = np.unique(np.linspace(0, len(ordered.groups) - 1, count).round().astype(int))
        places = np.arange(len(shown))
        axes.hlines(
            places, ordered.low[shown], ordered.high[shown], color=COMBINED_COLOUR, linewidth=0.8
        )
        axes.plot(ordered.median[shown], places, ".", color=COMBINED_COLOUR, markersize=4)
        axes.axvline(np.mean(ordered.median), color=SHARD_COLOUR, linewidth=0.8)
        axes.set(title=ordered.label, ylim=(-1, len(shown)))
        if len(shown) <= MAX_LABELS:
            axes.set_yticks(places, [str(label) for label in ordered.groups[shown]], fontsize=7)
        else:
            axes.set_yticks([])
            axes.set_ylabel(f"{len(ordered.groups)} groups, in the order of their medians")
    return figure
