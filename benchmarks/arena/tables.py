"""Tables and numbers in Markdown."""

from collections.abc import Sequence

import numpy as np

CAP = 100.0  # larger errors and ratios are printed as "> 100": beyond use, however large
LEAST_ERROR = 0.001  # smaller errors are printed as "< 0.001"
WORDS = "no|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]


def bold(text: str) -> str:
    """Return bold text."""
    return f"**{text}**"


def number(value: float | None, digits: int) -> str:
    """Format a number; a dash if there is none."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:.{digits}f}"


def capped(value: float | None, digits: int) -> str:
    """Format an error or a ratio; beyond the cap its size says nothing."""
    return f"> {CAP:g}" if value is not None and value > CAP else number(value, digits)


def error(value: float | None) -> str:
    """Format an error in posterior sds."""
    is_least = value is not None and value < LEAST_ERROR / 2
    return f"< {LEAST_ERROR:g}" if is_least else capped(value, 3)


def duration(value: float | None) -> str:
    """Format seconds without their unit, with a digit below a hundred."""
    return number(value, 0 if value is not None and value >= 99.95 else 1)


def seconds(value: float) -> str:
    """Format seconds, with a digit below ten."""
    return f"{value:.{0 if value >= 9.95 else 1}f} s"


def ratio(value: float) -> str:
    """Format a ratio with two digits or more."""
    return number(value, 0 if value >= 9.95 else 1 if value >= 1.95 else 2)


def count(value: int) -> str:
    """Write a count, in words up to twelve."""
    words = WORDS.split("|")
    return words[value] if value < len(words) else str(value)


def listed(names: Sequence[str]) -> str:
    """Join names by commas and a last "and"."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
