"""The result of comparing combiners: errors against a reference, a table, a figure."""

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
from ..diagnostics.html_table import html_note, html_table
from ..space import Product
from .figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from xarray import DataTree

TAIL_LEVELS = (0.05, 0.95)  # quantiles that are compared
MIN_RELATIVE_SD = 1e-9  # of the largest value; quantities that vary less count as constant
COLOURS = {"good": "tab:green", "doubtful": "tab:orange", "poor": "tab:red", "unknown": "tab:blue"}
Draws = dict[str, np.ndarray]


class Errors(NamedTuple):
    """Errors against a reference: the median and the largest over all scalar quantities.

    Errors of means and of quantiles (5 % and 95 %) are in sds of the reference, those of sds are
    relative, those of correlations are differences.
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
    """Errors and costs of one combiner.

    Attributes:
        name: name of the combiner.
        verdict: good, doubtful or poor; unknown without a model; failed if there is no result.
        errors: errors against the reference, if there is one.
        estimated_mean_error: the largest error of a mean, in sds, by the result's own estimate.
        estimated_sd_error: the largest relative error of an sd, by the result's own estimate.
        seconds: time to combine, compilation included.
        memory: peak memory in MB, above that in use before.
        remark: reasons for doubt, or why there is no result.
    """

    name: str
    verdict: str
    errors: Errors | None
    estimated_mean_error: float
    estimated_sd_error: float
    seconds: float
    memory: float
    remark: str


def errors_of(draws: Draws, reference: Draws, space: Product | None) -> Errors:
    """Return the errors of named draws (draw, …) against those of a reference."""
    names = [name for name in reference if name in draws]
    if not names:
        raise ValueError(
            "the reference and the results must share a parameter; the reference has "
            f"{list(reference)}, the results have {list(draws)}."
        )
    if space is not None and space.labelled() and set(space) <= set(names):
        draws = _relabelled(draws, reference, space)
    estimate, exact = (
        np.concatenate([arrays[name].reshape(len(arrays[name]), -1) for name in names], axis=1)
        for arrays in (draws, reference)
    )
    varies = exact.std(axis=0) > MIN_RELATIVE_SD * np.abs(exact).max(axis=0)
    estimate, exact = estimate[:, varies], exact[:, varies]
    sds = exact.std(axis=0)
    mean = np.abs(estimate.mean(axis=0) - exact.mean(axis=0)) / sds
    sd = np.abs(estimate.std(axis=0) / sds - 1)
    tails, exact_tails = (np.quantile(values, TAIL_LEVELS, axis=0) for values in (estimate, exact))
    quantile = np.abs(tails - exact_tails) / sds
    upper = np.triu_indices(len(sds), 1)
    correlation = (
        np.abs(_correlations(estimate) - _correlations(exact))[upper]
        if len(sds) > 1
        else np.array([np.nan])
    )
    classes = (mean, sd, quantile, correlation)
    return Errors(*(float(f(errors)) for errors in classes for f in (np.median, np.max)))


def _correlations(draws: Float[np.ndarray, "draw quantity"]) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.corrcoef(draws.T)


def _relabelled(draws: Draws, reference: Draws, space: Product) -> Draws:
    """Return draws whose exchangeable components are labelled as those of the reference."""
    exact, points = (np.asarray(to_points(space, arrays)) for arrays in (reference, draws))
    count = min(len(exact), len(points))
    thinned = [values[:: len(values) // count][:count] for values in (exact, points)]
    relabelled = jnp.asarray(points)[None]
    for alignment in common_labels(space, jnp.asarray(np.stack(thinned))):
        relabelled = relabel(space, relabelled, alignment[1:])
    return {**draws, **to_params(space, relabelled[0])}


HEADS = (
    "combiner",
    "verdict",
    "means, sds",
    "sds, %",
    "5–95 %, sds",
    "correlations",
    "est. means, sds",
    "est. sds, %",
    "seconds",
    "MB",
)
CAPTION = (
    "errors against the reference: median (largest) over all parameters; "
    "est.: largest error by the result's own estimate"
)


@dataclass(frozen=True)
class Comparison:
    """Combiners side by side. Printed, it is a table; `plot` draws a figure.

    Attributes:
        entries: errors and costs, one entry for each combiner.
        trees: the results, by name of the combiner.
    """

    entries: list[Entry]
    trees: "dict[str, DataTree]" = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        table = Table(caption=CAPTION)
        for head in HEADS:
            table.add_column(head, justify="left" if head in HEADS[:2] else "right", no_wrap=True)
        for entry in self.entries:
            table.add_row(*_cells(entry))
        text = StringIO()
        Console(file=text, width=200).print(table)
        remarks = [f"{entry.name}: {entry.remark}" for entry in self.entries if entry.remark]
        return text.getvalue() + "\n".join(remarks)

    def _repr_html_(self) -> str:
        remarks = [f"{entry.name}: {entry.remark}" for entry in self.entries if entry.remark]
        table = html_table(HEADS, map(_cells, self.entries), CAPTION)
        return table + "".join(map(html_note, remarks))

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rows = [HEADS, ["---"] * len(HEADS), *(_cells(entry) for entry in self.entries)]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Plot the errors of every combiner, or its own estimates if there is no reference.

        Args:
            path: an image file to write; by default none is written.
        """
        entries = [entry for entry in self.entries if entry.verdict != "failed"]
        panels = _panels(entries)
        figure = new_figure(2.8 * len(panels) + 1.5, 1.2 + 0.32 * len(entries))
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, panel in zip(grid, panels, strict=True):
            _draw_panel(axes, panel, entries)
        verdicts = {entry.verdict for entry in entries}
        handles = [
            grid[-1].plot([], [], "o", color=colour, label=verdict)[0]
            for verdict, colour in COLOURS.items()
            if verdict in verdicts
        ]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=len(handles), frameon=False
        )
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure


class Panel(NamedTuple):
    """A panel of the figure: the median and the largest error of every combiner."""

    title: str
    medians: list[float]
    largest: list[float]


def _panels(entries: Sequence[Entry]) -> list[Panel]:
    panels: list[Panel] = []
    errors = [entry.errors for entry in entries]
    if any(errors):
        for title, name in (
            ("error of means, sds", "mean"),
            ("error of sds, relative", "sd"),
            ("error of 5–95 %, sds", "quantile"),
            ("error of correlations", "correlation"),
        ):
            medians, largest = (
                [getattr(error, name + suffix) if error else np.nan for error in errors]
                for suffix in ("", "_worst")
            )
            if np.isfinite(medians).any():
                panels.append(Panel(title, medians, largest))
    estimates = [entry.estimated_mean_error for entry in entries]
    if np.isfinite(estimates).any():
        panels.append(Panel("estimated error of means, sds", estimates, estimates))
    seconds = [entry.seconds for entry in entries]
    return [*panels, Panel("seconds", seconds, seconds)]


def _draw_panel(axes: "Axes", panel: Panel, entries: Sequence[Entry]) -> None:
    from matplotlib.ticker import NullFormatter

    heights = np.arange(len(entries))[::-1]
    for height, median, largest, entry in zip(
        heights, panel.medians, panel.largest, entries, strict=True
    ):
        colour = COLOURS[entry.verdict]
        if np.isfinite([median, largest]).all() and largest > median:
            axes.plot([median, largest], [height, height], color=colour, linewidth=1.5, alpha=0.5)
        axes.plot(median, height, "o", color=colour)
    axes.set(
        title=panel.title,
        xscale="log",
        yticks=heights,
        yticklabels=[entry.name for entry in entries],
    )
    axes.xaxis.set_minor_formatter(NullFormatter())
    _show_two_decades(axes)
    axes.grid(axis="x", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)


def _show_two_decades(axes: Any) -> None:
    """Widen a logarithmic axis until it has labels at two powers of ten."""
    low, high = axes.get_xlim()
    axes.set_xlim(
        min(low, 10.0 ** np.floor(np.log10(high) - 0.5)),
        max(high, 10.0 ** np.ceil(np.log10(low) + 0.5)),
    )


def _cells(entry: Entry) -> list[str]:
    """Return the cells of one line of the table."""
    errors = entry.errors
    cells = ["–"] * 4
    if errors is not None:
        cells = [
            f"{scale * median:.{digits}f} ({scale * largest:.{digits}f})"
            if np.isfinite(median)
            else "–"
            for median, largest, scale, digits in (
                (errors.mean, errors.mean_worst, 1, 3),
                (errors.sd, errors.sd_worst, 100, 1),
                (errors.quantile, errors.quantile_worst, 1, 3),
                (errors.correlation, errors.correlation_worst, 1, 3),
            )
        ]
    numbers = (
        (entry.estimated_mean_error, 3),
        (100 * entry.estimated_sd_error, 1),
        (entry.seconds, 2),
        (entry.memory, 0),
    )
    return [
        entry.name,
        entry.verdict,
        *cells,
        *(f"{value:.{digits}f}" if np.isfinite(value) else "–" for value, digits in numbers),
    ]
