"""Pareto-smoothed importance sampling: importance weights, and whether they can be trusted.

Vehtari, Simpson, Gelman, Yao and Gabry, *Pareto smoothed importance sampling* (2024); ArviZ does
the smoothing.
"""

import numpy as np
from jaxtyping import Float

MIN_RATIOS = 25  # a tail is a fifth of the ratios, and a Pareto fit takes five
MIN_TAIL_RANGE = 1e-6  # nats: ratios of a tail that differ by less are equal
MAX_TAIL_RANGE = 500.0  # nats: ratios of a tail that differ by more underflow, and one has all mass


def smoothed_weights(
    log_ratios: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Return normalized weights and the Pareto shape k of their tail; above 0.7, distrust them.

    Equal ratios have k = 0; for fewer than 25 ratios, k is NaN. Where one ratio exceeds the others
    by hundreds of nats, k is infinite. Ratios of minus infinity get weight zero.
    """
    from arviz_stats.base import array_stats  # here, as it takes long to import

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
        log_weights, shape = array_stats.psislw(-log_ratios)  # it expects log likelihoods
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
