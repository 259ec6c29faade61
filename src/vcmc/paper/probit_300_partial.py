"""Probit regression, d = 300, with the full prior in every shard: the paper's Figures 1 (right) and 6.

Everything is as in `probit_300.py`, but shards are partial posteriors. The prior N(0, I) then counts K times in any average; the paper finds lower
errors than with subposteriors, as a stronger prior counteracts what small shards do to probit coefficients, which is to inflate them. Refinement is left out: it
draws from the same posterior, whatever the shards were.
"""

from dataclasses import replace
from functools import partial

from .errors_by_shards import ErrorsByShards
from .probit_300 import SIZES, problem

EXPERIMENT = ErrorsByShards(
    "probit-300-partial",
    "Probit regression, partial posteriors",
    partial(problem, prior="partial"),
    {name: replace(size, refined=()) for name, size in SIZES.items()},
)
