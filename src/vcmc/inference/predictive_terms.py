r"""The terms of estimates of out-of-sample fit, from a row's log likelihoods at all draws.

With draws $\theta_s$ of the posterior, the log predictive density of a row that is left out is

$$\log p(x_n \mid x_{-n}) \approx \log \sum_s w_s \, p(x_n \mid \theta_s) \Big/ \sum_s w_s, \qquad
  w_s \approx 1 / p(x_n \mid \theta_s),$$

with the largest weights smoothed by a fitted Pareto distribution, whose shape k says whether they
can be relied on (Vehtari, Gelman, Gabry 2017; Vehtari et al. 2024). ArviZ does the computation.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from .pointwise import Pointwise

LogLikelihoods = Float[np.ndarray, "row draw"]

# Names of the numbers by row.
ELPD, EFFECTIVE, PARETO_K = "elpd", "p", "k"
MIN_TAIL = 5  # draws, fewer of which ArviZ fits no Pareto distribution to
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
        is_finite = np.isfinite(log_likelihoods).all(axis=1)
        finite = log_likelihoods if is_finite.all() else log_likelihoods[is_finite]
        with np.errstate(all="ignore"):
            try:
                terms[:, is_finite] = self._smoothed(finite)
            except ValueError:  # some row's largest weights are equal
                terms[:, is_finite] = np.stack([self._of_row(row) for row in finite], axis=1)
        # ArviZ's fit fails where likelihoods differ by hundreds of orders of magnitude
        has_failed = is_finite & ~np.isfinite(terms).all(axis=0)
        terms[:, has_failed] = _unsmoothed(log_likelihoods[has_failed], np.inf)
        return dict(zip((ELPD, PARETO_K, EFFECTIVE), terms, strict=True))

    def _smoothed(self, log_likelihoods: LogLikelihoods) -> Float[np.ndarray, "3 row"]:
        from arviz_stats.base import array_stats  # slow to import

        if not len(log_likelihoods):
            return np.empty((3, 0))
        terms = array_stats.loo(log_likelihoods, chain_axis=None, r_eff=self.relative_efficiency)
        return np.stack(terms)

    def _of_row(self, log_likelihoods: Float[np.ndarray, " draw"]) -> Float[np.ndarray, " 3"]:
        """Return the terms of a row; weights whose largest values are equal need no smoothing."""
        try:
            return self._smoothed(log_likelihoods[None])[:, 0]
        except ValueError:
            return _unsmoothed(log_likelihoods[None], 0.0)[:, 0]


def _unsmoothed(log_likelihoods: LogLikelihoods, k: float) -> Float[np.ndarray, "3 row"]:
    """Return the terms for the weights as they are: elpd is a harmonic mean."""
    elpd = -_log_mean(-log_likelihoods)
    return np.stack([elpd, np.full(len(elpd), k), _log_mean(log_likelihoods) - elpd])


def waic_terms(log_likelihoods: LogLikelihoods) -> Pointwise:
    """Return the terms of WAIC: log predictive densities less variances over draws."""
    with np.errstate(invalid="ignore"):
        variances = np.var(log_likelihoods, axis=1, ddof=1)
        return {ELPD: _log_mean(log_likelihoods) - variances, EFFECTIVE: variances}


def _log_mean(log_likelihoods: LogLikelihoods) -> Float[np.ndarray, " row"]:
    """Return log mean likelihoods."""
    return logsumexp(log_likelihoods, axis=1) - np.log(log_likelihoods.shape[1])
