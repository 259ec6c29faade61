"""A law of an interface, and the error that is raised when a part breaks it."""

from typing import Any, NamedTuple

import numpy as np


class LawError(AssertionError):
    """A part breaks a law.

    The message names the law, the expected and the actual value, and a remedy.
    """


class Law(NamedTuple):
    """A law that a part must obey.

    Attributes:
        part: name of the part.
        statement: the law in words.
        hint: what to try if it is broken.

    >>> law = Law("Half", "equal points are a fixed point", "make the weights sum to one.")
    >>> law.holds(False, expected="1.0", got="0.5")
    Traceback (most recent call last):
    ...
    vcmc.testing.law.LawError: Half breaks a law: equal points are a fixed point.
    Expected 1.0; got 0.5. Try this: make the weights sum to one.
    """

    part: str
    statement: str
    hint: str

    def broken(self, expected: str, got: str) -> LawError:
        """Return the error to raise."""
        return LawError(
            f"{self.part} breaks a law: {self.statement}. "
            f"Expected {expected}; got {got}. Try this: {self.hint}"
        )

    def holds(self, condition: Any, expected: str, got: str) -> None:
        """Raise an error unless a condition is true, everywhere if it is an array."""
        if not bool(np.all(condition)):
            raise self.broken(expected, got)

    def has_shape(self, values: Any, shape: tuple[int, ...], name: str) -> None:
        """Raise an error unless values are an array of this shape with finite numbers."""
        self.holds(
            np.shape(values) == shape, f"{name} of shape {shape}", f"shape {np.shape(values)}"
        )
        bad = ~np.isfinite(np.asarray(values))
        self.holds(
            not bad.any(), f"{name} that are finite", f"{bad.sum()} of {bad.size} that are not"
        )

    def close(self, actual: Any, expected: Any, rtol: float = 0.0, atol: Any = 0.0) -> None:
        """Raise an error unless |actual - expected| ≤ atol + rtol |expected| for all elements."""
        actual, expected = np.asarray(actual, float), np.asarray(expected, float)
        self.holds(
            actual.shape == expected.shape,
            f"an array of shape {expected.shape}",
            f"shape {actual.shape}",
        )
        with np.errstate(invalid="ignore"):  # infinities, which may be equal
            allowed = atol + rtol * np.where(np.isfinite(expected), np.abs(expected), 0.0)
            gap = np.where(actual == expected, 0.0, np.abs(actual - expected))
            excess = np.where(np.isnan(gap), np.inf, gap - allowed)
        if actual.size == 0 or not (excess > 0).any():
            return
        worst = np.unravel_index(np.argmax(excess), gap.shape)
        where = f" at {tuple(int(i) for i in worst)}" if worst else ""
        within = np.broadcast_to(allowed, gap.shape)[worst]
        raise self.broken(
            f"{expected[worst]:.10g}{where}"
            + (f", within {within:.2g}" if within > 0 else " to the last bit"),
            f"{actual[worst]:.10g}; {(excess > 0).sum()} of {gap.size} numbers are off",
        )


def name_of(part: Any) -> str:
    """Return the name of a part for messages: its class, or the function."""
    return getattr(part, "__name__", None) or type(part).__name__
