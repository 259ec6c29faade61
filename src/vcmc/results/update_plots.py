"""A plot of estimates over the updates of a result."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .figure import new_figure
from .plots import (
    COMBINED_COLOUR,
    MAX_PANELS,
    NUM_COLUMNS,
    OUTLIER_COLOUR,
    SHARD_COLOUR,
    hide_frame,
)
from .quantities import quantities

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

NORMAL_95 = 1.645  # sds between the mean and the 95 % quantile of a normal distribution
COLOURS = {"good": COMBINED_COLOUR, "doubtful": "tab:orange", "poor": OUTLIER_COLOUR}
MAX_NAMES = 12  # of updates, below one panel
MAX_LETTERS = 12  # of a name


def plot_updates(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Plot mean and mean ± 1.645 sd, 5 % to 95 % if normal, after every update.

    Estimates whose verdict was not good are orange (doubtful), red (poor) or grey (unknown).

    Args:
        tree: a result of `update`.
        names: parameters or single elements, e.g. ["beta[3]"]; by default the first 16 elements.
    """
    if "update_mean" not in getattr(tree, "children", {}):
        raise ValueError(
            "this plot needs the group 'update_mean', which results of vcmc.update have; got the "
            f"groups {list(getattr(tree, 'children', {}))}."
        )
    available = [
        quantity for quantity in quantities(tree, names) if quantity.name in tree["update_mean"]
    ]
    if not available:
        raise ValueError(
            f"names must be among the parameters {list(tree['update_mean'].data_vars)}, whose "
            f"estimates are kept; got {names}."
        )
    elements = available[:MAX_PANELS] if names is None else available
    labels = [str(name)[:MAX_LETTERS] for name in tree["updates"]["name"].to_numpy()]
    colours = [
        COLOURS.get(str(verdict), SHARD_COLOUR) for verdict in tree["updates"]["verdict"].to_numpy()
    ]
    columns = min(NUM_COLUMNS, len(elements))
    rows = -(-len(elements) // columns)
    figure = new_figure(3.2 * columns + 0.3, 2.4 * rows + 0.5)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    steps = np.arange(len(labels))
    shown = steps[:: -(-len(labels) // MAX_NAMES)]
    for axes in panels[len(elements) :]:
        axes.set_visible(False)
    for axes, quantity in zip(panels, elements, strict=False):
        mean, sd = (
            tree[group][quantity.name].to_numpy()[(slice(None), *quantity.indices)]
            for group in ("update_mean", "update_sd")
        )
        axes.plot(steps, mean, color=SHARD_COLOUR, linewidth=0.8)
        axes.vlines(steps, mean - NORMAL_95 * sd, mean + NORMAL_95 * sd, color=colours)
        axes.scatter(steps, mean, color=colours, s=14, zorder=3)
        axes.set(title=quantity.label, xlim=(-0.5, len(labels) - 0.5))
        axes.set_xticks(shown, [labels[step] for step in shown], rotation=90, fontsize="small")
        hide_frame(axes)
    if len(elements) < len(available):
        figure.suptitle(
            f"{len(elements)} of {len(available)} elements; choose others with names=[…]",
            fontsize="small",
        )
    return figure
