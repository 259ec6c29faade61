"""The picture of RESULTS.md: seconds to the goal, one panel per problem, one line per method.

Panels stand one above the other, so that a phone shows them as large as a screen does. A method
has a line of its own, so that no label meets another.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from contests import label
from records import GOAL_SD, OURS, Results, Score, title
from tables import duration, error

WIDTH, LINE_HEIGHT, PANEL_SPACE = 6.6, 0.27, 0.85  # inches
FONT_SIZE, DPI = 11, 150
LIMIT_FACTORS = (0.7, 7.0)  # of the least and the largest seconds; texts need room at the right
TICKS = (1, 3, 10, 30, 100, 300, 1000, 3000)
OURS_COLOUR, OTHERS_COLOUR, FAILED_COLOUR = "#c81e1e", "0.2", "0.5"

Panel = Sequence[tuple[str, Score]]


def draw(results: Results, problems: Sequence[str], methods: Sequence[str], path: Path) -> None:
    """Draw a panel for each problem, with a common axis of seconds."""
    from matplotlib.figure import Figure

    panels = {name: _panel(results, name, methods) for name in problems}
    sizes = [len(panel) for panel in panels.values()]
    height = LINE_HEIGHT * sum(sizes) + PANEL_SPACE * len(sizes) + 0.5
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=sizes)[:, 0]
    spent = [score.seconds for panel in panels.values() for _, score in panel]
    for panel_axes, (problem, panel) in zip(axes, panels.items(), strict=True):
        _draw_panel(panel_axes, label(results, problem), panel)
    low, high = LIMIT_FACTORS[0] * min(spent), LIMIT_FACTORS[1] * max(spent)
    axes[-1].set_xlim(low, high)
    ticks = [tick for tick in TICKS if low < tick < high]
    axes[-1].set_xticks(ticks, [str(tick) for tick in ticks])
    axes[-1].set_xlabel(
        f"seconds until means stay within {GOAL_SD:g} sd\n"
        "(beside each point: these seconds, error at the end)",
        fontsize=FONT_SIZE,
    )
    figure.savefig(path, dpi=DPI)


def _panel(results: Results, problem: str, methods: Sequence[str]) -> Panel:
    """Return the methods with an answer, the fastest first, last those that miss the goal."""
    scores = [(name, score) for name in methods if (score := results.score(problem, name))]
    return sorted(
        scores, key=lambda item: (np.nan_to_num(item[1].to_goal, nan=np.inf), item[1].of("mean"))
    )


def _draw_panel(axes: Any, heading: str, panel: Panel) -> None:
    from matplotlib.ticker import NullLocator

    for height, (name, score) in enumerate(panel):
        has_reached = np.isfinite(score.to_goal)
        colour = OURS_COLOUR if name == OURS else OTHERS_COLOUR if has_reached else FAILED_COLOUR
        time = score.to_goal if has_reached else score.seconds
        text = f"{duration(time)} s" if has_reached else "not reached"
        axes.plot(
            time,
            height,
            marker="o" if has_reached else "x",
            markersize=9 if name == OURS else 7,
            color=colour,
        )
        axes.annotate(
            f"{text}, {error(score.of('mean'))} sd",
            (time, height),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=FONT_SIZE - 1,
            color=colour,
            fontweight="bold" if name == OURS else "normal",
            bbox={"color": "white", "pad": 1},  # hides the grid
        )
    axes.set(xscale="log", ylim=(len(panel) - 0.4, -0.6))
    axes.set_title(heading, fontsize=FONT_SIZE + 1, loc="left", fontweight="bold")
    axes.set_yticks(range(len(panel)), [title(name) for name, _ in panel], fontsize=FONT_SIZE)
    for tick, (name, _) in zip(axes.get_yticklabels(), panel, strict=True):
        if name == OURS:
            tick.set(color=OURS_COLOUR, fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=FONT_SIZE)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="both", color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
