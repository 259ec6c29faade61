"""The modes of a result, for the table on the report page."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .check_contents import as_number

if TYPE_CHECKING:
    from xarray import DataTree

MAX_PARAMETERS = 6  # scalars that the table names, for each mode


def mode_contents(tree: "DataTree") -> list[dict[str, Any]]:
    """Return weight, location and verdict of every mode; nothing if there is one."""
    if "mode_weights" not in tree.children:
        return []
    weights = tree["mode_weights"]
    verdicts = np.atleast_1d(tree.attrs.get("mode_verdicts", []))
    labels = tree["draw_modes"]["mode"].to_numpy().ravel()
    return [
        {
            "mode": mode,
            "weight": as_number(float(weights["weight"][mode])),
            "standardError": as_number(float(weights["standard_error"][mode]), 2),
            "numDraws": int((labels == mode).sum()),
            "verdict": str(verdicts[mode]) if mode < len(verdicts) else "",
            "location": _location(tree, mode),
        }
        for mode in range(len(weights["weight"]))
    ]


def _location(tree: "DataTree", mode: int) -> str:
    """Return the first parameters at a mode, as text."""
    parts = [
        f"{name} = {np.array2string(values.to_numpy()[mode], precision=3, threshold=6)}"
        for name, values in tree["modes"].data_vars.items()
    ]
    return ", ".join(parts[:MAX_PARAMETERS])
