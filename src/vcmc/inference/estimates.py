"""The verb `summary`: estimates of a result, as a table, a data frame or HTML."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ..diagnostics.html_table import html_table
from ..results.effective_draws import effective_draws, max_effective_draws
from ..results.group_summaries import LEVELS
from ..results.quantities import (
    element_labels,
    local_names,
    parameter_array,
    selected_elements,
)
from ..results.tree import text_list

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import DataArray, DataTree

ERRORS = ("mean_error", "mean_error_se", "sd_error", "sd_error_se")
# Statistics of a local parameter that has no draws in the tree, by column.
LOCAL_GROUPS = {"mean": "local_mean", "sd": "local_sd", "q05": "local_q05", "q95": "local_q95"}
COLUMNS = ("mean", "sd", "q05", "q95", "ess", "mcse_mean", *ERRORS)
HEADS = ("", "mean", "sd", "5 %", "95 %", "effective draws", "MC error")
ERROR_HEADS = ("mean off by (sd)", "sd off by (%)")
MAX_TABLE_ROWS = 60  # of a printed summary; a frame has all
NUM_DIGITS = 2  # of an sd; a mean has as many decimals, and its Monte Carlo error one more
MAX_DECIMALS = 12
UNKNOWN = "–"

Column = Float[np.ndarray, " quantity"]


@dataclass(frozen=True)
class Summary:
    """Estimates of scalar quantities. Printed, it is a table; notebooks show it as HTML.

    Attributes:
        labels: the quantities, e.g. `beta[age]`.
        columns: `mean`, `sd`, `q05` and `q95` (the ends of the 90 % interval with equal tails),
            `ess` (effective draws), `mcse_mean` (Monte Carlo error of the mean), and, NaN if they
            are unknown, the estimated errors `mean_error` in posterior sds and `sd_error` as a
            fraction, with their standard errors `mean_error_se` and `sd_error_se`.
        verdict: the verdict on the result, empty if there is none.
        modes: a line for each mode of the posterior, if it has several: means lie between them.
    """

    labels: Sequence[str]
    columns: Mapping[str, Column]
    verdict: str = ""
    modes: Sequence[str] = ()

    def to_frame(self) -> "DataFrame":
        """Return the estimates as a pandas data frame, with the labels as its index."""
        from pandas import DataFrame, Index

        return DataFrame(dict(self.columns), index=Index(list(self.labels), name="quantity"))

    def table(self, *, with_errors: bool = True) -> str:
        """Return the table as text, with the estimated errors or without them."""
        heads, rows = self._cells(with_errors)
        widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
            for line in (heads, *rows)
        ]
        return "\n".join([*lines, *self._rest()])

    def __str__(self) -> str:
        verdict = [f"The result is {self.verdict}."] if self.verdict else []
        return "\n".join([self.table(), *self.modes, *verdict])

    def _repr_html_(self) -> str:
        heads, rows = self._cells(True)
        notes = [*self._rest(), *(f"{mode}." for mode in self.modes)]
        notes += [f"The result is {self.verdict}."] if self.verdict else []
        return html_table(heads, rows, " ".join(notes))

    def _rest(self) -> list[str]:
        rest = len(self.labels) - MAX_TABLE_ROWS
        return [f"… and {rest} more: to_frame() has all."] if rest > 0 else []

    def _cells(self, with_errors: bool) -> tuple[list[str], list[list[str]]]:
        with_errors = with_errors and bool(np.isfinite(self.columns["mean_error"]).any())
        heads = [*HEADS, *(ERROR_HEADS if with_errors else ())]
        rows = []
        for number, label in enumerate(self.labels[:MAX_TABLE_ROWS]):
            values = {name: float(self.columns[name][number]) for name in COLUMNS}
            decimals = _num_decimals(values["sd"])
            cells = [_fixed(values[name], decimals) for name in ("mean", "sd", "q05", "q95")]
            cells += [_fixed(values["ess"], 0), _fixed(values["mcse_mean"], decimals + 1)]
            if with_errors:
                mean, mean_se, sd, sd_se = (values[name] for name in ERRORS)
                cells += [_error(mean, mean_se, 3), _error(100 * sd, 100 * sd_se, 1)]
            rows.append([label, *cells])
        return heads, rows


def _num_decimals(sd: float) -> int:
    """Return the number of decimals that shows an sd with two digits."""
    if not 0 < sd < np.inf:
        return 3
    return int(np.clip(NUM_DIGITS - 1 - np.floor(np.log10(sd)), 0, MAX_DECIMALS))


def _fixed(value: float, num_decimals: int) -> str:
    return f"{value:.{num_decimals}f}" if np.isfinite(value) else UNKNOWN


def _error(value: float, standard_error: float, num_decimals: int) -> str:
    if not np.isfinite([value, standard_error]).all():
        return UNKNOWN
    return f"{value:+.{num_decimals}f} ± {standard_error:.{num_decimals}f}"


def summary(tree: "DataTree", var_names: Iterable[str] | None = None) -> Summary:
    """Return the estimates of a result: means, sds, intervals, effective draws, and their errors.

    Effective draws are those of the posterior's chains, or of the shards' where means rest on them
    alone. The Monte Carlo error of a mean is its sd over their root. Estimated errors are those of
    the diagnosis that the tree holds, which `diagnose` prints with a verdict.

    Args:
        tree: a result of `infer`, `combine`, `refine` or `load`.
        var_names: parameters, or single elements, e.g. ["beta", "region[south]"]; by default all
            that are not local to groups.

    Returns:
        A `Summary`: print it for a table; `to_frame()` returns a pandas data frame.
    """
    if "posterior" not in getattr(tree, "children", {}):
        raise TypeError(
            "tree must be a result of infer or combine, with a group 'posterior'; got "
            f"{type(tree).__name__} with the groups {list(getattr(tree, 'children', {}))}."
        )
    local = local_names(tree)
    known = list(dict.fromkeys([*map(str, tree["posterior"].data_vars), *local]))
    known = [*(name for name in known if name not in local), *local]  # global parameters first
    if var_names is None:
        names = var_names = [name for name in known if name not in local]
    else:
        names, var_names = known, [var_names] if isinstance(var_names, str) else list(var_names)
    labels = {name: element_labels(_described_array(tree, name)) for name in names}
    chosen = selected_elements(labels, var_names)
    max_ess = max_effective_draws(tree)
    parts = [
        _estimates(tree, name, [index for index in by_index if (name, index) in chosen], max_ess)
        for name, by_index in labels.items()
    ]
    return Summary(
        [
            label
            for name, by_index in labels.items()
            for index, label in by_index.items()
            if (name, index) in chosen
        ],
        {
            column: np.concatenate([part[column] for part in parts]) if parts else np.empty(0)
            for column in COLUMNS
        },
        str(tree.attrs.get("verdict", "")),
        text_list(tree, "mode_lines"),
    )


def _described_array(tree: "DataTree", name: str) -> "DataArray":
    """Return an array with the axes of a parameter: its draws, or the means of groups."""
    if name in tree["posterior"].data_vars:
        return parameter_array(tree, name)
    return tree["local_mean"][name]


def _estimates(
    tree: "DataTree", name: str, indices: Sequence[tuple[int, ...]], max_ess: float
) -> dict[str, Column]:
    """Return the columns of some elements of a parameter, with at most so many effective draws."""
    columns = {column: np.full(len(indices), np.nan) for column in COLUMNS}
    if not indices:
        return columns
    elements = tuple(np.array(indices, int).reshape(len(indices), -1).T)
    if name in tree["posterior"].data_vars:
        array = parameter_array(tree, name)
        draws = np.asarray(array.to_numpy()[(slice(None), slice(None), *elements)], float)
        columns |= _statistics(draws.reshape(*draws.shape[:2], len(indices)), max_ess)
    else:
        columns |= {
            column: tree[group][name].to_numpy()[elements] for column, group in LOCAL_GROUPS.items()
        }
    for group in ERRORS:
        if group in tree.children and name in tree[group].data_vars:
            columns[group] = np.atleast_1d(tree[group][name].to_numpy()[elements])
    return columns


def _statistics(
    draws: Float[np.ndarray, "chain draw quantity"], max_ess: float
) -> dict[str, Column]:
    flat = draws.reshape(-1, draws.shape[2])
    sd = flat.std(axis=0)
    low, high = np.quantile(flat, [LEVELS["q05"], LEVELS["q95"]], axis=0)
    ess = effective_draws(draws, max_ess)
    mcse = np.where(sd > 0, sd / np.sqrt(ess), 0.0)  # a constant has no error
    return {
        "mean": flat.mean(axis=0),
        "sd": sd,
        "q05": low,
        "q95": high,
        "ess": ess,
        "mcse_mean": mcse,
    }
