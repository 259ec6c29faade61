"""The result of a posterior predictive check: statistics of the data among those of replicates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from ..diagnostics.html_table import html_table
from .figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

LEVELS = (0.05, 0.95)  # ends of the interval of replicates
EXTREME_P = 0.01  # two-sided p-values below it are named; a right model has one of a hundred
HEADS = ("data", "replicated", "5 %", "95 %", "P(replicated ≥ data)", "two-sided p")
COLUMNS = ("observed", "mean", "sd", "q05", "q95", "p_value", "two_sided")
MAX_TABLE_ROWS = 60  # of a printed check; a frame has all
MAX_NAMED = 5  # statistics in a sentence
MAX_PANELS = 16
MAX_PANEL_GROUPS = 60  # labels of one panel: more would overlap
NUM_PANEL_COLUMNS = 4
REPLICATED_COLOUR, DATA_COLOUR = "tab:blue", "tab:red"
UNKNOWN = "–"


class Line(NamedTuple):
    """What a line of the table is about: a statistic, and a group if there are any."""

    statistic: str
    group: str = ""

    @property
    def label(self) -> str:
        """The statistic, with its group in brackets."""
        return f"{self.statistic}[{self.group}]" if self.group else self.statistic


@dataclass(frozen=True)
class PosteriorCheck:
    """Statistics of the data and of replicated data. Printed, it is a table; notebooks show HTML.

    A p-value is the share of replicates whose statistic is at least as large as the data's. Near
    zero, the data have more than the model expects, and near one, less. The two-sided p-value is
    twice the smaller of the shares at least as large and at most as large, and at most one: small
    if the data are unlike replicates in either direction. It is one if all are equal, e.g. if the
    smallest value is always zero.

    Attributes:
        response: what was replicated, e.g. "y".
        lines: the statistics, by group if there are any.
        observed: the data's value of each.
        replicated: the values of all replicates.
        by: the column of groups, empty without groups.
    """

    response: str
    lines: Sequence[Line]
    observed: Float[np.ndarray, " line"]
    replicated: Float[np.ndarray, "line draw"]
    by: str = ""

    @property
    def num_replicates(self) -> int:
        """Number of replicated data sets."""
        return self.replicated.shape[1]

    @property
    def p_values(self) -> Float[np.ndarray, " line"]:
        """The share of replicates at least as large as the data's value; NaN if it has none."""
        return self._with_nan(np.mean(self.replicated >= self.observed[:, None], axis=1))

    @property
    def two_sided(self) -> Float[np.ndarray, " line"]:
        """Twice the smaller of the shares at least and at most as large, and at most one."""
        at_most = np.mean(self.replicated <= self.observed[:, None], axis=1)
        return self._with_nan(np.minimum(1.0, 2 * np.fmin(self.p_values, at_most)))

    def _with_nan(self, shares: Float[np.ndarray, " line"]) -> Float[np.ndarray, " line"]:
        is_known = np.isfinite(self.observed) & np.isfinite(self.replicated).all(axis=1)
        return np.where(is_known, shares, np.nan)

    @property
    def extreme(self) -> list[str]:
        """The labels of statistics with a two-sided p-value below 0.01, smallest first."""
        order = np.argsort(self.two_sided, kind="stable")
        return [self.lines[i].label for i in order if self.two_sided[i] < EXTREME_P]

    def columns(self) -> dict[str, Float[np.ndarray, " line"]]:
        """Return the columns of the table by name."""
        low, high = np.quantile(self.replicated, LEVELS, axis=1)
        sd = self.replicated.std(axis=1)
        mean = self.replicated.mean(axis=1)
        values = (self.observed, mean, sd, low, high, self.p_values, self.two_sided)
        return dict(zip(COLUMNS, values, strict=True))

    def to_frame(self) -> "DataFrame":
        """Return the table as a pandas data frame, by statistic, or by statistic and group."""
        from pandas import DataFrame, Index, MultiIndex

        statistics, groups = zip(*self.lines, strict=True)
        index = (
            MultiIndex.from_arrays([statistics, groups], names=["statistic", self.by])
            if self.by
            else Index(statistics, name="statistic")
        )
        return DataFrame(self.columns(), index=index)

    def sentence(self) -> str:
        """Return in words whether the data are like replicates."""
        names = self.extreme
        about = (
            f"{len(self.lines)} statistics of {self.response!r}, {self.num_replicates} replicates"
        )
        if not names:
            return f"The data are like replicated data ({about})."
        rest = ", …" if len(names) > MAX_NAMED else ""
        return (
            f"The data are unlike replicated data in {', '.join(names[:MAX_NAMED])}{rest}: "
            f"two-sided p below {max(EXTREME_P, 2 / self.num_replicates):.2g} for {len(names)} of "
            f"{about}."
        )

    def __str__(self) -> str:
        heads, rows = self._cells()
        widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
            for line in (heads, *rows)
        ]
        return "\n".join([*lines, *self._rest(), self.sentence()])

    def _repr_html_(self) -> str:
        heads, rows = self._cells()
        return html_table(heads, rows, " ".join([*self._rest(), self.sentence()]))

    def two_sided_text(self, number: int) -> str:
        """Return the two-sided p-value of a line; none is told below 2 / replicates."""
        return share_text(float(self.two_sided[number]), self.num_replicates / 2)

    def _rest(self) -> list[str]:
        rest = len(self.lines) - MAX_TABLE_ROWS
        return [f"… and {rest} more: to_frame() has all."] if rest > 0 else []

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        columns = self.columns()
        rows = []
        for number, line in enumerate(self.lines[:MAX_TABLE_ROWS]):
            values = {name: float(column[number]) for name, column in columns.items()}
            decimals = num_decimals(values["sd"], values["observed"])
            numbers = [
                _fixed(values[name], decimals) for name in ("observed", "mean", "q05", "q95")
            ]
            p_value = share_text(values["p_value"], self.num_replicates)
            rows.append([line.label, *numbers, p_value, self.two_sided_text(number)])
        return ["", *HEADS], rows

    def plot(self) -> "Figure":
        """Return a figure: replicated statistics in blue, the data's in red."""
        statistics = list(dict.fromkeys(line.statistic for line in self.lines))[:MAX_PANELS]
        num_columns = min(NUM_PANEL_COLUMNS, len(statistics))
        num_rows = -(-len(statistics) // num_columns)
        num_groups = min(MAX_PANEL_GROUPS, -(-len(self.lines) // len(statistics)))
        height = 1.2 + 0.2 * num_groups if self.by else 2.1
        figure = new_figure(3.0 * num_columns + 0.3, height * num_rows + 0.5)
        panels = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
        for axes, statistic in zip(panels, statistics, strict=False):
            numbers = [i for i, line in enumerate(self.lines) if line.statistic == statistic]
            if self.by:
                self._draw_groups(axes, numbers[:MAX_PANEL_GROUPS])
            else:
                self._draw_histogram(axes, numbers[0])
            axes.set_title(statistic)
            axes.spines[["top", "right"]].set_visible(False)
            axes.locator_params(axis="x", nbins=4)
        for axes in panels[len(statistics) :]:
            axes.set_visible(False)
        _legend(figure, self.response)
        return figure

    def _draw_histogram(self, axes: "Axes", number: int) -> None:
        values = self.replicated[number]
        axes.hist(values[np.isfinite(values)], bins=30, color=REPLICATED_COLOUR, alpha=0.6)
        axes.axvline(self.observed[number], color=DATA_COLOUR, linewidth=2)
        axes.set(yticks=[], xlabel=f"two-sided p {self.two_sided_text(number)}")
        axes.spines["left"].set_visible(False)

    def _draw_groups(self, axes: "Axes", numbers: Sequence[int]) -> None:
        low, high = np.quantile(self.replicated[numbers], LEVELS, axis=1)
        heights = np.arange(len(numbers))
        axes.hlines(heights, low, high, color=REPLICATED_COLOUR, linewidth=3, alpha=0.6)
        axes.plot(self.observed[numbers], heights, "o", color=DATA_COLOUR, markersize=4)
        axes.set(ylim=(len(numbers) - 0.5, -0.5))
        axes.set_yticks(heights, [self.lines[i].group for i in numbers])


def num_decimals(sd: float, value: float) -> int:
    """Return the number of decimals that shows an sd, or else a value, with two digits."""
    scale = sd if 0 < sd < np.inf else abs(value)
    if not 0 < scale < np.inf:
        return 0
    return int(np.clip(1 - np.floor(np.log10(scale)), 0, 12))


def share_text(share: float, count: float) -> str:
    """Return a p-value with the decimals that so many replicates give.

    >>> share_text(0.0, 500), share_text(0.034, 500)
    ('< 0.002', '0.034')
    """
    if not np.isfinite(share):
        return UNKNOWN
    decimals = max(2, int(np.ceil(np.log10(count))))
    return f"< {1 / count:.{decimals}f}" if share == 0 else f"{share:.{decimals}f}"


def _fixed(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}" if np.isfinite(value) else UNKNOWN


def _legend(figure: "Figure", response: str) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=REPLICATED_COLOUR, linewidth=5, alpha=0.6, label="replicated"),
        Line2D([], [], color=DATA_COLOUR, linewidth=2, label=f"data, {response}"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
