"""Tables and numbers in Markdown."""

from collections.abc import Sequence

import numpy as np

CAP = 100.0  # larger errors and ratios are printed as "> 100": beyond use, however large


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]


def number(value: float | None, digits: int) -> str:
    """Format a number; a dash if there is none."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:.{digits}f}"


def capped(value: float | None, digits: int) -> str:
    """Format an error or a ratio; beyond the cap its size says nothing."""
    return f"> {CAP:g}" if value is not None and value > CAP else number(value, digits)


def seconds(value: float) -> str:
    """Format seconds, with a digit below ten."""
    return f"{value:.{0 if value >= 10 else 1}f} s"
