"""Plots of local parameters: intervals of all groups, sorted, and sds by number of rows."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from .figure import new_figure
from .group_summaries import GroupSummary, group_sizes, group_summaries
from .plots import COMBINED_COLOUR, MAX_LABELS, SHARD_COLOUR, hide_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from xarray import DataTree

MAX_PANELS = 4  # without names=
MAX_LABELLED = 100  # groups whose labels fit on one axis, in small print
MAX_GROUPS = 1000  # that are drawn; of more, evenly spaced ones in their order
MAX_LABEL_LENGTH = 24  # characters
LABEL_HEIGHT = 0.13  # inches
UNLABELLED_HEIGHT = 5.0
FEW_DECADES = 1000  # largest by smallest number of rows, up to which 2 and 5 are labelled, too
NO_ROWS_AT = 0.5  # groups without rows, on a logarithmic axis


def plot_groups(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Plot means and 5–95 % intervals of local parameters, groups in the order of their means.

    The grey line is the average of all groups. Up to 100 groups are labelled. Of more than 1000,
    evenly spaced ones are drawn, the first and the last included.

    Args:
        tree: a result of a model with groups.
        names: local parameters or single elements, e.g. ["slope[1]"]; by default the first four.
    """
    figure, panels, summaries = _panels(tree, names)
    for axes, summary in zip(panels, summaries, strict=True):
        num_groups = len(summary.groups)
        count = min(num_groups, MAX_GROUPS)
        ranks = np.unique(np.linspace(0, num_groups - 1, count).round().astype(int))
        shown = summary.at(summary.order()[ranks])
        width, alpha = (0.8, 0.7) if count <= MAX_LABELLED else (0.5, 0.3)
        axes.axvline(np.mean(summary.mean), color=SHARD_COLOUR, linewidth=0.8, zorder=0)
        axes.hlines(
            ranks, shown.low, shown.high, color=COMBINED_COLOUR, linewidth=width, alpha=alpha
        )
        size = 4 if count <= MAX_LABELLED else 2
        axes.plot(shown.mean, ranks, ".", color=COMBINED_COLOUR, markersize=size)
        margin = max(0.7, 0.01 * num_groups)
        axes.set(title=summary.label, ylim=(-margin, num_groups - 1 + margin))
        if num_groups <= MAX_LABELLED:
            font_size = 7 if num_groups <= MAX_LABELS else 6
            axes.set_yticks(ranks, [_short(group) for group in shown.groups], fontsize=font_size)
            axes.tick_params(axis="y", length=0)
        else:
            axes.set_yticks([])
            drawn = f"{count} of {num_groups}" if count < num_groups else f"{num_groups}"
            axes.set_ylabel(f"{drawn} groups, in the order of their means")
    return figure


def plot_shrinkage(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Plot the posterior sd of every group's local parameters against its number of rows.

    The grey line is the sd of the values of all groups together. A group near the line or above has
    learnt little from its own rows: its value is drawn towards those of the other groups. Far below
    it, the rows of the group determine its value.

    Args:
        tree: a result of a model with groups.
        names: local parameters or single elements, e.g. ["slope[1]"]; by default the first four.
    """
    sizes = group_sizes(tree)
    figure, panels, summaries = _panels(tree, names, 3.2)
    if sizes is None:
        raise ValueError(
            "the result does not have the groups' numbers of rows: it was made by an older "
            "version. Try infer again."
        )
    for axes, summary in zip(panels, summaries, strict=True):
        axes.axhline(summary.total_sd, color=SHARD_COLOUR, linewidth=0.8, zorder=0)
        size, alpha = (6, 0.7) if len(sizes) <= MAX_GROUPS else (4, 0.15)
        position = np.maximum(sizes, NO_ROWS_AT)
        style: dict[str, Any] = {"markersize": size, "alpha": alpha, "markeredgewidth": 0}
        axes.plot(position, summary.sd, ".", color=COMBINED_COLOUR, **style)
        axes.set(title=summary.label, xlabel="rows of the group", ylim=(0, None))
        _logarithmic_axis(axes, sizes)
    panels[0].set_ylabel("posterior sd")
    return figure


def _panels(
    tree: "DataTree", names: Iterable[str] | None, height: float | None = None
) -> tuple["Figure", "list[Axes]", list[GroupSummary]]:
    """Return a figure with an empty panel for each local quantity, and the quantities.

    By default the figure is as high as the labels of all groups need.
    """
    available = group_summaries(tree, names)
    summaries = available if names is not None else available[:MAX_PANELS]
    num_groups = len(summaries[0].groups)
    if height is None:
        is_labelled = num_groups <= MAX_LABELLED
        height = 1.0 + LABEL_HEIGHT * num_groups if is_labelled else UNLABELLED_HEIGHT
    figure = new_figure(3.4 * len(summaries) + 0.6, height)
    panels: list[Any] = list(figure.subplots(1, len(summaries), squeeze=False)[0])
    for axes in panels:
        hide_frame(axes)
    if len(summaries) < len(available):
        figure.suptitle(
            f"{len(summaries)} of {len(available)} elements; choose others with names=[…]",
            fontsize="small",
        )
    return figure, panels, summaries


def _short(label: Any) -> str:
    text = str(label)
    return text if len(text) <= MAX_LABEL_LENGTH else text[: MAX_LABEL_LENGTH - 1] + "…"


def _logarithmic_axis(axes: "Axes", sizes: Int[np.ndarray, " group"]) -> None:
    """Make the axis of numbers of rows logarithmic, with round numbers and, if needed, zero."""
    low, high = max(NO_ROWS_AT, float(sizes.min())), max(1.0, float(sizes.max()))
    axes.set_xscale("log")
    axes.set_xlim(low / 1.3, high * 1.3)
    factors = (1, 2, 5) if high / low < FEW_DECADES else (1,)
    ticks = [factor * 10**power for power in range(12) for factor in factors]
    ticks = [tick for tick in ticks if low / 1.3 <= tick <= high * 1.3]
    labels = [f"{tick:,}".replace(",", "\N{NARROW NO-BREAK SPACE}") for tick in ticks]
    if sizes.min() == 0:
        ticks, labels = [NO_ROWS_AT, *ticks], ["0", *labels]
    axes.set_xticks(ticks, labels)
    axes.set_xticks([], minor=True)
