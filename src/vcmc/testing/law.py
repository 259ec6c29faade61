"""A law, and what is raised when it is broken."""

from typing import Any, NamedTuple

import numpy as np


class LawError(AssertionError):
    """A part breaks a law: the message says which, what was expected, what was got and what to try."""


class Law(NamedTuple):
    """A law that a part must keep.

    Attributes:
        part: who must keep it.
        says: the law.
        hint: what to try where it is broken.

    >>> Law("Half", "shards that agree are left alone", "let weights add up to one.").holds(
    ...     False, expected="1.0", got="0.5"
    ... )
    Traceback (most recent call last):
    ...
    vcmc.testing.law.LawError: Half breaks a law: shards that agree are left alone. Expected 1.0; got 0.5. Try this: let weights add up to one.
    """

    part: str
    says: str
    hint: str

    def broken(self, expected: str, got: str) -> LawError:
        """The error to raise."""
        return LawError(
            f"{self.part} breaks a law: {self.says}. Expected {expected}; got {got}. Try this: {self.hint}"
        )

    def holds(self, true: Any, expected: str, got: str) -> None:
        """Raise an error unless something is true."""
        if not bool(np.all(true)):
            raise self.broken(expected, got)

    def has_shape(self, values: Any, shape: tuple[int, ...], what: str) -> None:
        """Raise an error unless values are finite numbers in an array of some shape."""
        self.holds(
            np.shape(values) == shape, f"{what} of shape {shape}", f"shape {np.shape(values)}"
        )
        bad = ~np.isfinite(np.asarray(values))
        self.holds(
            not bad.any(), f"{what} that are finite", f"{bad.sum()} of {bad.size} that are not"
        )

    def close(self, found: Any, expected: Any, rtol: float = 0.0, atol: Any = 0.0) -> None:
        """Raise an error unless numbers are equal, up to `atol` and a share `rtol` of what is expected."""
        found, expected = np.asarray(found, float), np.asarray(expected, float)
        self.holds(
            found.shape == expected.shape,
            f"an array of shape {expected.shape}",
            f"shape {found.shape}",
        )
        with np.errstate(invalid="ignore"):  # infinities, which may be equal
            allowed = atol + rtol * np.where(np.isfinite(expected), np.abs(expected), 0.0)
            gap = np.where(found == expected, 0.0, np.abs(found - expected))
            excess = np.where(np.isnan(gap), np.inf, gap - allowed)
        if found.size == 0 or not (excess > 0).any():
            return
        worst = np.unravel_index(np.argmax(excess), gap.shape)
        where = f" at {tuple(int(i) for i in worst)}" if worst else ""
        within = np.broadcast_to(allowed, gap.shape)[worst]
        raise self.broken(
            f"{expected[worst]:.10g}{where}"
            + (f", within {within:.2g}" if within > 0 else " to the last bit"),
            f"{found[worst]:.10g}; {(excess > 0).sum()} of {gap.size} numbers are off",
        )


def name_of(part: Any) -> str:
    """What to call a part in an error: the name of its class, or of the function."""
    return getattr(part, "__name__", None) or type(part).__name__
