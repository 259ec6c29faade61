"""What a method gives, and what all of them are given alike."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from problems import Problem

Draws = dict[str, np.ndarray]


class Answer(NamedTuple):
    """Draws so far (draw, …), and the seconds since the beginning; what was compiled by then, if it can be told apart.

    Attributes:
        draws: by name, of one chain after the other, or of chains in turns; none as long as there are none.
        seconds: when they were there.
        seconds_compile: how many of these went into compiling.
        seconds_critical: with a machine for each shard: start, compiling, slowest shard and combination.
        seconds_slowest: of these, slowest shard and combination.
        ready: when each draw was there, where draws come one after the other.
        remark: whatever else there is to say.
    """

    draws: Draws
    seconds: float
    seconds_compile: float = np.nan
    seconds_critical: float = np.nan
    seconds_slowest: float = np.nan
    ready: np.ndarray | None = None
    remark: str = ""


Method = Callable[[Problem], Iterator[Answer]]


def path_of(folder: Path, problem: str, what: str) -> Path:
    """Where an answer is kept, or what else there is of a problem; the ending is yet to come."""
    words = (
        "".join(letter if letter.isalnum() else "-" for letter in name) for name in (problem, what)
    )
    return folder / "--".join(words)


def rows_of(problem: Problem) -> dict[str, Any]:
    """All rows, on JAX's device."""
    return {name: jnp.asarray(array) for name, array in problem.rows.items()}


def named(samples: Any) -> Draws:
    """Draws as NumPy arrays."""
    return {name: np.asarray(values, float) for name, values in samples.items()}


def names_of(problem: Problem) -> frozenset[str]:
    """Names of the NumPyro model's parameters: others may have more."""
    import vcmc

    return frozenset(vcmc.from_numpyro(problem.model, problem.rows).space)
