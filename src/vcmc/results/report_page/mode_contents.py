"""The table of the modes of a result, on the report page."""

from typing import TYPE_CHECKING

import numpy as np

from ...diagnostics.html_table import html_table

if TYPE_CHECKING:
    from xarray import DataTree

MAX_PARAMETERS = 6  # that the table names, for each mode
HEADS = ("mode", "weight", "draws", "verdict", "near")


def mode_table(tree: "DataTree") -> str:
    """Return weight, verdict and location of every mode in HTML; nothing if there is one."""
    if "mode_weights" not in tree.children:
        return ""
    weights, errors = (
        tree["mode_weights"][name].to_numpy() for name in ("weight", "standard_error")
    )
    verdicts = np.atleast_1d(tree.attrs["mode_verdicts"])
    counts = np.bincount(tree["draw_modes"]["mode"].to_numpy().ravel(), minlength=len(weights))
    rows = [
        (
            str(mode),
            f"{weights[mode]:.3f} ± {errors[mode]:.3f}",
            str(counts[mode]),
            str(verdicts[mode]),
            _location(tree, mode),
        )
        for mode in range(len(weights))
    ]
    return html_table(HEADS, rows)


def _location(tree: "DataTree", mode: int) -> str:
    """Return the first parameters at a mode, as text."""
    parts = [
        f"{name} = {np.array2string(values.to_numpy()[mode], precision=3, threshold=6)}"
        for name, values in tree["modes"].data_vars.items()
    ]
    return ", ".join(parts[:MAX_PARAMETERS])
