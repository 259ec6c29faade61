"""The figures, with one colour and marker per method."""

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
MAX_ERROR = 2.0  # larger relative errors are drawn here, as in the paper
COMPARED = ("VCMC", "default")  # methods whose differences from the baseline are drawn


def _canvas(width: float, height: float) -> "Figure":
    """Return an empty figure with a reproducible SVG file."""
    figure = new_figure(width, height)
    import matplotlib as mpl

    mpl.rcParams["svg.hashsalt"] = "vcmc"
    return figure


def draw_errors(
    title: str, entries: Sequence[Any], by_index: Sequence[Any], index: str
) -> "Figure":
    """Draw median errors by number of shards, and below quartiles of differences from the baseline.

    Each class of test functions has a column; errors by index, if there are any, are in the last.
    """
    classes = list(dict.fromkeys(entry.functions for entry in entries))
    num_columns = len(classes) + bool(by_index)
    if num_columns > 1:
        figure = _canvas(1.6 + 3.6 * num_columns, 6.6)
        axes = figure.subplots(2, num_columns)
    else:  # side by side
        figure = _canvas(9, 4.4)
        axes = figure.subplots(1, 2).reshape(2, 1)
    shards = sorted({entry.num_shards for entry in entries} - {1})
    for upper, lower, functions in zip(axes[0], axes[1], classes, strict=False):
        of_class = [entry for entry in entries if entry.functions == functions]
        _draw_medians(upper, of_class)
        upper.set(title=_plural(functions), yscale="log")
        _shard_axis(upper, shards)
        _draw_differences(lower, of_class, shards)
        if num_columns == 1:
            upper.set(xlabel="shards")
    axes[0, 0].set_ylabel(f"relative error, median (at most {MAX_ERROR:g})")
    axes[1, 0].set_ylabel("error less that of Gaussian averages,\nquartiles")
    if by_index:
        _draw_by_index(axes[0, -1], by_index, f"by {index}, {shards[-1]} shards", index)
        axes[1, -1].set_axis_off()
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_medians(axes: Any, entries: Sequence[Any]) -> None:
    for method, style in STYLES.items():
        of_method = [entry for entry in entries if entry.method == method]
        if of_method:
            errors = [min(entry.error, MAX_ERROR) for entry in of_method]
            axes.plot([entry.num_shards for entry in of_method], errors, label=method, **style)
    (floor,) = (entry for entry in entries if entry.method == FLOOR)
    axes.axhline(
        floor.error, color="0.3", linestyle="--", linewidth=1, label="floor: two serial chains"
    )


def _draw_differences(axes: Any, entries: Sequence[Any], shards: Sequence[int]) -> None:
    for method, shift in zip(COMPARED, (0.96, 1.04), strict=True):
        of_method = [entry for entry in entries if entry.method == method]
        medians = np.array([entry.difference for entry in of_method])
        quartiles = np.array(
            [[entry.difference_lower, entry.difference_upper] for entry in of_method]
        )
        axes.errorbar(
            [shift * entry.num_shards for entry in of_method],
            medians,
            yerr=np.abs(quartiles.T - medians),
            fmt="o",
            color=STYLES[method]["color"],
            capsize=3,
            markersize=4,
            label=method,
        )
    axes.axhline(0, color="0.3", linewidth=1)
    _shard_axis(axes, shards)
    axes.set(xlabel="shards")


def _plural(functions: str) -> str:
    return functions if functions.endswith("ship") else f"{functions} moments"


def _shard_axis(axes: Any, shards: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_xticks(shards, [str(number) for number in shards])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0.85 * shards[0], 1.18 * shards[-1])


def _draw_by_index(axes: Any, entries: Sequence[Any], title: str, index: str) -> None:
    for method, style in {**STYLES, FLOOR: {"color": "0.3", "linestyle": "--"}}.items():
        of_method = [entry for entry in entries if entry.method == method]
        if of_method:
            line = {key: value for key, value in style.items() if key in ("color", "linestyle")}
            axes.plot(
                [entry.number for entry in of_method],
                [max(entry.error, 1e-6) for entry in of_method],
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
    """Draw errors by seconds of optimization, one panel per problem, one colour per K."""
    figure = _canvas(5.2 * len(floors), 4.4)
    panels = figure.subplots(1, len(floors), squeeze=False)[0]
    for axes, (problem, floor) in zip(panels, floors.items(), strict=True):
        _draw_seconds(axes, [entry for entry in entries if entry["problem"] == problem])
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
    first = figure.axes[0]
    first.set_ylabel(f"relative error, median (at most {MAX_ERROR:g})")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_seconds(axes: Any, entries: Sequence[Mapping[str, Any]]) -> None:
    shards = sorted({entry["num_shards"] for entry in entries})
    for number, colour in zip(shards, _shades(len(shards)), strict=True):
        for method, line in (("VCMC", "-"), ("default", ":")):
            curve = [
                entry
                for entry in entries
                if entry["num_shards"] == number and entry["method"] == method
            ]
            axes.plot(
                [entry["seconds"] for entry in curve],
                [min(entry["error"], MAX_ERROR) for entry in curve],
                line,
                color=colour,
                marker=STYLES[method]["marker"],
                markersize=7 if method == "default" else 4,
                label=f"{method}, {number} shards",
            )


def draw_speedup(title: str, entries: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw errors by speed-up, and below speed-ups by number of shards, one column per problem."""
    problems = list(dict.fromkeys(entry["problem"] for entry in entries))
    figure = _canvas(4.6 * len(problems) + 1, 7.2)
    axes = figure.subplots(2, len(problems), squeeze=False)
    for column, problem in enumerate(problems):
        upper, lower = axes[:, column]
        of_problem = [entry for entry in entries if entry["problem"] == problem]
        shards = sorted({entry["num_shards"] for entry in of_problem})
        for method, size in (("Gaussian", 4), ("VCMC", 8), ("default", 11)):
            of_method = [entry for entry in of_problem if entry["method"] == method]
            _draw_method_speedup(upper, lower, of_method, {**STYLES[method], "markersize": size})
        lower.plot(
            shards, shards, color="0.3", linestyle="--", linewidth=1, label="as many as shards"
        )
        upper.set(
            xscale="log", yscale="log", title=problem, xlabel="speed-up (small numbers: shards)"
        )
        _whole_decades(upper)
        lower.set(yscale="log", xlabel="shards")
        _shard_axis(lower, shards)
        for panel in (upper, lower):
            panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel(f"relative error, median (at most {MAX_ERROR:g})")
    axes[1, 0].set_ylabel("speed-up")
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_method_speedup(
    upper: Any, lower: Any, entries: Sequence[Mapping[str, Any]], style: Mapping[str, Any]
) -> None:
    method = entries[0]["method"]
    shards = [entry["num_shards"] for entry in entries]
    errors = [min(entry["error"], MAX_ERROR) for entry in entries]
    speedups = [entry["speedup"] for entry in entries]
    upper.plot(speedups, errors, linestyle="", label=method, **style)
    for number, speedup, error in zip(shards, speedups, errors, strict=True):
        upper.annotate(
            number, (speedup, error), textcoords="offset points", xytext=(5, 5), fontsize=7
        )
    lower.plot(shards, speedups, label=method, **style)
    if method != "Gaussian":  # which has nothing to evaluate on other machines
        lower.plot(
            shards,
            [entry["speedup_rows_apart"] for entry in entries],
            ":",
            color=style["color"],
            label=f"{method}, a machine for each shard",
        )


def _whole_decades(axes: Any) -> None:
    """Extend a horizontal axis to powers of ten, and label only those."""
    from matplotlib.ticker import NullFormatter

    low, high = np.log10(axes.get_xlim())
    axes.set_xlim(10 ** np.floor(low), 10 ** np.ceil(high))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _shades(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["viridis"](position) for position in np.linspace(0, 0.9, count)]
