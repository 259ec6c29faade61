r"""The terms of estimates of out-of-sample fit, from a row's log likelihoods at all draws.

With draws $\theta_s$ of the posterior, the log predictive density of a row that is left out is

$$\log p(x_n \mid x_{-n}) \approx \log \sum_s w_s \, p(x_n \mid \theta_s) \Big/ \sum_s w_s, \qquad
  w_s \approx 1 / p(x_n \mid \theta_s),$$

with the largest weights smoothed by a fitted Pareto distribution, whose shape k says whether they
can be relied on (Vehtari, Gelman, Gabry 2017); `pareto_smoothing.py` has the computation.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from .pareto_smoothing import leave_out
from .pointwise import Pointwise

LogLikelihoods = Float[np.ndarray, "row draw"]

# Names of the numbers by row.
ELPD, EFFECTIVE, PARETO_K = "elpd", "p", "k"
MIN_TAIL = 5  # draws, to fewer of which no Pareto distribution is fitted
MIN_LOO_DRAWS = 5 * MIN_TAIL  # of few draws, the tail is a fifth


@dataclass(frozen=True)
class LooTerms:
    """Leave one row out by Pareto-smoothed importance sampling.

    Attributes:
        relative_efficiency: effective draws per draw.
    """

    relative_efficiency: float

    def __call__(self, log_likelihoods: LogLikelihoods) -> Pointwise:
        terms = np.full((3, len(log_likelihoods)), np.nan)
        is_finite = np.isfinite(log_likelihoods.sum(axis=1))
        if not is_finite.all():  # of any value, or of a sum that overflows
            is_finite = np.isfinite(log_likelihoods).all(axis=1)
        if is_finite.any():
            finite = log_likelihoods if is_finite.all() else log_likelihoods[is_finite]
            elpd, k, log_mean = leave_out(finite, self.relative_efficiency)
            terms[:, is_finite] = elpd, k, log_mean - elpd
        return dict(zip((ELPD, PARETO_K, EFFECTIVE), terms, strict=True))


def waic_terms(log_likelihoods: LogLikelihoods) -> Pointwise:
    """Return the terms of WAIC: log predictive densities less variances over draws."""
    with np.errstate(invalid="ignore"):
        variances = np.var(log_likelihoods, axis=1, ddof=1)
        return {ELPD: _log_mean(log_likelihoods) - variances, EFFECTIVE: variances}


def _log_mean(log_likelihoods: LogLikelihoods) -> Float[np.ndarray, " row"]:
    """Return log mean likelihoods."""
    return logsumexp(log_likelihoods, axis=1) - np.log(log_likelihoods.shape[1])
