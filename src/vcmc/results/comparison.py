"""What a comparison of combiners found: errors by class, a table, a picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

from ..aggregators.combinatorial import common_labels, relabel
from ..data.params import to_params, to_points
from ..space import Product
from .figure import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

LEVELS = (0.05, 0.95)
COLOURS = {"good": "tab:green", "doubtful": "tab:orange", "poor": "tab:red", "unknown": "tab:blue"}
Draws = dict[str, np.ndarray]


class Errors(NamedTuple):
    """Errors against a reference, over all numbers that a model reports: the median and the largest of each class.

    Means and quantiles (5 % and 95 %) are in the reference's sds, sds are relative, correlations are differences.
    """

    mean: float
    mean_worst: float
    sd: float
    sd_worst: float
    quantile: float
    quantile_worst: float
    correlation: float
    correlation_worst: float


class Entry(NamedTuple):
    """What is known of one combiner.

    Attributes:
        name: its name.
        verdict: what its result says of itself: good, doubtful, poor; unknown without a model; failed if there is no result.
        errors: against the reference, if there is one.
        self_mean, self_sd: the largest errors of a mean (in sds) and of an sd (relative) that the result itself estimates.
        seconds: that combining took, compiling included.
        memory: megabytes that it took at most, beyond what was in use before.
        remark: what was doubtful about the result, or why there is none.
    """

    name: str
    verdict: str
    errors: Errors | None
    self_mean: float
    self_sd: float
    seconds: float
    memory: float
    remark: str


def errors_of(found: Draws, exact: Draws, space: Product | None) -> Errors:
    """The errors of draws (draw, …) by name against those of a reference."""
    names = [name for name in exact if name in found]
    if not names:
        raise ValueError(
            f"the reference has draws of {list(exact)}, but the results of {list(found)}."
        )
    if space is not None and space.labelled() and set(space) <= set(names):
        found = _relabelled(found, exact, space)
    one, other = (
        np.concatenate([draws[name].reshape(len(draws[name]), -1) for name in names], axis=1)
        for draws in (found, exact)
    )
    varies = other.std(axis=0) > 1e-9 * np.abs(other).max(axis=0)
    one, other = one[:, varies], other[:, varies]
    unit = other.std(axis=0)
    mean = np.abs(one.mean(axis=0) - other.mean(axis=0)) / unit
    sd = np.abs(one.std(axis=0) / unit - 1)
    quantile = np.abs(np.quantile(one, LEVELS, axis=0) - np.quantile(other, LEVELS, axis=0)) / unit
    upper = np.triu_indices(len(unit), 1)
    correlation = (
        np.abs(_correlations(one) - _correlations(other))[upper]
        if len(unit) > 1
        else np.array([np.nan])
    )
    pairs = [(np.median(each), np.max(each)) for each in (mean, sd, quantile, correlation)]
    return Errors(*(float(number) for pair in pairs for number in pair))


def _correlations(draws: Float[np.ndarray, "draw quantity"]) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.corrcoef(draws.T)


def _relabelled(found: Draws, exact: Draws, space: Product) -> Draws:
    """Draws whose exchangeable components are labelled as the reference's."""
    points = [np.asarray(to_points(space, draws)) for draws in (exact, found)]
    count = min(map(len, points))
    pair = jnp.asarray(np.stack([each[:: len(each) // count][:count] for each in points]))
    moved = jnp.asarray(points[1])[None]
    for alignment in common_labels(space, pair):
        moved = relabel(space, moved, alignment[1:])
    return {**found, **to_params(space, moved[0])}


HEADS = (
    "combiner",
    "verdict",
    "means, sds",
    "sds, %",
    "5–95 %, sds",
    "correlations",
    "own: means, sds",
    "own: sds, %",
    "seconds",
    "MB",
)


@dataclass(frozen=True)
class Comparison:
    """Combiners side by side. Printed, it is a table; `plot` draws it.

    Attributes:
        entries: what is known of every combiner.
        trees: the results, by the combiner's name.
    """

    entries: list[Entry]
    trees: "dict[str, DataTree]" = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        table = Table(
            caption="errors: median (largest) over all parameters; own: largest error by its own estimate"
        )
        for head in HEADS:
            table.add_column(head, justify="left" if head in HEADS[:2] else "right", no_wrap=True)
        for entry in self.entries:
            table.add_row(*_cells(entry))
        text = StringIO()
        Console(file=text, width=200).print(table)
        remarks = [f"{entry.name}: {entry.remark}" for entry in self.entries if entry.remark]
        return text.getvalue() + "\n".join(remarks)

    def markdown(self) -> str:
        """The table as Markdown."""
        rows = [HEADS, ["---"] * len(HEADS), *(_cells(entry) for entry in self.entries)]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Draw the errors of every combiner, or what it says of itself if there is no reference; save it, if told where."""
        shown = [entry for entry in self.entries if entry.verdict != "failed"]
        panels = _panels(shown)
        figure = new_figure(2.8 * len(panels) + 1.5, 1.2 + 0.32 * len(shown))
        from matplotlib.ticker import NullFormatter  # after it was seen that there is matplotlib

        places = np.arange(len(shown))[::-1]
        for axes, (title, medians, worst) in zip(
            figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True
        ):
            for place, low, high, entry in zip(places, medians, worst, shown, strict=True):
                colour = COLOURS[entry.verdict]
                if np.isfinite([low, high]).all() and high > low:
                    axes.plot([low, high], [place, place], color=colour, linewidth=1.5, alpha=0.5)
                axes.plot(low, place, "o", color=colour)
            axes.set(
                title=title,
                xscale="log",
                yticks=places,
                yticklabels=[entry.name for entry in shown],
            )
            axes.xaxis.set_minor_formatter(NullFormatter())
            _show_two_decades(axes)
            axes.grid(axis="x", color="0.9")
            axes.spines[["top", "right"]].set_visible(False)
        handles = [
            axes.plot([], [], "o", color=COLOURS[verdict], label=verdict)[0]
            for verdict in COLOURS
            if verdict in {entry.verdict for entry in shown}
        ]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=len(handles), frameon=False
        )
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure


def _show_two_decades(axes: Any) -> None:
    """Make an axis wide enough for labels at two powers of ten."""
    low, high = axes.get_xlim()
    axes.set_xlim(
        min(low, 10.0 ** np.floor(np.log10(high) - 0.5)),
        max(high, 10.0 ** np.ceil(np.log10(low) + 0.5)),
    )


def _cells(entry: Entry) -> list[str]:
    errors = entry.errors
    numbers = ["–"] * 4
    if errors is not None:
        numbers = [
            f"{scale * low:.{digits}f} ({scale * high:.{digits}f})" if np.isfinite(low) else "–"
            for low, high, scale, digits in (
                (errors.mean, errors.mean_worst, 1, 3),
                (errors.sd, errors.sd_worst, 100, 1),
                (errors.quantile, errors.quantile_worst, 1, 3),
                (errors.correlation, errors.correlation_worst, 1, 3),
            )
        ]
    rest = (entry.self_mean, 3), (100 * entry.self_sd, 1), (entry.seconds, 2), (entry.memory, 0)
    return [
        entry.name,
        entry.verdict,
        *numbers,
        *(f"{value:.{digits}f}" if np.isfinite(value) else "–" for value, digits in rest),
    ]


Panel = tuple[str, list[float], list[float]]


def _panels(entries: Sequence[Entry]) -> list[Panel]:
    """What is drawn: the median and the largest number of every combiner, by panel."""
    panels: list[Panel] = []
    known = [entry.errors for entry in entries]
    if any(known):
        for title, what in (
            ("means, sds off", "mean"),
            ("sds, relative", "sd"),
            ("5–95 %, sds off", "quantile"),
            ("correlations", "correlation"),
        ):
            low, high = (
                [getattr(each, what + end) if each else np.nan for each in known]
                for end in ("", "_worst")
            )
            if np.isfinite(low).any():
                panels.append((title, low, high))
    if np.isfinite([entry.self_mean for entry in entries]).any():
        own = [entry.self_mean for entry in entries]
        panels.append(("own estimate: means, sds off", own, own))
    seconds = [entry.seconds for entry in entries]
    return [*panels, ("seconds", seconds, seconds)]
