"""Whether chains on the full data move away from the combined draws they start at.

Chains that start at draws of the posterior remain draws of the posterior. If means or sds of their
positions change by more than chance explains, the draws were wrong, whatever the shape of the
posterior. The converse does not hold: a few short chains do not notice a small error.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..diagnostics import convergence
from ..target import Target
from .ensemble import Goal, run_chains

NUM_CHAINS, NUM_ITERATIONS = 32, 40
MIN_DRIFT = 0.2  # sds, and log sds: what matters
NUM_STANDARD_ERRORS = 4.0  # of a drift that chance does not explain, in any of many coordinates

Draws = Float[np.ndarray, "draw dim"]


def drift(draws: Draws, target: Target, names: Sequence[str], seed: int) -> str:
    """Return a sentence on the coordinate that chains move most; empty if none moves much."""
    goal = Goal(np.inf, NUM_CHAINS, NUM_ITERATIONS)
    try:
        run = run_chains(target, draws, goal, seed)
    except ValueError:  # the log density is not finite at the draws
        return ""
    ends = run.draws.reshape(-1, draws.shape[1])
    ess = np.maximum(convergence.ess(run.draws[None])[0], 4.0)
    sds = np.maximum(draws.std(axis=0), ends.std(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        shifts = (ends.mean(axis=0) - draws.mean(axis=0)) / sds
        stretches = np.log(ends.std(axis=0) / draws.std(axis=0))
    is_moved = np.abs(shifts) > np.maximum(MIN_DRIFT, NUM_STANDARD_ERRORS / np.sqrt(ess))
    is_wider = np.abs(stretches) > np.maximum(MIN_DRIFT, NUM_STANDARD_ERRORS / np.sqrt(2 * ess))
    if is_moved.any():
        worst = int(np.argmax(np.where(is_moved, np.abs(shifts), 0.0)))
        change = f"the mean of {names[worst]} by {shifts[worst]:+.2f} sd"
    elif is_wider.any():
        worst = int(np.argmax(np.where(is_wider, np.abs(stretches), 0.0)))
        change = f"the sd of {names[worst]} by a factor of {np.exp(stretches[worst]):.2g}"
    else:
        return ""
    return (
        "Short chains on all rows that start at the draws move away from them: they change "
        f"{change} (in unconstrained coordinates)."
    )
