r"""Estimate the integral $Z$ of an unnormalized density $p$, given a normalized proposal $g$.

Importance sampling takes draws of $g$ alone, $Z = \mathbb E_g[p / g]$. Bridge sampling (Meng and
Wong, *Simulating ratios of normalizing constants via a simple identity*, 1996) takes $N_1$ draws of
$p$, too, and iterates

$$Z \leftarrow \frac
  {\frac 1 {N_2} \sum_{u \sim g} l(u) / (s_1 l(u) + s_2 Z)}
  {\frac 1 {N_1} \sum_{u \sim p} 1 / (s_1 l(u) + s_2 Z)},
  \qquad l = p / g, \quad s_i = \frac {N_i} {N_1 + N_2}.$$

Its variance is finite wherever $p$ and $g$ overlap, but it is right only if the draws of $p$ are.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from .importance import pareto_k

MAX_ITERATIONS = 1000
TOLERANCE = 1e-10  # of log Z, in nats

LogRatios = Float[np.ndarray, " draw"]


class LogIntegral(NamedTuple):
    """An estimate of log Z, and its standard error in nats."""

    value: float
    standard_error: float


def importance_estimate(log_ratios: LogRatios) -> tuple[LogIntegral, float]:
    """Return log Z from the log ratios p / g at draws of g, and the Pareto k of the ratios."""
    count = len(log_ratios)
    value = float(logsumexp(log_ratios) - np.log(count))
    if not np.isfinite(value):
        return LogIntegral(value, np.inf), np.inf
    ratios = np.exp(log_ratios - value)
    return LogIntegral(value, float(np.std(ratios) / np.sqrt(count))), pareto_k(log_ratios)


def bridge_estimate(
    at_draws: LogRatios, at_proposals: LogRatios, num_effective: float
) -> LogIntegral:
    """Return log Z by bridge sampling.

    Args:
        at_draws: log ratios p / g at draws of p.
        at_proposals: log ratios p / g at draws of g.
        num_effective: the number of independent draws that those of p are worth.
    """
    count = len(at_proposals)
    log_shares = np.log([num_effective, count]) - np.log(num_effective + count)
    value = float(np.median(at_draws))
    for _ in range(MAX_ITERATIONS):
        over, under = _terms(at_draws, at_proposals, value, log_shares)
        change = float(logsumexp(over) - np.log(count) - logsumexp(under) + np.log(len(under)))
        value += change
        if not abs(change) > TOLERANCE:
            break
    if not np.isfinite(value) or abs(change) > TOLERANCE:
        return LogIntegral(value, np.inf)
    over, under = _terms(at_draws, at_proposals, value, log_shares)
    variance = _relative_variance(over) / count + _relative_variance(under) / num_effective
    return LogIntegral(value, float(np.sqrt(variance)))


def _terms(
    at_draws: LogRatios, at_proposals: LogRatios, value: float, log_shares: np.ndarray
) -> tuple[LogRatios, LogRatios]:
    """Return the logarithms of the terms of both sums, for a given log Z."""
    draws, proposals = at_draws - value, at_proposals - value
    over = proposals - np.logaddexp(log_shares[0] + proposals, log_shares[1])
    under = -np.logaddexp(log_shares[0] + draws, log_shares[1])
    return over, under


def _relative_variance(log_terms: LogRatios) -> float:
    terms = np.exp(log_terms - np.max(log_terms))
    return float(np.var(terms) / np.mean(terms) ** 2)
