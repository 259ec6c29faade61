"""The picture: a panel per curve, seconds and processor seconds against what is varied."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curves import fitted, measured, quantities
from points import CURVES

STYLES = {
    "whole run": ("#d62728", "o", 2.0),
    "sampling": ("#1f77b4", "s", 1.2),
    "combining, diagnosis": ("#2ca02c", "^", 1.2),
    "processor seconds": ("0.45", "D", 1.2),
}
FITTED = ("whole run", "processor seconds")


def lines(record: dict[str, Any]) -> dict[str, float]:
    """Return the heights of a point's marks."""
    values = quantities(record)
    return {
        "whole run": values["seconds"],
        "sampling": values["sampling"],
        "combining, diagnosis": values["combining"] + values["diagnosis"],
        "processor seconds": values["processor s"],
    }


def draw(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw four panels with logarithmic axes, fitted lines dashed, failures as crosses."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.9), layout="constrained")
    panels = figure.subplots(1, len(CURVES), sharey=True)
    for axes, sweep in zip(panels, CURVES, strict=True):
        _panel(axes, sweep, records)
    panels[0].set_ylabel("seconds")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES), frameon=False)
    figure.savefig(path, dpi=110)


def _panel(axes: Any, sweep: str, records: Sequence[dict[str, Any]]) -> None:
    good = measured(records, sweep)
    x = [record["value"] for record in good]
    slopes = []
    for name, (color, marker, width) in STYLES.items():
        y = [lines(record)[name] for record in good]
        axes.plot(x, y, color=color, marker=marker, markersize=4.5, linewidth=width, label=name)
        if name in FITTED and (exponent := fitted(x, y)):
            axes.plot(exponent.x, exponent.y, color="black", linestyle="--", linewidth=1)
            slopes.append(f"{name}: exponent {exponent}")
    values = [record["value"] for record in records if record["sweep"] == sweep]
    limits = min(values) / 1.5, max(values) * 1.5
    axes.set(xscale="log", yscale="log", xlabel=sweep, xlim=limits)
    axes.set_title("\n".join(slopes), fontsize=9.5)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    failed = [
        record["value"]
        for record in records
        if record["sweep"] == sweep and record["failure"] and "ended" in record
    ]
    for value in failed:
        axes.axvline(value, color="0.8", linestyle=":")
        axes.text(
            value,
            0.97,
            "failed ",
            rotation=90,
            ha="right",
            va="top",
            fontsize=8,
            transform=axes.get_xaxis_transform(),
        )
    axes.grid(which="major", color="0.9", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
