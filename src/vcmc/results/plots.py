"""Pictures of a result, each a matplotlib figure: `figure.savefig("densities.png")` writes it, and notebooks show it.

Shards are grey, what was combined is blue, and what is far off is red.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .comparison import Comparison
from .figure import new_figure
from .summary import (
    INTERVAL,
    Quantity,
    densities,
    distances,
    far_limit,
    label_of,
    quantiles,
    quantities,
    shown_range,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from xarray import DataTree

SHARD, COMBINED, FAR = "0.6", "tab:blue", "tab:red"
MAX_PANELS, MAX_BARS = 16, 60
COLUMNS = 4


def plot_density(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Densities of the shards and of the combined draws, a panel for each number.

    Args:
        tree: what `infer`, `combine`, `refine` or `load` returned.
        names: parameters, or single numbers such as "beta[3]"; by default the first 16 numbers.
    """
    shown, figure, panels = _panels(tree, names, 2.3)
    for axes, quantity in zip(panels, shown, strict=True):
        grid = np.linspace(*shown_range(quantity), 200)
        if quantity.shards is not None:
            for density in densities(quantity.shards, grid):
                axes.plot(grid, density, color=SHARD, linewidth=0.6)
        if quantity.combined is not None:
            density = densities(quantity.combined[None], grid)[0]
            axes.plot(grid, density, color=COMBINED, linewidth=2)
            axes.fill_between(grid, density, color=COMBINED, alpha=0.15, linewidth=0)
        axes.set(title=quantity.label, yticks=[], ylim=(0, None), xlim=(grid[0], grid[-1]))
        axes.spines["left"].set_visible(False)
    _legend(figure, tree)
    return figure


def plot_forest(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """Every shard's interval (5–95 %, thicker 25–75 %) and median against the combined one; shards far from the others are red.

    Args:
        tree: what `infer`, `combine`, `refine` or `load` returned.
        names: parameters, or single numbers such as "beta[3]"; by default the first 16 numbers.
    """
    num_shards = tree["subposterior"].sizes["shard"] if "subposterior" in tree.children else 0
    shown, figure, panels = _panels(tree, names, 1.2 + 0.09 * min(max(num_shards, 5), 100))
    widening = float(num_shards) if tree.attrs.get("prior") == "powered" else 1.0
    for axes, quantity in zip(panels, shown, strict=True):
        if quantity.shards is not None:
            far = np.abs(distances(quantity.shards, widening)) > far_limit(num_shards)
            for place, (low, left, middle, right, high) in enumerate(
                quantiles(quantity.shards, INTERVAL, axis=1).T
            ):
                colour = FAR if num_shards > 1 and far[place] else SHARD
                axes.plot([low, high], [place, place], color=colour, linewidth=0.8)
                axes.plot([left, right], [place, place], color=colour, linewidth=2.2)
                axes.plot(middle, place, ".", color=colour, markersize=4)
        if quantity.combined is not None:
            low, _, middle, _, high = np.quantile(quantity.combined, INTERVAL)
            axes.axvspan(low, high, color=COMBINED, alpha=0.2, linewidth=0)
            axes.axvline(middle, color=COMBINED, linewidth=1.5)
        axes.set(title=quantity.label, ylim=(max(num_shards, 1) - 0.5, -0.5))
        axes.locator_params(axis="y", integer=True)
    for axes in panels[::COLUMNS]:
        axes.set_ylabel("shard")
    _legend(figure, tree)
    return figure


def plot_weights(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """The weight of every shard, for every real coordinate, as a picture of cells.

    Args:
        tree: what `infer` or `combine` returned, with a combiner that takes averages.
        names: parameters; by default all.
    """
    _check_group(tree, "weights", "a combiner that averages, such as Consensus() or Variational(),")
    weights = {str(name): tree["weights"][name].to_numpy() for name in tree["weights"].data_vars}
    chosen = list(weights) if names is None else [names] if isinstance(names, str) else list(names)
    if unknown := [name for name in chosen if name not in weights]:
        raise ValueError(f"names must be among {list(weights)}; got {unknown[0]!r}.")
    labels = [
        label_of(name, index) for name in chosen for index in np.ndindex(weights[name].shape[1:])
    ]
    table = np.concatenate(
        [weights[name].reshape(len(weights[name]), -1) for name in chosen], axis=1
    )
    num_shards, num_coordinates = table.shape
    relative = num_shards * table
    figure = new_figure(min(14, 2.5 + 0.28 * num_shards), min(20, 1.6 + 0.26 * num_coordinates))
    axes = figure.subplots()
    reach = max(1e-3, float(np.abs(relative - 1).max()))
    picture = axes.imshow(relative.T, aspect="auto", cmap="RdBu", vmin=1 - reach, vmax=1 + reach)
    axes.set(xlabel="shard", title="weights, times the number of shards")
    axes.locator_params(axis="x", integer=True)
    if num_coordinates <= MAX_BARS:
        axes.set_yticks(range(num_coordinates), labels)
    figure.colorbar(picture, ax=axes)
    return figure


def plot_objective(tree: "DataTree") -> "Figure":
    """The objective by iteration, as what was still missing, with two Monte Carlo errors.

    Args:
        tree: what `infer` or `combine` returned, with a combiner that optimises.
    """
    _check_group(tree, "optimization", "a combiner that optimises, such as Variational(),")
    objective = tree["optimization"]["objective"].to_numpy()
    error = tree["optimization"]["objective_error"].to_numpy()
    figure = new_figure(6, 3.2)
    axes = figure.subplots()
    steps = np.arange(len(objective))
    axes.fill_between(
        steps,
        *(objective - objective[-1] + sign * 2 * error for sign in (-1, 1)),
        color=COMBINED,
        alpha=0.2,
    )
    axes.plot(steps, objective - objective[-1], ".-", color=COMBINED)
    axes.set(
        xlabel="iteration", ylabel="objective, less its last value", title="variational objective"
    )
    axes.locator_params(axis="x", integer=True)
    _clear(axes)
    return figure


def plot_errors(tree: "DataTree", names: Iterable[str] | None = None) -> "Figure":
    """What the result says of itself: estimated errors of means and sds, with two standard errors.

    Args:
        tree: what `infer`, `combine` or `refine` returned, given a model and rows.
        names: parameters, or single numbers such as "beta[3]"; by default the 60 numbers with the largest errors of means.
    """
    _check_group(tree, "mean_error", "a model and its rows")
    shown = [
        quantity for quantity in quantities(tree, names) if quantity.name in tree["mean_error"]
    ]
    table = {
        group: np.array([tree[group][each.name].to_numpy()[each.place] for each in shown])
        for group in ("mean_error", "mean_error_se", "sd_error", "sd_error_se")
    }
    largest = np.argsort(-np.abs(np.nan_to_num(table["mean_error"])), kind="stable")[:MAX_BARS]
    kept = np.sort(largest)
    figure = new_figure(8.5, 1.3 + 0.22 * len(kept))
    left, right = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(kept))
    for axes, what, scale, title in (
        (left, "mean", 1, "mean off by, in sds"),
        (right, "sd", 100, "sd off by, in %"),
    ):
        value, error = scale * table[f"{what}_error"][kept], scale * table[f"{what}_error_se"][kept]
        axes.axvspan(-0.1 * scale, 0.1 * scale, color="tab:green", alpha=0.1, linewidth=0)
        axes.axvline(0, color="0.7", linewidth=0.8)
        axes.errorbar(
            value, places, xerr=2 * error, fmt="o", color=COMBINED, markersize=4, linewidth=1
        )
        axes.set(title=title, ylim=(len(kept) - 0.5, -0.5))
        axes.set_yticks(places, [shown[place].label for place in kept])
        _clear(axes)
    return figure


def plot_timings(tree: "DataTree") -> "Figure":
    """When each chain of each shard was sampled.

    Args:
        tree: what `infer` or `load` returned.
    """
    _check_group(tree, "sample_seconds", "shards that were sampled by infer")
    begin, end = (tree["sample_seconds"][name].to_numpy() for name in ("begin", "end"))
    num_shards, num_chains = begin.shape
    figure = new_figure(8, 1.2 + 0.12 * min(100, num_shards * num_chains))
    axes = figure.subplots()
    height = 0.8 / num_chains
    for chain in range(num_chains):
        places = np.arange(num_shards) - 0.4 + (chain + 0.5) * height
        axes.barh(
            places,
            end[:, chain] - begin[:, chain],
            left=begin[:, chain],
            height=height,
            color=COMBINED,
        )
    axes.set(xlabel="seconds", ylabel="shard", ylim=(num_shards - 0.5, -0.5))
    axes.locator_params(axis="y", integer=True)
    _clear(axes)
    return figure


def plot_comparison(comparison: Comparison) -> "Figure":
    """Errors and seconds of combiners side by side.

    Args:
        comparison: what `compare` returned.
    """
    if not isinstance(comparison, Comparison):
        raise TypeError(
            f"comparison must be what vcmc.compare returned; got {type(comparison).__name__}."
        )
    return comparison.plot()


def _panels(
    tree: "DataTree", names: Iterable[str] | None, height: float
) -> tuple[list[Quantity], "Figure", "list[Axes]"]:
    """What is shown, and an empty panel for each of it."""
    every = list(quantities(tree, names))
    shown = every[:MAX_PANELS] if names is None else every
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure = new_figure(3.2 * columns + 0.3, height * rows + 0.5)
    panels: list[Any] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    for axes in panels:
        _clear(axes)
    if len(shown) < len(every):
        figure.suptitle(
            f"{len(shown)} of {len(every)} numbers; say which with names=[…]", fontsize="small"
        )
    return shown, figure, panels[: len(shown)]


def _clear(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: "Figure", tree: "DataTree") -> None:
    from matplotlib.lines import Line2D

    kinds = [("posterior", "combined", COMBINED, 2.5), ("subposterior", "single shards", SHARD, 1)]
    handles = [
        Line2D([], [], color=colour, linewidth=width, label=label)
        for group, label, colour, width in kinds
        if group in tree.children
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)


def _check_group(tree: "DataTree", group: str, made_by: str) -> None:
    if group not in getattr(tree, "children", {}):
        raise ValueError(
            f"this picture needs the group {group!r}, which results made with {made_by} have; got the groups "
            f"{list(getattr(tree, 'children', {}))}."
        )
