"""The answer of a method to a problem, and conversions that all methods share."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from problems import Problem

Draws = dict[str, np.ndarray]


class Answer(NamedTuple):
    """The draws so far, or their summary, and the seconds that they took.

    Attributes:
        draws: arrays (draw, …) by name, chain after chain or interleaved; empty before the first.
        seconds: seconds from the start to the last draw; of vcmc, of the whole call.
        seconds_compile: seconds of compilation among these, if known.
        seconds_critical: seconds with one machine per shard: start, compilation, slowest shard
            and combination.
        seconds_slowest: seconds of the slowest shard and the combination among these.
        stages: seconds by stage, if known.
        ready: seconds at which each draw was ready, for methods that draw one after the other.
        num_chains: number of chains whose draws are interleaved; 0 if draws are independent.
        num_shards: number of shards, if there are any.
        remark: settings and other facts worth printing.
        verdict: the method's own verdict on its result, if it has one.
        summary: mean, sd, 5 % and 95 % quantile of parameters without draws, as arrays (4, …) by
            name; NaN where the method has none.
    """

    draws: Draws
    seconds: float
    seconds_compile: float = np.nan
    seconds_critical: float = np.nan
    seconds_slowest: float = np.nan
    stages: Mapping[str, float] = MappingProxyType({})
    ready: np.ndarray | None = None
    num_chains: int = 0
    num_shards: int = 0
    remark: str = ""
    verdict: str = ""
    summary: Draws = {}  # noqa: RUF012


Method = Callable[[Problem], Iterator[Answer]]


def path_of(folder: Path, problem: str, content: str) -> Path:
    """Return the path, without suffix, of an answer or of another file about a problem."""
    words = (
        "".join(letter if letter.isalnum() else "-" for letter in name)
        for name in (problem, content)
    )
    return folder / "--".join(words)


def rows_of(problem: Problem) -> dict[str, Any]:
    """Return all rows as JAX arrays."""
    return {name: jnp.asarray(array) for name, array in problem.rows.items()}


def named(samples: Any) -> Draws:
    """Return draws as NumPy arrays."""
    return {name: np.asarray(values, float) for name, values in samples.items()}
