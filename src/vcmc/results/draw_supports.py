"""Recognise draws of constrained parameters whose space was not declared.

Averages of real coordinates stay in a space, and averages on the raw scale are pulled towards wide
shards. Which of the two is right cannot be known from draws, so users are asked.
"""

from collections.abc import Iterable, Mapping

import numpy as np

MAX_SUM_ERROR = 1e-4  # of a probability vector, whose numbers a file may have rounded
MAX_NAMED_PARAMETERS = 5  # in a message


class DrawSupports:
    """The supports that all draws of a parameter lie in, updated array by array."""

    def __init__(self) -> None:
        self._spaces: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, draws: np.ndarray, shape: tuple[int, ...]) -> None:
        """Consider draws of a parameter whose values have the given shape."""
        spaces = _spaces(np.asarray(draws), shape)
        self._spaces[name] = tuple(
            space for space in self._spaces.get(name, spaces) if space in spaces
        )

    def warning(self, declared: Iterable[str]) -> list[str]:
        """Return a warning about parameters whose space is not among those declared."""
        known = set(declared)
        found = {
            name: spaces[0] for name, spaces in self._spaces.items() if spaces and name not in known
        }
        if not found:
            return []
        named = dict(list(found.items())[:MAX_NAMED_PARAMETERS])
        more = ", …" if len(found) > len(named) else ""
        return [
            f"all draws of {', '.join(named)}{more} are {_kinds(named)}, but no space was given, "
            "so that they are combined as real numbers. If they are so by definition, pass "
            f"{_arguments(named)}{more}, or on the command line {_options(named)}{more}; "
            "otherwise vcmc.Real(...), or NAME=real."
        ]


def _spaces(draws: np.ndarray, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the constrained spaces, the narrowest first, in which all draws lie."""
    sizes = ", ".join(map(str, shape))
    spaces = []
    low, high = draws.min(), draws.max()
    is_vector = len(shape) > 0 and shape[-1] > 1
    if is_vector and low >= 0 and np.abs(draws.sum(axis=-1) - 1).max() <= MAX_SUM_ERROR:
        spaces.append(f"Simplex({sizes})")
    if low > 0 and high < 1:
        spaces.append(f"Interval({', '.join(['0, 1', *map(str, shape)])})")
    if low > 0:
        spaces.append(f"Positive({sizes})")
    return tuple(spaces)


KINDS = {
    "Positive": ("positive", "positive"),
    "Interval": ("between 0 and 1", "interval"),
    "Simplex": ("probability vectors", "simplex"),
}


def _kinds(named: Mapping[str, str]) -> str:
    kinds = dict.fromkeys(KINDS[space.split("(")[0]][0] for space in named.values())
    return " or ".join(kinds)


def _arguments(named: Mapping[str, str]) -> str:
    items = ", ".join(f"{name!r}: vcmc.{space}" for name, space in named.items())
    return f"space={{{items}}}"


def _options(named: Mapping[str, str]) -> str:
    return " ".join(
        f"--space {name}={KINDS[space.split('(')[0]][1]}" for name, space in named.items()
    )
