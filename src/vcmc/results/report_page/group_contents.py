"""The data of the report page's section on groups: numbers of as many groups as a page can hold.

Of more groups, those with the lowest and the highest means are kept, those with the fewest and
the most rows, and evenly spaced ones in the order of the means of the first local quantity.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from ..group_summaries import GroupSummary, group_sizes, group_summaries
from ..quantities import local_names

if TYPE_CHECKING:
    from xarray import DataTree

# A number takes about seven bytes, and a label 15: groups take about 1 MB.
MAX_NUMBERS = 120_000  # means, sds and ends of intervals, over all groups and quantities
MAX_SUMMARIES = 40  # local quantities
MAX_LABEL_LENGTH = 60  # characters
MAX_SHARE_OF_EXTREMES = 0.25  # of the groups that are kept
NUMBERS_PER_GROUP = 4
SD_DIGITS = 3  # of an sd, to which all numbers of a group are rounded


def group_contents(tree: "DataTree") -> dict[str, Any] | None:
    """Return the numbers of groups, ready for JSON; None if the model has no groups.

    `quantities` is empty if no local parameters were drawn.
    """
    if "groups" not in tree.attrs or "posterior" not in tree.children:
        return None
    column = str(tree.attrs["groups"])
    if not local_names(tree):
        return {"column": column, "quantities": []}
    available = group_summaries(tree)
    summaries = available[:MAX_SUMMARIES]
    sizes = group_sizes(tree)
    num_groups = len(summaries[0].groups)
    kept = _kept(summaries, sizes, MAX_NUMBERS // (NUMBERS_PER_GROUP * len(summaries)))
    return {
        "column": column,
        "numGroups": num_groups,
        "numQuantities": len(available),
        "labels": [str(label)[:MAX_LABEL_LENGTH] for label in summaries[0].groups[kept]],
        "sizes": None if sizes is None else sizes[kept].tolist(),
        "quantities": [_numbers(summary, kept) for summary in summaries],
    }


def _kept(
    summaries: Sequence[GroupSummary], sizes: np.ndarray | None, max_groups: int
) -> Int[np.ndarray, " kept"]:
    """Return the numbers of the groups that the page holds."""
    num_groups = len(summaries[0].groups)
    if num_groups <= max_groups:
        return np.arange(num_groups)
    orders = [summary.order() for summary in summaries]
    if sizes is not None:
        orders.append(np.argsort(sizes, kind="stable"))
    num_extremes = max(1, int(MAX_SHARE_OF_EXTREMES * max_groups / (2 * len(orders))))
    extremes = [order[ends] for order in orders for ends in _ends(num_extremes)]
    num_even = max(1, max_groups - 2 * num_extremes * len(orders))
    even = orders[0][np.linspace(0, num_groups - 1, num_even).round().astype(int)]
    return np.unique(np.concatenate([*extremes, even]))


def _ends(count: int) -> tuple[slice, slice]:
    return slice(None, count), slice(-count, None)


def _numbers(summary: GroupSummary, kept: Int[np.ndarray, " kept"]) -> dict[str, Any]:
    """Return one local quantity: its numbers by group, and the ranks of the means if some groups
    are left out.
    """
    shown = summary.at(kept)
    digits = [_num_decimals(float(sd)) for sd in shown.sd]
    numbers: dict[str, Any] = {
        name: [_rounded(float(value), num) for value, num in zip(values, digits, strict=True)]
        for name, values in (
            ("mean", shown.mean),
            ("sd", shown.sd),
            ("low", shown.low),
            ("high", shown.high),
        )
    }
    if len(kept) < len(summary.groups):
        ranks = np.empty(len(summary.groups), int)
        ranks[summary.order()] = np.arange(len(summary.groups))
        numbers["ranks"] = ranks[kept].tolist()
    return {
        "label": summary.label,
        "average": _rounded(float(np.mean(summary.mean)), _num_decimals(summary.total_sd)),
        "totalSd": _rounded(summary.total_sd, _num_decimals(summary.total_sd)),
        **numbers,
    }


def _num_decimals(sd: float) -> int:
    """Return the number of decimals that show an sd with `SD_DIGITS` digits."""
    if not (math.isfinite(sd) and sd > 0):
        return SD_DIGITS
    return SD_DIGITS - 1 - math.floor(math.log10(sd))


def _rounded(value: float, num_decimals: int) -> float | int | None:
    """Round a number; return None for NaN and infinity, which JSON does not have."""
    if not math.isfinite(value):
        return None
    rounded = round(value, num_decimals)
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
