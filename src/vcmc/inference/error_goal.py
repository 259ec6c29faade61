"""Sample, combine and refine until the estimated errors of a result are as small as asked for.

A result is within a goal if no mean, sd or 5 % or 95 % quantile is off by more, by its own estimate
and one standard error: in posterior sds, relative for sds. If it is not, shards draw more and the
combination evaluates more draws; if that does not help, the draws are refined.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ..combiners import AbstractCombiner, Variational
from ..diagnostics.verdict import Diagnosis, EstimatedError, estimated_errors
from ..variational.newton import Newton
from .arguments import DEFAULT_DRAWS
from .ensemble import Goal

MAX_ERROR = 0.5  # sds; a larger goal says nothing
MIN_ERROR = 0.005  # sds; a smaller one takes more draws than fit
SHARD_DRAWS_GROWTH = 4  # factor of the second round
# Shares of the goal: standard errors of quantiles by the number of draws, so that the largest of
# many is within it; and of the noise of the combination.
QUANTILE_SHARE = 1 / 4
NOISE_SHARE = 1 / 5
QUANTILE_VARIANCE = 1.7  # of one draw, in squared sds (`diagnostics/sampling_error.py`)
REFINED_SHARE = 1 / 3  # standard error of a mean by refined draws


def check_error(error: Any) -> None:
    """Raise a `ValueError` unless a goal is None or a number of sds that can be reached."""
    is_number = isinstance(error, int | float | np.number) and not isinstance(error, bool)
    if error is not None and not (is_number and MIN_ERROR <= error <= MAX_ERROR):
        raise ValueError(
            f"error must be a number of posterior sds between {MIN_ERROR} and {MAX_ERROR}, e.g. "
            f"error=0.05; got {error!r}."
        )


def draws_for_error(error: float | None) -> int:
    """Return the number of posterior draws for a goal, or without one.

    >>> draws_for_error(None), draws_for_error(0.05)
    (5000, 10880)
    """
    if error is None:
        return DEFAULT_DRAWS
    return max(DEFAULT_DRAWS, int(np.ceil(QUANTILE_VARIANCE / (QUANTILE_SHARE * error) ** 2)))


def precise_combiner(combiner: AbstractCombiner, error: float) -> AbstractCombiner:
    """Return a combiner whose noise is below the goal, if it is one that can be told so."""
    if isinstance(combiner, Variational) and isinstance(combiner.optimizer, Newton):
        optimizer = replace(combiner.optimizer, max_noise=NOISE_SHARE * error)
        return replace(combiner, optimizer=optimizer)
    return combiner


def refinement_goal(error: float) -> Goal:
    """Return how many effective draws a refinement must reach."""
    return Goal(min_ess=float(np.ceil(1 / (REFINED_SHARE * error) ** 2)))


def shortfall(diagnosis: Diagnosis, error: float) -> str:
    """Return a sentence that says why a result misses the goal; an empty one if it does not."""
    if not diagnosis.errors:
        reason = diagnosis.basis or "its errors cannot be estimated."
        return f"The error goal of {error:g} sd cannot be confirmed: {reason}"
    largest = max(estimated_errors(diagnosis), key=_size, default=None)
    if largest is None or _size(largest) <= error:
        return ""
    return (
        f"The error goal of {error:g} sd was not reached: the estimated error of the "
        f"{largest.noun} of {largest.label} is {largest}."
    )


def _size(error: EstimatedError) -> float:
    return abs(error.value) + error.standard_error
