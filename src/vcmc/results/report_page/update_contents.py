"""The data of the report page's section on updates: estimates after each."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..quantities import Quantity
from .check_contents import as_number

if TYPE_CHECKING:
    from xarray import DataTree

MAX_VALUES = 40_000  # means and sds, over all quantities, to keep the page below 2 MB
UPDATES, MEAN, SD = "updates", "update_mean", "update_sd"  # groups of a tree


def update_contents(tree: "DataTree", elements: Sequence[Quantity]) -> dict[str, Any] | None:
    """Return the updates of a result and its estimates after each, ready for JSON.

    Args:
        tree: a result.
        elements: the quantities of the page; if they are too many, the first have estimates.
    """
    if UPDATES not in tree.children or MEAN not in tree.children:
        return None
    updates = tree[UPDATES]
    entries = {str(name): values.to_numpy() for name, values in updates.data_vars.items()}
    count = updates.sizes["update"]
    moments = {
        group: {str(name): values.to_numpy() for name, values in tree[group].data_vars.items()}
        for group in (MEAN, SD)
    }
    known = [quantity for quantity in elements if quantity.name in moments[MEAN]]
    return {
        "updates": [
            {
                "name": str(entries["name"][number]) if "name" in entries else str(number),
                "rows": as_number(entries["num_rows"][number], 15),
                "shards": as_number(entries["num_shards"][number]),
                "time": str(entries["time"][number]),
                "verdict": str(entries["verdict"][number]),
            }
            for number in range(count)
        ],
        "estimates": {
            quantity.label: [_by_update(moments[group], quantity) for group in (MEAN, SD)]
            for quantity in known[: max(1, MAX_VALUES // (2 * count))]
        },
    }


def _by_update(values: Mapping[str, np.ndarray], quantity: Quantity) -> list[float | int | None]:
    return [as_number(estimates[quantity.indices], 8) for estimates in values[quantity.name]]
