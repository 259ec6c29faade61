"""Pareto-smoothed importance sampling: importance weights, and whether they can be trusted.

Vehtari, Simpson, Gelman, Yao and Gabry, *Pareto smoothed importance sampling* (2024), as in ArviZ,
which takes longer to import than all else in a diagnosis.
"""

import numpy as np
from jaxtyping import Float

MIN_RATIOS = 25  # a tail is a fifth of the ratios, and a Pareto fit takes five
MIN_TAIL_RANGE = 1e-6  # nats: ratios of a tail that differ by less are equal
MIN_ROOT_RATIOS = 225  # above, a tail has 3 √(number of ratios)
# Zhang and Stephens (2009), A new and efficient estimation method for the generalized Pareto
# distribution: number of candidates, scale of their prior; and the prior of the shape, in ratios.
MIN_CANDIDATES, CANDIDATE_SCALE = 30, 3.0
PRIOR_RATIOS, PRIOR_SHAPE = 10.0, 0.5
MAX_TAIL_RANGE = 500.0  # nats: ratios of a tail that differ by more underflow, and one has all mass


def smoothed_weights(
    log_ratios: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Return normalized weights and the Pareto shape k of their tail; above 0.7, distrust them.

    Equal ratios have k = 0; for fewer than 25 ratios, k is NaN. Where one ratio exceeds the others
    by hundreds of nats, k is infinite. Ratios of minus infinity get weight zero.
    """
    log_ratios = np.asarray(log_ratios, float) - np.max(log_ratios)
    weights = np.exp(log_ratios) / np.exp(log_ratios).sum()
    if len(log_ratios) < MIN_RATIOS:
        return weights, np.nan
    tail_range = -np.sort(log_ratios)[-(len(log_ratios) // 5)]
    if tail_range < MIN_TAIL_RANGE:
        return weights, 0.0
    if not tail_range < MAX_TAIL_RANGE:
        return weights, np.inf
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        log_weights, shape = _smoothed(log_ratios)
    smoothed = np.exp(log_weights - np.max(log_weights))
    if not np.isfinite(smoothed).all():
        return weights, np.inf
    return smoothed / smoothed.sum(), float(shape)


def pareto_k(log_ratios: Float[np.ndarray, " draw"]) -> float:
    """Return the Pareto shape of the tail of importance ratios.

    >>> generator = np.random.default_rng(0)
    >>> [pareto_k(scale * generator.exponential(size=1000)) < 0.7 for scale in (0.3, 1.5)]
    [True, False]
    """
    return smoothed_weights(log_ratios)[1]


def _smoothed(log_ratios: Float[np.ndarray, " draw"]) -> tuple[Float[np.ndarray, " draw"], float]:
    """Replace the tail of ratios, the largest being one, by quantiles of a Pareto distribution."""
    count = len(log_ratios)
    length = int(3 * count**0.5) if count > MIN_ROOT_RATIOS else count // 5
    order = np.argsort(log_ratios)
    tail = order[-length:]
    cutoff = np.exp(log_ratios[order[-length - 1]])
    shape, scale = _pareto_fit(np.exp(log_ratios[tail]) - cutoff)
    smoothed = log_ratios.copy()
    if np.isfinite(shape):
        log_survival = np.log1p(-np.arange(0.5, length) / length)
        factors = np.expm1(-shape * log_survival) / shape if shape else -log_survival
        smoothed[tail] = np.log(cutoff + scale * factors) if scale > 0 else np.nan
    return np.minimum(smoothed, 0.0), float(shape)


def _pareto_fit(excesses: Float[np.ndarray, " tail"]) -> tuple[float, float]:
    """Return shape and scale of the generalized Pareto distribution of ascending excesses."""
    count = len(excesses)
    num_candidates = MIN_CANDIDATES + int(count**0.5)
    quantile = 1 - np.sqrt(num_candidates / (np.arange(num_candidates) + 0.5))
    rates = quantile / (CANDIDATE_SCALE * excesses[int(count / 4 + 0.5) - 1]) + 1 / excesses[-1]
    shapes = np.mean(np.log1p(-rates[:, None] * excesses), axis=1)
    log_likelihoods = count * (np.log(-rates / shapes) - shapes - 1)
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    weights = np.where(weights >= 10 * np.finfo(float).eps * weights.sum(), weights, 0.0)
    rate = float(np.sum(rates * weights) / weights.sum())
    shape = float(np.mean(np.log1p(-rate * excesses)))
    weighted = (count * shape + PRIOR_RATIOS * PRIOR_SHAPE) / (count + PRIOR_RATIOS)
    return weighted, -shape / rate
