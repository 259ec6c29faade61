r"""Pólya–Gamma Gibbs sampling of logistic regression; `effective_draws.py` times it against NUTS.

Polson, Scott and Windle (2013): if $\omega_n \mid \beta \sim PG(1, x_n^\top \beta)$, then $\beta
\mid \omega, y \sim N(V X^\top (y - 1/2), V)$ with $V = (X^\top \mathrm{diag}(\omega) X + \lambda
I)^{-1}$.

PG(1, c) is a quarter of the tilted Jacobi variable $J^*(1, c/2)$, drawn exactly by Devroye's method
(2009): a proposal in two pieces, an inverse Gaussian left of 0.64 and an exponential right of it,
accepted by squeezing the density between partial sums of an alternating series. Nearly all
proposals are accepted, so a round handles all rows that are still waiting.
"""

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular
from scipy.special import expit, log_ndtr

CUT = 0.64  # where the pieces of the proposal meet: Devroye's choice, near-optimal for every tilt


def polya_gamma(c, rng: Generator):
    """Draw PG(1, c_i) for every element of the vector `c`."""
    tilt = np.abs(c) / 2
    out = np.empty_like(tilt)
    waiting = np.arange(len(tilt))
    while len(waiting):
        z = tilt[waiting]
        proposal = _propose(z, rng)
        accepted = _squeeze(proposal, rng)
        out[waiting[accepted]] = proposal[accepted] / 4
        waiting = waiting[~accepted]
    return out


def _propose(z, rng):
    """Draw from a truncated inverse Gaussian on (0, CUT) or a shifted exponential beyond it."""
    rate = np.pi**2 / 8 + z**2 / 2
    root = np.sqrt(1 / CUT)
    # logs of the two masses: (pi / 2 rate) e^{-rate CUT} and 2 e^{-z} P(IG(1/z, 1) < CUT), the
    # latter by its two normal terms
    right = np.log(np.pi / 2 / rate) - rate * CUT
    left = np.log(2) + np.logaddexp(
        log_ndtr(root * (CUT * z - 1)) - z, log_ndtr(-root * (CUT * z + 1)) + z
    )
    go_right = rng.random(len(z)) < expit(right - left)
    proposal = np.empty_like(z)
    exponential = rng.standard_exponential(np.count_nonzero(go_right))
    proposal[go_right] = CUT + exponential / rate[go_right]
    proposal[~go_right] = _truncated_inverse_gaussian(z[~go_right], rng)
    return proposal


def _truncated_inverse_gaussian(z, rng):
    """Draw an inverse Gaussian with mean 1/z and shape 1, truncated to values below CUT."""
    out = np.empty_like(z)
    # mean beyond the cut: reflect a Lévy tail, then thin for the tilt
    far = 1 / np.maximum(z, 1e-300) > CUT
    waiting = np.flatnonzero(far)
    while len(waiting):
        first, second = rng.standard_exponential((2, len(waiting)))
        x = CUT / (1 + CUT * first) ** 2
        good = (first**2 <= 2 * second / CUT) & (
            rng.random(len(waiting)) <= np.exp(-(z[waiting] ** 2) * x / 2)
        )
        out[waiting[good]] = x[good]
        waiting = waiting[~good]
    # mean before the cut: draw (Michael, Schucany & Haas 1976) until the value is, too
    waiting = np.flatnonzero(~far)
    while len(waiting):
        mean = 1 / z[waiting]
        half = mean * rng.standard_normal(len(waiting)) ** 2 / 2
        x = mean / (1 + half + np.sqrt(half * (2 + half)))  # the smaller root, without cancellation
        x = np.where(rng.random(len(waiting)) * (mean + x) <= mean, x, mean**2 / x)
        good = x < CUT
        out[waiting[good]] = x[good]
        waiting = waiting[~good]
    return out


def _squeeze(x, rng):
    """Accept x with probability f(x) / proposal(x), by partial sums of the alternating series."""
    below = x <= CUT
    # term n over term 0 is (2n + 1) exp(-base (n^2 + n)), on both sides
    base = np.where(below, 2 / x, np.pi**2 * x / 2)
    height = rng.random(len(x))
    partial = 1 - 3 * np.exp(-2 * base)
    accepted = height <= partial
    waiting = np.flatnonzero(~accepted)
    partial, n = partial[waiting], 2
    while len(waiting):
        partial = partial + (1 - 2 * (n % 2)) * (2 * n + 1) * np.exp(-base[waiting] * (n * n + n))
        decided = height[waiting] > partial if n % 2 == 0 else height[waiting] <= partial
        if n % 2:
            accepted[waiting[decided]] = True
        waiting, partial, n = waiting[~decided], partial[~decided], n + 1
    return accepted


def sample(covariates, labels, precision: float, beta, num_sweeps: int, rng: Generator):
    """Run the Gibbs sampler of logistic regression from `beta`; return the draws, (sweep, dim)."""
    shift = covariates.T @ (labels - 0.5)
    ridge = precision * np.eye(len(beta))
    draws = np.empty((num_sweeps, len(beta)))
    weighted = np.empty_like(covariates)
    for i in range(num_sweeps):
        omega = polya_gamma(covariates @ beta, rng)
        np.multiply(covariates, np.sqrt(omega)[:, None], out=weighted)
        factor = np.linalg.cholesky(weighted.T @ weighted + ridge)
        white = solve_triangular(factor, shift, lower=True) + rng.standard_normal(len(beta))
        beta = draws[i] = solve_triangular(factor, white, lower=True, trans="T")
    return draws
