"""Pareto-smoothed importance sampling: importance weights, and whether they can be trusted.

Vehtari, Simpson, Gelman, Yao and Gabry, *Pareto smoothed importance sampling* (2024); ArviZ does
the smoothing.
"""

import numpy as np
from jaxtyping import Float

MIN_RATIOS = 25  # a tail is a fifth of the ratios, and a Pareto fit takes five
MIN_TAIL_RANGE = 1e-6  # nats: ratios of a tail that differ by less are equal


def smoothed_weights(
    log_ratios: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Return normalized weights and the Pareto shape k of their tail; above 0.7, distrust them.

    Equal ratios have k = 0; for fewer than 25 ratios, k is NaN.
    """
    from arviz_stats.base import array_stats  # here, as it takes long to import

    tail = np.sort(log_ratios)[-max(len(log_ratios) // 5, 1) :]
    if len(log_ratios) < MIN_RATIOS or np.ptp(tail) < MIN_TAIL_RANGE:
        weights = np.exp(log_ratios - np.max(log_ratios))
        return weights / weights.sum(), np.nan if len(log_ratios) < MIN_RATIOS else 0.0
    # Draws that are far off overflow. psislw expects log likelihoods, hence the sign.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        log_weights, shape = array_stats.psislw(-np.asarray(log_ratios, float))
    weights = np.exp(log_weights - np.max(log_weights))
    return weights / weights.sum(), float(shape)


def pareto_k(log_ratios: Float[np.ndarray, " draw"]) -> float:
    """Return the Pareto shape of the tail of importance ratios.

    >>> generator = np.random.default_rng(0)
    >>> [pareto_k(scale * generator.exponential(size=1000)) < 0.7 for scale in (0.3, 1.5)]
    [True, False]
    """
    return smoothed_weights(log_ratios)[1]
