"""How the figures are drawn: a colour and a marker for every method, the same in all of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results.figure import new_figure
from .trial import FLOOR, REFINED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES: Mapping[str, Mapping[str, Any]] = {
    "uniform": {"color": "0.6", "marker": "v"},
    "Gaussian": {"color": "tab:orange", "marker": "s"},
    "full Gaussian": {"color": "tab:brown", "marker": "D"},
    "VCMC": {"color": "tab:blue", "marker": "o"},
    "default": {"color": "tab:green", "marker": "*", "markersize": 10},
    REFINED: {"color": "tab:purple", "marker": "x"},
}
LARGEST = 2.0  # relative errors are cut off here, as in the paper
COMPARED = ("VCMC", "default")  # whose differences from the baseline are shown


def _canvas(width: float, height: float) -> "Figure":
    """An empty figure, whose SVG file is the same for the same numbers."""
    figure = new_figure(width, height)
    import matplotlib as mpl

    mpl.rcParams["svg.hashsalt"] = "vcmc"
    return figure


def draw_errors(
    title: str, entries: Sequence[Any], by_index: Sequence[Any], index: str
) -> "Figure":
    """Median errors by number of shards, a column for each class; below, quartiles of differences from the baseline."""
    classes = list(dict.fromkeys(entry.functions for entry in entries))
    columns = len(classes) + bool(by_index)
    if columns > 1:
        figure = _canvas(1.6 + 3.6 * columns, 6.6)
        axes = figure.subplots(2, columns)
    else:  # side by side
        figure = _canvas(9, 4.4)
        axes = figure.subplots(1, 2).reshape(2, 1)
    shards = sorted({entry.num_shards for entry in entries} - {1})
    for above, below, functions in zip(axes[0], axes[1], classes, strict=False):
        inside = [entry for entry in entries if entry.functions == functions]
        for method, style in STYLES.items():
            own = [entry for entry in inside if entry.method == method]
            if own:
                errors = [min(entry.error, LARGEST) for entry in own]
                above.plot([entry.num_shards for entry in own], errors, label=method, **style)
        (floor,) = (entry for entry in inside if entry.method == FLOOR)
        above.axhline(
            floor.error, color="0.3", linestyle="--", linewidth=1, label="floor: two serial chains"
        )
        above.set(title=_plural(functions), yscale="log")
        _shard_axis(above, shards)
        for shift, method in enumerate(COMPARED):
            own = [entry for entry in inside if entry.method == method]
            _bars(below, own, (0.96, 1.04)[shift], STYLES[method]["color"], method)
        below.axhline(0, color="0.3", linewidth=1)
        _shard_axis(below, shards)
        below.set(xlabel="shards")
        if columns == 1:
            above.set(xlabel="shards")
    axes[0, 0].set_ylabel(f"relative error, median (at most {LARGEST:g})")
    axes[1, 0].set_ylabel("error less that of Gaussian averages,\nquartiles")
    if by_index:
        _draw_by_index(axes[0, -1], by_index, f"by {index}, {shards[-1]} shards", index)
        axes[1, -1].set_axis_off()
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure


def _plural(functions: str) -> str:
    return functions if functions.endswith("ship") else f"{functions} moments"


def _bars(axes: Any, entries: Sequence[Any], shift: float, colour: str, label: str) -> None:
    places = [shift * entry.num_shards for entry in entries]
    middle = np.array([entry.difference for entry in entries])
    ends = np.array([[entry.difference_lower, entry.difference_upper] for entry in entries]).T
    axes.errorbar(
        places,
        middle,
        yerr=np.abs(ends - middle),
        fmt="o",
        color=colour,
        capsize=3,
        markersize=4,
        label=label,
    )


def _shard_axis(axes: Any, shards: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_xticks(shards, [str(each) for each in shards])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0.85 * shards[0], 1.18 * shards[-1])


def _draw_by_index(axes: Any, entries: Sequence[Any], title: str, index: str) -> None:
    for method, style in {**STYLES, FLOOR: {"color": "0.3", "linestyle": "--"}}.items():
        own = [entry for entry in entries if entry.method == method]
        if own:
            line = {key: value for key, value in style.items() if key in ("color", "linestyle")}
            axes.plot(
                [entry.number for entry in own],
                [max(entry.error, 1e-6) for entry in own],
                lw=1.2,
                **line,
            )
    axes.set(yscale="log", title=title, xlabel=index)


def draw_timing(
    title: str,
    entries: Sequence[Mapping[str, Any]],
    floors: Mapping[str, float],
    settings: Mapping[str, Any],
) -> "Figure":
    """Errors by seconds of optimisation, a panel for each problem, a colour for each number of shards."""
    figure = _canvas(5.2 * len(floors), 4.4)
    for axes, (problem, floor) in zip(
        figure.subplots(1, len(floors), squeeze=False)[0], floors.items(), strict=True
    ):
        inside = [entry for entry in entries if entry["problem"] == problem]
        shards = sorted({entry["num_shards"] for entry in inside})
        for number, colour in zip(shards, _shades(len(shards)), strict=True):
            for method, line in (("VCMC", "-"), ("default", ":")):
                own = [e for e in inside if e["num_shards"] == number and e["method"] == method]
                axes.plot(
                    [entry["seconds"] for entry in own],
                    [min(entry["error"], LARGEST) for entry in own],
                    line,
                    color=colour,
                    marker=STYLES[method]["marker"],
                    markersize=7 if method == "default" else 4,
                    label=f"{method}, {number} shards",
                )
        axes.axhline(
            floor, color="0.3", linestyle="--", linewidth=1, label="floor: two serial chains"
        )
        serial = settings[problem]["serial"]["seconds_of_a_chain"]
        axes.axvline(
            serial, color="0.3", linestyle="-.", linewidth=1, label="sampling of a serial chain"
        )
        axes.set(xscale="log", yscale="log", title=problem, xlabel="seconds of optimisation")
        _whole_decades(axes)
        axes.spines[["top", "right"]].set_visible(False)
    left = figure.axes[0]
    left.set_ylabel(f"relative error, median (at most {LARGEST:g})")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def draw_speedup(title: str, entries: Sequence[Mapping[str, Any]]) -> "Figure":
    """Errors by speed-up, and below, speed-up by number of shards, a column for each problem."""
    problems = list(dict.fromkeys(entry["problem"] for entry in entries))
    figure = _canvas(4.6 * len(problems) + 1, 7.2)
    axes = figure.subplots(2, len(problems), squeeze=False)
    for column, problem in enumerate(problems):
        above, below = axes[:, column]
        inside = [entry for entry in entries if entry["problem"] == problem]
        shards = sorted({entry["num_shards"] for entry in inside})
        for method, size in (("Gaussian", 4), ("VCMC", 8), ("default", 11)):
            own = [entry for entry in inside if entry["method"] == method]
            style = {**STYLES[method], "markersize": size}
            errors = [min(entry["error"], LARGEST) for entry in own]
            speedups = [entry["speedup"] for entry in own]
            above.plot(speedups, errors, linestyle="", label=method, **style)
            for entry, error in zip(own, errors, strict=True):
                above.annotate(
                    entry["num_shards"],
                    (entry["speedup"], error),
                    textcoords="offset points",
                    xytext=(5, 5),
                    fontsize=7,
                )
            below.plot(shards, speedups, label=method, **style)
            apart = [entry["speedup_rows_apart"] for entry in own]
            if method != "Gaussian":
                below.plot(
                    shards,
                    apart,
                    ":",
                    color=style["color"],
                    label=f"{method}, a machine for each shard",
                )
        below.plot(
            shards, shards, color="0.3", linestyle="--", linewidth=1, label="as many as shards"
        )
        above.set(
            xscale="log", yscale="log", title=problem, xlabel="speed-up (small numbers: shards)"
        )
        _whole_decades(above)
        below.set(yscale="log", xlabel="shards")
        _shard_axis(below, shards)
        for each in (above, below):
            each.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel(f"relative error, median (at most {LARGEST:g})")
    axes[1, 0].set_ylabel("speed-up")
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure


def _whole_decades(axes: Any) -> None:
    """Let a horizontal axis begin and end at powers of ten, and have no numbers but those."""
    from matplotlib.ticker import NullFormatter

    low, high = np.log10(axes.get_xlim())
    axes.set_xlim(10 ** np.floor(low), 10 ** np.ceil(high))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _shades(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["viridis"](place) for place in np.linspace(0, 0.9, count)]
