"""Pareto-smoothed importance sampling: weights of draws, and whether they can be trusted.

Vehtari, Simpson, Gelman, Yao and Gabry, *Pareto smoothed importance sampling* (2024); ArviZ does the smoothing.
"""

import numpy as np
from jaxtyping import Float

FEW = 25  # ratios: a fifth of them would be the tail
SAME = 1e-6  # nats by which the ratios of a tail differ at least


def smoothed_weights(
    log_ratios: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Weights that add up to one, and the shape k of the tail of the ratios: above 0.7 the weights are not to be trusted.

    Ratios that are all the same have no tail; of few ratios nothing is known.
    """
    from arviz_stats.base import array_stats  # here, not above: it takes long to import

    tail = np.sort(log_ratios)[-max(len(log_ratios) // 5, 1) :]
    if len(log_ratios) < FEW or np.ptp(tail) < SAME:
        weights = np.exp(log_ratios - np.max(log_ratios))
        return weights / weights.sum(), np.nan if len(log_ratios) < FEW else 0.0
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # of draws that are far off
        log_weights, shape = array_stats.psislw(
            -np.asarray(log_ratios, float)
        )  # made for log likelihoods
    weights = np.exp(log_weights - np.max(log_weights))
    return weights / weights.sum(), float(shape)


def pareto_k(log_ratios: Float[np.ndarray, " draw"]) -> float:
    """The shape of the tail of importance ratios.

    >>> generator = np.random.default_rng(0)
    >>> [pareto_k(scale * generator.exponential(size=1000)) < 0.7 for scale in (0.3, 1.5)]
    [True, False]
    """
    return smoothed_weights(log_ratios)[1]
