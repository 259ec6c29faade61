"""The picture of RESULTS.md: error of means against seconds, every method labelled at its point."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scores import GOAL_SD, Score

MAX_ERROR_SD = 3.0  # larger errors are drawn here, as triangles
ERROR_LIMITS = (0.001, 4.0)
ERROR_TICKS = (0.01, 0.1, 1.0)
SECOND_TICKS = (3, 10, 30, 100, 300, 1000)
OURS, OTHERS = "#d62728", "0.45"
FONT_SIZE, LINE_HEIGHT, CHARACTER_WIDTH = 9.5, 12.5, 6.2  # points
GAP = 8.0  # points between a marker and its label
LABEL_SPACE = 1.6  # factor by which the axis of seconds extends beyond the last point

Panels = Mapping[str, Mapping[str, Score]]


def draw(panels: Panels, path: Path) -> None:
    """Draw one panel per problem with a common axis of errors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.7 * len(panels), 4.6), layout="constrained")
    columns = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, scores) in zip(columns, panels.items(), strict=True):
        _draw_points(axes, title, scores)
    columns[0].set_ylabel("error of posterior means, sd (lower is better)")
    columns[0].set_yticks(ERROR_TICKS, [f"{tick:g}" for tick in ERROR_TICKS])
    figure.draw_without_rendering()  # fixes the layout, so that labels can be placed
    figure.set_layout_engine("none")
    for axes, scores in zip(columns, panels.values(), strict=True):
        _draw_labels(axes, scores)
    figure.savefig(path, dpi=110)


def _position(score: Score) -> tuple[float, float]:
    return score.seconds, min(score.mean, MAX_ERROR_SD)


def _draw_points(axes: Any, title: str, scores: Mapping[str, Score]) -> None:
    from matplotlib.ticker import NullLocator

    for name, score in scores.items():
        is_ours = name == "vcmc"
        axes.plot(
            *_position(score),
            marker="*" if is_ours else "^" if score.mean > MAX_ERROR_SD else "o",
            markersize=17 if is_ours else 6.5,
            color=OURS if is_ours else OTHERS,
            zorder=3 if is_ours else 2,
        )
    seconds = [score.seconds for score in scores.values()]
    axes.set(xscale="log", yscale="log", ylim=ERROR_LIMITS, xlabel="seconds")
    axes.set_title(title, fontsize=11.5)
    axes.set_xlim(min(seconds) / LABEL_SPACE, max(seconds) * LABEL_SPACE)
    low, high = axes.get_xlim()
    ticks = [tick for tick in SECOND_TICKS if low < tick < high]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.axhspan(ERROR_LIMITS[0], GOAL_SD, color="tab:green", alpha=0.07, linewidth=0)
    axes.axhline(GOAL_SD, color="tab:green", linewidth=0.8, linestyle="--")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_labels(axes: Any, scores: Mapping[str, Score]) -> None:
    """Write each name beside its point, as near as it can be without touching another."""
    unit = axes.figure.dpi / 72
    points = {
        name: axes.transData.transform(_position(score)) / unit for name, score in scores.items()
    }
    left, right = axes.bbox.x0 / unit, axes.bbox.x1 / unit
    taken = [(x - 5, x + 5, y) for x, y in points.values()]  # left, right, height
    for name, (x, y) in sorted(points.items(), key=lambda item: -item[1][1]):
        text = f"{name} (> {MAX_ERROR_SD:g})" if scores[name].mean > MAX_ERROR_SD else name
        width = CHARACTER_WIDTH * len(text) * (1.2 if name == "vcmc" else 1)
        start, height = next(
            (
                (start, height)
                for start, height in _candidates(x, y, width)
                if start > left
                and start + width < right + 20
                and not any(
                    start < end and begin < start + width and abs(height - middle) < LINE_HEIGHT
                    for begin, end, middle in taken
                )
            ),
            (x + GAP, y),
        )
        taken.append((start, start + width, height))
        offset = (start - x, height - y)
        _annotate(axes, text, _position(scores[name]), offset, width, name == "vcmc")


def _candidates(x: float, y: float, width: float) -> Iterator[tuple[float, float]]:
    """Yield left ends and heights of a label, the nearest to its point first."""
    for step in np.arange(0, 8, 0.5):
        for start in (x + GAP, x - GAP - width, x - width / 2):
            if start == x - width / 2 and step < 1:
                continue  # it would cover the point
            yield start, y + step * LINE_HEIGHT
            yield start, y - step * LINE_HEIGHT


def _annotate(
    axes: Any,
    text: str,
    position: tuple[float, float],
    offset: tuple[float, float],
    width: float,
    is_ours: bool,
) -> None:
    """Write a label whose left end is offset from its point; link it to the point if far."""
    across, up = offset
    is_near = abs(up) < 1.5 * LINE_HEIGHT
    link = {"arrowstyle": "-", "linewidth": 0.6, "color": "0.7", "shrinkA": 0, "shrinkB": 3}
    axes.annotate(
        text,
        position,
        xytext=(across if across > 0 else min(across + width, 0), up),
        textcoords="offset points",
        ha="left" if across > 0 else "right" if across + width < 0 else "center",
        va="center",
        fontsize=FONT_SIZE + 3 if is_ours else FONT_SIZE,
        fontweight="bold" if is_ours else "normal",
        color=OURS if is_ours else "0.15",
        arrowprops=None if is_near else link,
    )
