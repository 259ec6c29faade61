r"""Estimate how much a surrogate of old rows, fitted to old draws, is off in a new result.

A result from the surrogate $q$ and the likelihood of new rows has the density $q L$. Another
density $q'$ that the old draws allow would have given $q' L$: the same draws with the weights
$q' / q$. So the effect of any error of the surrogate on any statistic is known without evaluating
a row. Three kinds of errors are looked at.

- *Chance*: $q'$ is fitted without a tenth of the old draws (the jackknife).
- *Errors of the old draws*, whose means and sds have known standard errors: $q'$ is moved and
  stretched accordingly.
- *Shape*: where the old draws $z$ in white coordinates have third or fourth cumulants left, $q'$
  has the score that these imply near the new draws, with mean $m$ and covariance $S$. With
  $M = m m^\top + S - I$, the third cumulants add the gradient
  $\frac 1 2 \mathbb E [z \, (z^\top M z - \operatorname{tr} M)]$.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..linalg.shrinkage import TINY
from ..models.surrogate import Surrogate
from .quantiles import LEVELS
from .selfcheck import Errors

NUM_GROUPS = 10  # of the jackknife
NUM_PERTURBATIONS = 20  # of means and sds, whose mean squares are those that are wanted
MAX_DRAWS = 2000  # that are reweighted: a change of 0.02 sd is seen
MAX_MAPPED_DIM = 50  # coordinates that all have maps in the jackknife, at 5 ms each
MIN_KNOWN = 2.0  # standard errors of an old error that is corrected; smaller ones may be chance
MIN_EFFECTIVE_SHARE = 0.05  # of reweighted draws; with fewer, the other density is elsewhere
MAX_DEPENDENCE = 1e-8  # relative singular values of dependent quantities

Draws = Float[np.ndarray, "draw dim"]
Values = Float[np.ndarray, "draw quantity"]
Statistics = Float[np.ndarray, "4 quantity"]  # of mean, sd, 5 % and 95 % quantile


class OldPosterior(NamedTuple):
    """The draws of an old result, corrected by its known errors, and errors that are left.

    Attributes:
        draws: the draws.
        num_effective: number of independent draws that they are worth.
        shifts: random errors of their means, which they may have.
        log_scales: random errors of the logarithms of their sds.
        has_moments: whether means and sds are known better than the draws tell, from scores.
    """

    draws: Draws
    num_effective: float
    shifts: Float[np.ndarray, "perturbation dim"]
    log_scales: Float[np.ndarray, "perturbation dim"]
    has_moments: bool

    @classmethod
    def of(
        cls,
        draws: Draws,
        values: Values,
        errors: Errors | None,
        num_effective: float,
        generator: np.random.Generator,
    ) -> "OldPosterior":
        """Return the draws without the errors of means and sds that are beyond chance.

        Args:
            draws: the old draws, as points.
            values: their quantities.
            errors: the estimated errors of these, if they are known.
            num_effective: number of independent draws that the draws are worth.
            generator: of random errors.
        """
        dim = draws.shape[1]
        if errors is None:
            none = np.zeros((0, dim))
            return cls(draws, num_effective, none, none, False)
        known = np.flatnonzero(np.all(np.isfinite(errors[:4]), axis=0) & (values.std(axis=0) > 0))
        mean, mean_se, sd, sd_se = (np.asarray(part)[known] for part in errors[:4])
        centre, sds = draws.mean(axis=0), draws.std(axis=0)
        white = (draws - centre) / sds
        white_values = values[:, known] - values[:, known].mean(axis=0)
        white_values /= white_values.std(axis=0)
        slopes = np.linalg.lstsq(white, white_values, rcond=None)[0]
        to_coordinates = np.linalg.pinv(slopes, rcond=MAX_DEPENDENCE)
        nearest = np.argmax(np.abs(white.T @ white_values), axis=1)  # the quantity of a coordinate
        mean = np.where(np.abs(mean) > MIN_KNOWN * mean_se, mean, 0.0) @ to_coordinates * sds
        log_sd = np.where(np.abs(sd) > MIN_KNOWN * sd_se, np.log1p(np.maximum(sd, -0.9)), 0.0)
        # errors of quantities are correlated as the quantities are
        rows = generator.integers(len(draws), size=NUM_PERTURBATIONS)
        shifts = (_with_unit_squares(white_values[rows]) * mean_se) @ to_coordinates * sds
        signs = _with_unit_squares(generator.normal(size=(NUM_PERTURBATIONS, dim)))
        corrected = centre - mean + (draws - centre) * np.exp(-log_sd[nearest])
        return cls(corrected, num_effective, shifts, signs * sd_se[nearest], True)

    def fitted(self) -> Surrogate:
        """Fit a surrogate to the draws."""
        return Surrogate.fitted(self.draws, self.num_effective)


def _with_unit_squares(values: Values) -> Values:
    """Return values whose mean squares are one, so that chance makes no error of the errors."""
    return values / np.sqrt(np.maximum(np.mean(values**2, axis=0), TINY))


class Sensitivity(NamedTuple):
    """How much statistics of a new result depend on the surrogate.

    Attributes:
        variances: of the errors of means and quantiles, in sds, and of sds, relative.
        is_determined: whether all other densities are near enough to be compared.
    """

    variances: Statistics
    is_determined: bool


def sensitivity(
    old: OldPosterior, surrogate: Surrogate, points: Draws, values: Values
) -> Sensitivity:
    """Return the variances of errors that a surrogate causes in a result.

    Args:
        old: the old draws.
        surrogate: the surrogate that was fitted to them.
        points: draws of the new result.
        values: their quantities.
    """
    chosen = np.arange(min(MAX_DRAWS, len(points))) * len(points) // min(MAX_DRAWS, len(points))
    points, statistics = points[chosen], WeightedStatistics.of(values[chosen])
    white, log_densities = surrogate.evaluate(points)
    is_determined = True

    def changes(log_density: np.ndarray) -> Statistics:
        nonlocal is_determined
        change, share = statistics.changes(log_density - log_densities)
        is_determined &= share >= MIN_EFFECTIVE_SHARE
        return change

    groups = np.stack([changes(part) for part in _jackknife(old, surrogate, points)])
    variances = (NUM_GROUPS - 1) * groups.var(axis=0)
    # ten groups tell a variance to a half; those of quantities, in sds, are alike
    variances = np.maximum(variances, np.median(variances, axis=1, keepdims=True))
    moved = [changes(part) for part in _perturbed(old, surrogate, points)]
    if moved:
        variances += np.mean(np.square(moved), axis=0)
    tilt = _missing_cumulants(surrogate.evaluate(old.draws)[0], white, old.num_effective)
    variances += statistics.response(tilt) ** 2
    return Sensitivity(variances, is_determined)


def _jackknife(
    old: OldPosterior, surrogate: Surrogate, points: Draws
) -> Iterator[Float[np.ndarray, " draw"]]:
    """Yield log densities of surrogates that are fitted without a tenth of the draws.

    All coordinates have maps, so that the skewness that chance gives is seen, whatever was chosen.
    """
    if len(surrogate.centre) <= MAX_MAPPED_DIM:
        everywhere = surrogate.first._replace(skewness=np.ones(len(surrogate.centre)))
        surrogate = surrogate._replace(first=everywhere)
    group = np.arange(len(old.draws)) * NUM_GROUPS // len(old.draws)
    mean, sd = old.draws.mean(axis=0), old.draws.std(axis=0)
    for number in range(NUM_GROUPS):
        draws = old.draws[group != number]
        if old.has_moments:
            draws = mean + (draws - draws.mean(axis=0)) * (sd / draws.std(axis=0))
        share = len(draws) / len(old.draws)
        fitted = Surrogate.fitted(draws, share * old.num_effective, like=surrogate)
        yield fitted.evaluate(points)[1]


def _perturbed(
    old: OldPosterior, surrogate: Surrogate, points: Draws
) -> Iterator[Float[np.ndarray, " draw"]]:
    """Yield log densities of the surrogate, moved and stretched."""
    for shift, log_scale in zip(old.shifts, old.log_scales, strict=True):
        centred = (points - surrogate.centre - shift) * np.exp(-log_scale)
        yield surrogate.evaluate(surrogate.centre + centred)[1]


def _missing_cumulants(old: Draws, new: Draws, num_effective: float) -> Float[np.ndarray, " draw"]:
    """Return the log density that white old draws imply at new ones, beyond a normal one.

    It is a quadratic with the gradient and the diagonal of the Hessian at the new mean. What chance
    explains is taken off: of the gradient by its length, as Stein does, of the Hessian singly.
    """
    dim = old.shape[1]
    mean, centred = new.mean(axis=0), new - new.mean(axis=0)
    narrowing = centred.T @ centred / len(new) - np.eye(dim)
    moments = np.outer(mean, mean) + narrowing
    squares = np.einsum("nd,de,ne->n", old, moments, old) - np.trace(moments)
    along, across = old @ mean, np.einsum("nd,de,ne->n", old, narrowing, old)
    cubes = along**3 + 3 * along * across - 6 * old @ narrowing @ mean
    cubes -= 3 * (mean @ mean + np.trace(narrowing)) * along
    terms = old * (squares / 2 + cubes / 6)[:, None]
    gradient = terms.mean(axis=0)
    noise = terms.var(axis=0) / num_effective
    chance = dim / max(float(np.sum(gradient**2 / np.maximum(noise, TINY))), TINY)
    gradient = gradient * np.sqrt(max(0.0, 1 - chance))
    # third cumulants along the way, and fourth, less the moments of a normal density
    terms = old**2 * (along + 0.5 * squares)[:, None]
    hessian = terms.mean(axis=0) - np.diag(moments)
    noise = terms.var(axis=0) / num_effective
    hessian = hessian * np.sqrt(np.maximum(0.0, 1 - 4 * noise / np.maximum(hessian**2, TINY)))
    return np.asarray(centred @ gradient + 0.5 * centred**2 @ hessian)


class WeightedStatistics(NamedTuple):
    """Draws of quantities, sorted, whose statistics under weights are compared with their own."""

    values: Values
    order: np.ndarray
    own: Statistics

    @classmethod
    def of(cls, values: Values) -> "WeightedStatistics":
        """Sort draws."""
        order = np.argsort(values, axis=0)
        none = np.empty((4, values.shape[1]))
        unfinished = cls(values, order, none)
        weights = np.full(len(values), 1 / len(values))
        return unfinished._replace(own=unfinished.statistics(weights))

    def statistics(self, weights: Float[np.ndarray, " draw"]) -> Statistics:
        """Return means, sds, and 5 % and 95 % quantiles of weighted draws."""
        mean = weights @ self.values
        sd = np.sqrt(np.maximum(weights @ (self.values - mean) ** 2, 0.0))
        sorted_values = np.take_along_axis(self.values, self.order, axis=0)
        shares = np.cumsum(weights[self.order], axis=0) - 0.5 * weights[self.order]
        columns = np.arange(self.values.shape[1])
        quantiles = []
        for level in LEVELS:
            upper = np.clip(np.sum(shares < level, axis=0), 1, len(shares) - 1)
            low, high = shares[upper - 1, columns], shares[upper, columns]
            part = np.clip((level - low) / np.maximum(high - low, TINY), 0.0, 1.0)
            below, above = sorted_values[upper - 1, columns], sorted_values[upper, columns]
            quantiles.append(below + part * (above - below))
        return np.stack([mean, sd, *quantiles])

    def changes(self, log_ratios: Float[np.ndarray, " draw"]) -> tuple[Statistics, float]:
        """Return changes by weights, in sds, of sds relative, and the share of effective draws."""
        log_ratios = np.where(np.isfinite(log_ratios), log_ratios, -np.inf)
        weights = np.exp(log_ratios - log_ratios.max())
        weights /= weights.sum()
        change = self.statistics(weights) - self.own
        # where the sd is zero, a constant, there is no change
        return change / np.maximum(self.own[1], TINY), float(1 / np.sum(weights**2) / len(weights))

    def response(self, log_ratios: Float[np.ndarray, " draw"]) -> Statistics:
        """Return changes by weights to first order, which do not level off for large ones.

        Those of quantiles are as of a normal density: a shift, and a change of sd times 1.64.
        """
        centred = (self.values - self.own[0]) / np.maximum(self.own[1], TINY)
        ratios = log_ratios - log_ratios.mean()
        shift = ratios @ centred / len(ratios)
        stretch = ratios @ (centred**2 - 1) / (2 * len(ratios))
        return np.stack([shift, stretch, shift - 1.64 * stretch, shift + 1.64 * stretch])
