"""Plots of a result. Each is a matplotlib figure, which notebooks display.

`figure.savefig("densities.png")` writes it to a file. Shards are grey, the combined posterior is
blue, outliers are red.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.labels import element_label
from .comparison import Comparison
from .figure import new_figure
from .posterior_checks import PosteriorCheck
from .quantities import (
    INTERVAL_LEVELS,
    TOLERATED_ERROR,
    Quantity,
    densities,
    density_range,
    outlier_threshold,
    quantiles,
    quantities,
    shard_distances,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from xarray import DataTree

SHARD_COLOUR, COMBINED_COLOUR, OUTLIER_COLOUR = "0.6", "tab:blue", "tab:red"
MAX_PANELS = 16  # without names=: four rows of four panels, as many as a screen shows
MAX_LABELS = 60  # of one axis: more would overlap
NUM_COLUMNS = 4  # of panels
NUM_GRID_POINTS = 200  # of a density


def plot_density(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Plot densities of the shards and of the combined draws, one panel for each element.

    Args:
        tree: a result of `infer`, `combine`, `refine` or `load`.
        names: parameters or single elements, e.g. ["beta[3]"]; by default the first 16 elements.
    """
    elements, figure, panels = _panels(tree, names, 2.3)
    for axes, quantity in zip(panels, elements, strict=True):
        grid = np.linspace(*density_range(quantity), NUM_GRID_POINTS)
        if quantity.shards is not None:
            for density in densities(quantity.shards, grid):
                axes.plot(grid, density, color=SHARD_COLOUR, linewidth=0.6)
        if quantity.combined is not None:
            density = densities(quantity.combined[None], grid)[0]
            axes.plot(grid, density, color=COMBINED_COLOUR, linewidth=2)
            axes.fill_between(grid, density, color=COMBINED_COLOUR, alpha=0.15, linewidth=0)
        axes.set(title=quantity.label, yticks=[], ylim=(0, None), xlim=(grid[0], grid[-1]))
        axes.spines["left"].set_visible(False)
    _legend(figure, tree)
    return figure


def plot_forest(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Plot intervals (5–95 %, thicker 25–75 %) and medians of the shards against the combined ones.

    Shards that disagree with the others are red.

    Args:
        tree: a result of `infer`, `combine`, `refine` or `load`.
        names: parameters or single elements, e.g. ["beta[3]"]; by default the first 16 elements.
    """
    num_shards = tree["subposterior"].sizes["shard"] if "subposterior" in tree.children else 0
    elements, figure, panels = _panels(tree, names, 1.2 + 0.09 * min(max(num_shards, 5), 100))
    widening = float(num_shards) if tree.attrs.get("prior") == "powered" else 1.0
    for axes, quantity in zip(panels, elements, strict=True):
        if quantity.shards is not None:
            distances = np.abs(shard_distances(quantity.shards, widening))
            is_outlier = (distances > outlier_threshold(num_shards)) & (num_shards > 1)
            for shard, (low, lower, median, upper, high) in enumerate(
                quantiles(quantity.shards, INTERVAL_LEVELS, axis=1).T
            ):
                colour = OUTLIER_COLOUR if is_outlier[shard] else SHARD_COLOUR
                axes.plot([low, high], [shard, shard], color=colour, linewidth=0.8)
                axes.plot([lower, upper], [shard, shard], color=colour, linewidth=2.2)
                axes.plot(median, shard, ".", color=colour, markersize=4)
        if quantity.combined is not None:
            low, _, median, _, high = np.quantile(quantity.combined, INTERVAL_LEVELS)
            axes.axvspan(low, high, color=COMBINED_COLOUR, alpha=0.2, linewidth=0)
            axes.axvline(median, color=COMBINED_COLOUR, linewidth=1.5)
        axes.set(title=quantity.label, ylim=(max(num_shards, 1) - 0.5, -0.5))
        axes.locator_params(axis="y", integer=True)
    for axes in panels[::NUM_COLUMNS]:
        axes.set_ylabel("shard")
    _legend(figure, tree)
    return figure


def plot_weights(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Plot the weight of every shard in every real coordinate, as a heat map.

    Args:
        tree: a result of `infer` or `combine` with a combiner that averages.
        names: parameters; by default all.
    """
    _check_group(tree, "weights", "a combiner that averages, e.g. Consensus() or Variational()")
    weights = {str(name): tree["weights"][name].to_numpy() for name in tree["weights"].data_vars}
    if names is None:
        names = list(weights)
    names = [names] if isinstance(names, str) else list(names)
    if unknown := [name for name in names if name not in weights]:
        raise ValueError(f"names must be among {list(weights)}; got {unknown[0]!r}.")
    labels = [
        element_label(name, index)
        for name in names
        for index in np.ndindex(weights[name].shape[1:])
    ]
    table = np.concatenate(
        [weights[name].reshape(len(weights[name]), -1) for name in names], axis=1
    )
    num_shards, num_coordinates = table.shape
    relative = num_shards * table
    figure = new_figure(min(14, 2.5 + 0.28 * num_shards), min(20, 1.6 + 0.26 * num_coordinates))
    axes = figure.subplots()
    limit = max(1e-3, float(np.abs(relative - 1).max()))
    image = axes.imshow(relative.T, aspect="auto", cmap="RdBu", vmin=1 - limit, vmax=1 + limit)
    axes.set(xlabel="shard", title="weight × number of shards")
    axes.locator_params(axis="x", integer=True)
    if num_coordinates <= MAX_LABELS:
        axes.set_yticks(range(num_coordinates), labels)
    figure.colorbar(image, ax=axes)
    return figure


def plot_objective(tree: "DataTree") -> "Figure":
    """Plot the objective by iteration, minus its last value, with two Monte Carlo errors.

    Args:
        tree: a result of `infer` or `combine` with a combiner that optimizes.
    """
    _check_group(tree, "optimization", "a combiner that optimizes, e.g. Variational()")
    objective = tree["optimization"]["objective"].to_numpy()
    error = tree["optimization"]["objective_error"].to_numpy()
    figure = new_figure(6, 3.2)
    axes = figure.subplots()
    steps = np.arange(len(objective))
    axes.fill_between(
        steps,
        *(objective - objective[-1] + sign * 2 * error for sign in (-1, 1)),
        color=COMBINED_COLOUR,
        alpha=0.2,
    )
    axes.plot(steps, objective - objective[-1], ".-", color=COMBINED_COLOUR)
    axes.set(xlabel="iteration", ylabel="objective − last value", title="variational objective")
    axes.locator_params(axis="x", integer=True)
    hide_frame(axes)
    return figure


def plot_errors(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Plot the estimated errors of means and sds, with two standard errors.

    The green band marks errors below 0.1 sd of a mean, and below 10 % of an sd.

    Args:
        tree: a result of `infer`, `combine` or `refine` that was given a model and its rows.
        names: parameters or single elements, e.g. ["beta[3]"]; by default the 60 elements with the
            largest errors of means.
    """
    _check_group(tree, "mean_error", "a model and its rows")
    elements = [
        quantity for quantity in quantities(tree, names) if quantity.name in tree["mean_error"]
    ]
    errors = {
        group: np.array(
            [tree[group][quantity.name].to_numpy()[quantity.indices] for quantity in elements]
        )
        for group in ("mean_error", "mean_error_se", "sd_error", "sd_error_se")
    }
    order = np.argsort(-np.abs(np.nan_to_num(errors["mean_error"])), kind="stable")
    selected = np.sort(order[:MAX_LABELS])
    figure = new_figure(8.5, 1.3 + 0.22 * len(selected))
    left, right = figure.subplots(1, 2, sharey=True)
    heights = np.arange(len(selected))
    for axes, moment, scale, title in (
        (left, "mean", 1, "error of the mean, sds"),
        (right, "sd", 100, "error of the sd, %"),
    ):
        value = scale * errors[f"{moment}_error"][selected]
        standard_error = scale * errors[f"{moment}_error_se"][selected]
        tolerated = TOLERATED_ERROR * scale
        axes.axvspan(-tolerated, tolerated, color="tab:green", alpha=0.1, linewidth=0)
        axes.axvline(0, color="0.7", linewidth=0.8)
        axes.errorbar(
            value,
            heights,
            xerr=2 * standard_error,
            fmt="o",
            color=COMBINED_COLOUR,
            markersize=4,
            linewidth=1,
        )
        axes.set(title=title, ylim=(len(selected) - 0.5, -0.5))
        axes.set_yticks(heights, [elements[number].label for number in selected])
        hide_frame(axes)
    return figure


def plot_timings(tree: "DataTree") -> "Figure":
    """Plot when each chain of each shard was sampled.

    Args:
        tree: a result of `infer` or `load`.
    """
    _check_group(tree, "sample_seconds", "infer, which samples the shards itself")
    begin, end = (tree["sample_seconds"][name].to_numpy() for name in ("begin", "end"))
    num_shards, num_chains = begin.shape
    figure = new_figure(8, 1.2 + 0.12 * min(100, num_shards * num_chains))
    axes = figure.subplots()
    height = 0.8 / num_chains
    for chain in range(num_chains):
        axes.barh(
            np.arange(num_shards) - 0.4 + (chain + 0.5) * height,
            end[:, chain] - begin[:, chain],
            left=begin[:, chain],
            height=height,
            color=COMBINED_COLOUR,
        )
    axes.set(xlabel="seconds", ylabel="shard", ylim=(num_shards - 0.5, -0.5))
    axes.locator_params(axis="y", integer=True)
    hide_frame(axes)
    return figure


def plot_comparison(comparison: Comparison) -> "Figure":
    """Plot errors and seconds of combiners side by side.

    Args:
        comparison: a result of `compare`.
    """
    if not isinstance(comparison, Comparison):
        raise TypeError(
            "comparison must be a Comparison, as vcmc.compare(...) returns it; "
            f"got {type(comparison).__name__}."
        )
    return comparison.plot()


def plot_posterior_check(check: PosteriorCheck) -> "Figure":
    """Plot statistics of replicated data in blue, and those of the data in red.

    Args:
        check: a result of `posterior_check`.
    """
    if not isinstance(check, PosteriorCheck):
        raise TypeError(
            "check must be a PosteriorCheck, as vcmc.posterior_check(...) returns it; "
            f"got {type(check).__name__}."
        )
    return check.plot()


def _panels(
    tree: "DataTree", names: Iterable[str] | None, height: float
) -> tuple[list[Quantity], "Figure", "list[Axes]"]:
    """Return the elements to plot, and a figure with an empty panel for each."""
    available = list(quantities(tree, names))
    elements = available[:MAX_PANELS] if names is None else available
    columns = min(NUM_COLUMNS, len(elements))
    rows = -(-len(elements) // columns)
    figure = new_figure(3.2 * columns + 0.3, height * rows + 0.5)
    panels: list[Any] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[len(elements) :]:
        axes.set_visible(False)
    for axes in panels:
        hide_frame(axes)
    if len(elements) < len(available):
        figure.suptitle(
            f"{len(elements)} of {len(available)} elements; choose others with names=[…]",
            fontsize="small",
        )
    return elements, figure, panels[: len(elements)]


def hide_frame(axes: "Axes") -> None:
    """Hide the upper and the right line around a panel."""
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: "Figure", tree: "DataTree") -> None:
    from matplotlib.lines import Line2D

    styles = [
        ("posterior", "combined", COMBINED_COLOUR, 2.5),
        ("subposterior", "shards", SHARD_COLOUR, 1),
    ]
    handles = [
        Line2D([], [], color=colour, linewidth=width, label=label)
        for group, label, colour, width in styles
        if group in tree.children
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)


def _check_group(tree: "DataTree", group: str, source: str) -> None:
    """Raise an error unless a tree has a group, which results of `source` have."""
    groups = list(getattr(tree, "children", {}))
    if group not in groups:
        raise ValueError(
            f"this plot needs the group {group!r}, which results of {source} have; "
            f"got the groups {groups}."
        )
