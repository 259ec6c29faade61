r"""Leave rows out by Pareto-smoothed importance sampling, for a block of rows at once.

The weights of draws without a row are its inverse likelihoods, $w_s = 1 / p(x \mid \theta_s)$. The
$T$ largest of $S$ are replaced by quantiles of a generalized Pareto distribution, fitted to their
excesses $x_t$ over the next smaller one (Vehtari et al. 2024). The fit is the posterior mean of
Zhang and Stephens (2009), an average over $M$ values of $b$, the negative of shape over scale:

$$b_j = \frac 1 {x_T} + \frac{1 - \sqrt{M / (j - 1/2)}}{3 x_{\lfloor T/4 + 1/2 \rfloor}}, \quad
  k_j = \frac 1 T \sum_t \log(1 - b_j x_t), \quad
  L_j = T \, [\log(-b_j / k_j) - k_j - 1].$$

Only sorted weights matter: those below the tail are summed as they are. Their products with
likelihoods are one. The numbers are those of ArviZ, which treats row after row.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

# From Vehtari et al. (2024): the length of the tail, and the weight and mean of the prior of k.
MAX_FIFTH = 225  # effective draws, up to which the tail is a fifth of the draws
PRIOR_DRAWS, PRIOR_K = 10, 0.5
MIN_B_VALUES = 30  # of the average over b, beside the root of the number of draws in the tail
MIN_B_WEIGHT = 10 * np.finfo(float).eps
ROWS_AT_ONCE = 64  # whose draws, and whose values of b, a core's cache holds
SAMPLE_STEP = 10  # one of so many draws suggests which weights may belong to the tail,
SAMPLE_SDS = 4  # with a margin of so many standard deviations
FACTORS_PER_LOG = 8  # 1 - b x is between 0.001 and 1e37: a product of so many is a normal number
MAX_EQUAL = np.sqrt(np.finfo(float).eps)  # relative difference of weights that rounding explains

Rows = Float[np.ndarray, " row"]
LogLikelihoods = Float[np.ndarray, "row draw"]
Tails = Float[np.ndarray, "tail row"]


class LeftOut(NamedTuple):
    """Log predictive densities of rows without and with themselves, and Pareto's k."""

    elpd: Rows
    k: Rows
    log_mean: Rows


def leave_out(log_likelihoods: LogLikelihoods, relative_efficiency: float) -> LeftOut:
    """Leave out every row by smoothed weights of the draws.

    Weights whose largest values are equal need no smoothing: k is zero. Where no Pareto
    distribution can be fitted, e.g. as all weights but one vanish, weights are left as they are,
    and k is infinite.

    Args:
        log_likelihoods: finite log likelihoods of rows at all draws.
        relative_efficiency: effective draws per draw.
    """
    tail = num_tail(log_likelihoods.shape[1], relative_efficiency)
    with np.errstate(all="ignore"):
        parts = [
            _leave_out(log_likelihoods[first : first + ROWS_AT_ONCE], tail)
            for first in range(0, len(log_likelihoods), ROWS_AT_ONCE)
        ]
    return LeftOut(*(np.concatenate([*column]) for column in zip(*parts, strict=True)))


def num_tail(num_draws: int, relative_efficiency: float) -> int:
    """Return the number of draws whose weights are smoothed."""
    if num_draws * relative_efficiency <= MAX_FIFTH:
        return num_draws // 5
    return min(num_draws - 1, int(3 * np.sqrt(num_draws / relative_efficiency)))


def _leave_out(log_likelihoods: LogLikelihoods, tail: int) -> LeftOut:
    lowest = log_likelihoods.min(axis=1)
    values = lowest[:, None] - log_likelihoods  # log weights, of which the largest is zero
    body = values.shape[1] - tail
    log_tail = _largest(values, tail + 1).T.copy()
    log_cutoff, log_tail = log_tail[0], log_tail[1:]
    cutoff = np.exp(log_cutoff)
    smoothed, k = _smoothed(log_tail, cutoff)
    weights = np.exp(values, out=values)
    # weights of the tail count as the cutoff, so that no large number is subtracted
    body_sum = np.minimum(weights, cutoff[:, None]).sum(axis=1) - tail * cutoff
    # the sum of weights times likelihoods is one for each draw of the body
    excess = smoothed - log_tail
    top = np.maximum(excess.max(axis=0), 0.0)
    products = top + np.log(body * np.exp(-top) + np.exp(excess - top).sum(axis=0))
    elpd = lowest + products - np.log(body_sum + np.exp(smoothed).sum(axis=0))
    inverse = np.reciprocal(weights, out=weights).sum(axis=1)
    log_mean = lowest + np.log(inverse / weights.shape[1])
    overflows = ~np.isfinite(log_mean)
    if overflows.any():
        log_mean[overflows] = logsumexp(log_likelihoods[overflows], axis=1)
        log_mean[overflows] -= np.log(weights.shape[1])
    return LeftOut(elpd, k, log_mean)


def _largest(values: LogLikelihoods, count: int) -> Float[np.ndarray, "row count"]:
    """Return the largest values of each row, in increasing order.

    Few values are above a limit that some of the draws suggest; only they are sorted. The others
    of a row are not looked at, unless too few are above it.
    """
    expected = count / SAMPLE_STEP
    rank = int(np.ceil(expected + SAMPLE_SDS * np.sqrt(expected)))
    if 4 * SAMPLE_STEP * rank > values.shape[1]:
        return np.sort(np.partition(values, -count, axis=1)[:, -count:], axis=1)
    limits = np.partition(values[:, ::SAMPLE_STEP], -rank, axis=1)[:, -rank]
    is_above = values >= limits[:, None]
    counts = is_above.sum(axis=1)
    above = np.full((len(values), max(count, counts.max())), -np.inf)
    above[np.arange(above.shape[1]) < counts[:, None]] = values[is_above]
    above = np.sort(above, axis=1)[:, -count:]
    for row in np.flatnonzero(counts < count):
        above[row] = np.sort(values[row])[-count:]
    return above


def _smoothed(log_tail: Tails, cutoff: Rows) -> tuple[Tails, Rows]:
    """Return the smoothed log weights of tails in increasing order, and Pareto's k."""
    excesses = np.exp(log_tail) - cutoff
    k, scale = _fit(excesses)
    length = len(log_tail)
    log_survival = np.log1p(-(np.arange(length) + 0.5) / length)[:, None]
    quantiles = np.where(k == 0, -log_survival, np.expm1(-k * log_survival) / k)
    smoothed = np.minimum(np.log(cutoff + scale * quantiles), 0.0)
    is_equal = log_tail[0] == log_tail[-1]
    has_failed = is_equal | ~(np.isfinite(k) & (scale > 0)) | np.isnan(smoothed).any(axis=0)
    k = np.where(has_failed, np.where(is_equal | (excesses[-1] < MAX_EQUAL), 0.0, np.inf), k)
    return np.where(has_failed, log_tail, smoothed), k


def _fit(excesses: Tails) -> tuple[Rows, Rows]:
    """Return shape and scale of generalized Pareto distributions of sorted excesses."""
    length = len(excesses)
    count = MIN_B_VALUES + int(np.sqrt(length))
    steps = 1 - np.sqrt(count / (np.arange(count) + 0.5))
    b = 1 / excesses[-1] + steps[:, None] / (3 * excesses[int(length / 4 + 0.5) - 1])
    shapes = _mean_logs(b, excesses)
    log_weights = length * (np.log(-b / shapes) - shapes - 1)
    weights = np.exp(log_weights - log_weights.max(axis=0))
    weights[weights < MIN_B_WEIGHT * weights.sum(axis=0)] = 0.0
    b_mean = (weights * b).sum(axis=0) / weights.sum(axis=0)
    k = np.log1p(-b_mean * excesses).mean(axis=0)
    return (length * k + PRIOR_DRAWS * PRIOR_K) / (length + PRIOR_DRAWS), -k / b_mean


def _mean_logs(
    b: Float[np.ndarray, "value row"], excesses: Tails
) -> Float[np.ndarray, "value row"]:
    """Return the means of log(1 - b x) over the tail, from logarithms of products of factors."""
    total = np.zeros_like(b)
    # few calls of long loops, in which other threads may run
    factors = np.empty((FACTORS_PER_LOG, *b.shape))
    for first in range(0, len(excesses), FACTORS_PER_LOG):
        group = excesses[first : first + FACTORS_PER_LOG, None]
        part = np.multiply(b, group, out=factors[: len(group)])
        product = np.multiply.reduce(np.subtract(1.0, part, out=part), axis=0)
        total += np.log(product, out=product)
    total /= len(excesses)
    overflows = ~np.isfinite(total).all(axis=0)
    if overflows.any():
        terms = np.log1p(-b[:, None, overflows] * excesses[:, overflows])
        total[:, overflows] = terms.mean(axis=1)
    return total


def smooth_weights(
    log_weights: Float[np.ndarray, " draw"], relative_efficiency: float
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Return smoothed log weights of draws, which sum to one, and Pareto's k.

    Args:
        log_weights: log weights, not normalized; minus infinity is no weight.
        relative_efficiency: effective draws per draw.
    """
    tail = num_tail(len(log_weights), relative_efficiency)
    values = log_weights - log_weights.max()
    order = np.argsort(values)[-tail - 1 :]
    with np.errstate(all="ignore"):
        smoothed, k = _smoothed(values[order[1:], None], np.exp(values[order[:1]]))
    values[order[1:]] = smoothed[:, 0]
    return values - logsumexp(values), float(k[0])
