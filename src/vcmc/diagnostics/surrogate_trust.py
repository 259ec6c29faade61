r"""Whether a surrogate of old rows, fitted to old draws, can be trusted where new rows lead.

Three questions, of which each has an answer in a sentence. Are there old draws around the new ones?
A density that was fitted to draws is a guess beyond them. Do the old draws, weighted by the
likelihood of the new rows, which needs no surrogate, give the same result? And do new rows agree
with the old ones: if they do, the posterior mean moves by $\Delta \sim N(0, \Sigma - \Sigma')$ when
its covariance shrinks from $\Sigma$ to $\Sigma'$.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc, chdtri

from ..linalg.shrinkage import TINY
from .importance import smoothed_weights
from .surrogate_errors import Draws, Statistics, Values, WeightedStatistics
from .verdict import STANDARD_ERRORS, STATISTICS

MIN_DRAWS_BEYOND = 5.0  # effective old draws beyond the new mean: at 5000, a move of 3.1 sds
ELLIPSOID_LEVEL = 0.01  # of old draws outside the ellipsoid that must hold the new mean
NUM_WEIGHTED = 2000  # old draws that are weighted by the likelihood of new rows
MAX_PARETO_K = 0.5  # below it, the variance of the weights is finite
MIN_EFFECTIVE = 100.0  # weighted draws
MAX_DIFFERENCE = 0.1  # sds, or relative, between the result and the weighted draws …
NUM_STANDARD_ERRORS = 4.0  # … and that many standard errors, for any of many quantities
NUM_BOOTSTRAPS = 50  # a standard error is known to a tenth
FALSE_ALARM_RATE = 1e-4  # of the test for disagreement
MIN_NARROWING = 0.02  # of a variance: what new rows say nothing about cannot disagree

ADVICE = "Give the old rows: vcmc.update(tree, model, new_rows, rows=old_rows)."


class Update(NamedTuple):
    """Draws before and after an update, as quantities and in the surrogate's white coordinates.

    Attributes:
        old: quantities of the old draws.
        new: quantities of the new draws.
        old_white: white coordinates of the old draws.
        new_white: white coordinates of the new draws.
        num_effective: number of independent draws that the old ones are worth.
        names: names of the quantities.
    """

    old: Values
    new: Values
    old_white: Draws
    new_white: Draws
    num_effective: float
    names: Sequence[str]

    @property
    def moves(self) -> Float[np.ndarray, " quantity"]:
        """By how many old sds each mean moved."""
        sds = self.old.std(axis=0)
        return (self.new.mean(axis=0) - self.old.mean(axis=0)) / np.where(sds > 0, sds, np.inf)


def extrapolation(update: Update) -> str:
    """Return a sentence if there are hardly any old draws around the new mean; else nothing."""
    mean = update.new.mean(axis=0)
    shares = np.minimum(np.mean(update.old > mean, axis=0), np.mean(update.old < mean, axis=0))
    # a constant has no draws on either side
    beyond = np.where(update.old.std(axis=0) > 0, shares * update.num_effective, np.inf)
    worst = int(np.argmax(np.where(beyond < MIN_DRAWS_BEYOND, np.abs(update.moves), -1.0)))
    if beyond[worst] < MIN_DRAWS_BEYOND:
        return (
            f"The new rows move {update.names[worst]} by {abs(update.moves[worst]):.1f} sd of the "
            f"old posterior, where only {shares[worst]:.1%} of its draws are: what the old rows "
            f"say there is a guess. {ADVICE}"
        )
    distance = float(np.sum(update.new_white.mean(axis=0) ** 2))
    dim = update.new_white.shape[1]
    if distance > chdtri(dim, ELLIPSOID_LEVEL):
        return (
            f"The new rows move the posterior by {distance**0.5:.1f} sds in {dim} coordinates, out "
            f"of the ellipsoid that holds {1 - ELLIPSOID_LEVEL:.0%} of the old draws: what the old "
            f"rows say there is a guess. {ADVICE}"
        )
    return ""


class WeightedDraws(NamedTuple):
    """Old draws with the likelihood of new rows as weights.

    Attributes:
        effective: number of draws that they are worth.
        pareto_k: tail shape of the weights.
        differences: statistics of the result, less those of the weighted draws, in sds, of sds
            relative; None if the weights are too uneven.
        standard_errors: of the weighted draws.
    """

    effective: float
    pareto_k: float
    differences: Statistics | None = None
    standard_errors: Statistics | None = None


def weighted_draws(
    log_likelihoods: Float[np.ndarray, " draw"], old: Values, new: Values, num_effective: float
) -> WeightedDraws:
    """Compare a result with old draws that are weighted by the likelihood of new rows.

    Args:
        log_likelihoods: of the new rows, at some old draws.
        old: quantities of these draws.
        new: quantities of the result's draws.
        num_effective: number of independent draws that the old ones are worth.
    """
    log_likelihoods = np.where(np.isfinite(log_likelihoods), log_likelihoods, -np.inf)
    if not np.isfinite(log_likelihoods).any():
        return WeightedDraws(0.0, np.inf)
    weights, shape = smoothed_weights(log_likelihoods)
    share = min(1.0, num_effective / len(old))  # of draws of chains, which are correlated
    effective = share * float(1 / np.sum(weights**2))
    if not (shape < MAX_PARETO_K and effective > MIN_EFFECTIVE):
        return WeightedDraws(effective, shape)
    own = WeightedStatistics.of(new).own
    statistics = WeightedStatistics.of(old)
    whole = statistics.statistics(weights)
    sds = np.maximum(own[1], TINY)
    generator = np.random.default_rng(0)
    # the bootstrap, as a quantile has no other simple standard error
    resampled = [
        statistics.statistics(_resampled(weights, generator)) for _ in range(NUM_BOOTSTRAPS)
    ]
    # few draws around a quantile may be close together by chance
    normal = np.array([[STANDARD_ERRORS[statistic]] for statistic in STATISTICS])
    errors = np.maximum(np.std(resampled, axis=0) / sds / share**0.5, normal / effective**0.5)
    return WeightedDraws(effective, shape, (own - whole) / sds, errors)


def _resampled(
    weights: Float[np.ndarray, " draw"], generator: np.random.Generator
) -> Float[np.ndarray, " draw"]:
    """Return the weights of draws that are drawn with replacement."""
    counts = generator.multinomial(len(weights), np.full(len(weights), 1 / len(weights)))
    product = weights * counts
    return np.asarray(product / product.sum())


def contradiction(weighted: WeightedDraws, names: Sequence[str]) -> str:
    """Return a sentence if weighted old draws say that the result is wrong; else nothing."""
    if weighted.differences is None or weighted.standard_errors is None:
        return ""
    sizes = np.abs(weighted.differences)
    limits = np.maximum(MAX_DIFFERENCE, NUM_STANDARD_ERRORS * weighted.standard_errors)
    excess = np.where(sizes > limits, sizes, 0.0)
    if not excess.any():
        return ""
    statistic, quantity = divmod(int(np.argmax(excess)), excess.shape[1])
    difference = weighted.differences[statistic, quantity]
    error = weighted.standard_errors[statistic, quantity]
    size = (
        f"{100 * difference:+.0f} ± {100 * error:.0f} %"
        if statistic == 1
        else f"{difference:+.2f} ± {error:.2f} posterior sd"
    )
    noun = list(STATISTICS.values())[statistic]
    return (
        f"The {noun} of {names[quantity]} is off by {size}, by the old draws "
        f"weighted with the likelihood of the new rows: no simple density fits the old draws. "
        f"{ADVICE}"
    )


def disagreement(update: Update) -> str:
    """Return a sentence if new rows contradict the old ones; else nothing."""
    mean = update.new_white.mean(axis=0)
    centred = update.new_white - mean
    narrowing = np.eye(len(mean)) - centred.T @ centred / len(centred)
    values, vectors = np.linalg.eigh(narrowing)
    informed = values > MIN_NARROWING
    if not informed.any():
        return ""
    squares = (mean @ vectors[:, informed]) ** 2 / values[informed]
    if chdtrc(int(informed.sum()), float(squares.sum())) >= FALSE_ALARM_RATE:
        return ""
    old_sds, new_sds = update.old.std(axis=0), update.new.std(axis=0)
    explained = np.maximum(old_sds**2 - new_sds**2, MIN_NARROWING * old_sds**2)
    ratios = np.abs(update.new.mean(axis=0) - update.old.mean(axis=0)) / np.sqrt(
        np.maximum(explained, TINY)
    )
    worst = int(np.argmax(np.where(old_sds > 0, ratios, 0.0)))
    return (
        "The new rows disagree with the old ones by more than chance explains (most of all on "
        f"{update.names[worst]}, {ratios[worst]:.1f} standard errors): have the parameters "
        "changed?"
    )
