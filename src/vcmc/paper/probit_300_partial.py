"""Probit regression, d = 300, full prior in every shard: the paper's Figures 1 (right) and 6.

Everything is as in `probit_300.py`, but shards are partial posteriors, so the prior N(0, I) counts
K times in any average. The paper finds lower errors than with subposteriors: small shards inflate
probit coefficients, and a stronger prior counteracts that. Refinement is left out: it draws from
the same posterior, whatever the shards.
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
