r"""Give draws the shape of the target along each coordinate, which an affine map cannot change.

Along a coordinate $u_j$, with the other coordinates following it by regression, $s_j = C e_j /
C_{jj}$, the score of the marginal density is the conditional mean of the score,

$$\frac{d}{d u_j} \log p_j(u_j) = \mathbb E [\, s_j^\top \nabla \log p(u) \mid u_j \,].$$

Here it is a polynomial of degree five in the standardized coordinate, fitted by least squares to
full-data scores at some draws. Its integral is the logarithm of a density, and draws are moved
along $s_j$ to the quantiles of that density, which keeps their order. Where the posterior is skewed
and shards hold so little information that their averages are not, as for the spread of few groups,
this moves 5 % quantiles by a quarter of an sd.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from ..linalg.stein import Draws
from ..target import Target

MAX_SHAPED_DIM = 300  # coordinates
DEGREE = 5  # of the polynomial
FIRST_DEGREE = 3  # of the one that is fitted to the few points of the optimizer
NUM_POINTS = (128, 512)  # at which scores are evaluated, in every pass: the fewest and the most
MAX_NOISE = 0.01  # of quantiles, in sds, for which that many points are chosen
MAX_PASSES = 4
MAX_MOVE = 0.02  # of 5 % and 95 % quantiles, in sds, that is left as it is
MIN_SEEN_MOVE = 0.06  # sds, seen by the points of the optimizer, before more are evaluated
MIN_SIGNIFICANCE = 3.0  # standard errors
GRID = np.linspace(-8.0, 8.0, 3201)  # of the standardized coordinate
LEVELS = (0.05, 0.95)


class _Marginal(NamedTuple):
    """The target's marginal along one coordinate, and the draws'.

    Attributes:
        mean: of the draws.
        sd: of the draws.
        coefficients: of the marginal score, for Hermite polynomials.
        errors: their standard errors.
        range: the standardized coordinates between which the polynomial is known.
        num_points: number of points that it was fitted to.
    """

    mean: float
    sd: float
    coefficients: Float[np.ndarray, " degree"]
    errors: Float[np.ndarray, " degree"]
    range: tuple[float, float]
    num_points: int

    @property
    def noise(self) -> float:
        """The standard error of a 5 % or 95 % quantile, in sds, to first order."""
        # a coefficient of degree k moves it by He_k(z) / (k + 1), by Cornish and Fisher
        count = len(self.errors)
        moves = _hermite(ndtri(LEVELS[1]), count - 1) / np.arange(1, count + 1)
        return float(np.linalg.norm(moves * self.errors))

    def quantiles(self, levels: Float[np.ndarray, " level"]) -> Float[np.ndarray, " level"]:
        """Return quantiles of the target's marginal."""
        inside = np.clip(GRID, *self.range)
        # beyond the points that were evaluated, the score of a standard normal goes on
        degree = len(self.coefficients) - 1
        slope = _hermite(inside, degree) @ self.coefficients - (GRID - inside)
        steps = (slope[1:] + slope[:-1]) / 2 * np.diff(GRID)
        log_density = np.concatenate([[0.0], np.cumsum(steps)])
        weights = np.exp(log_density - log_density.max())
        shares = (np.cumsum(weights) - weights / 2) / weights.sum()
        return self.mean + self.sd * np.interp(levels, shares, GRID)


def lack_shapes(draws: Draws, points: Draws, scores: Draws) -> bool:
    """Return whether draws clearly lack the target's shape along a coordinate."""
    marginals = _marginals(draws, _covariance(draws), points, scores, FIRST_DEGREE)
    return _are_seen(marginals, list(map(_largest_move, marginals, draws.T)))


def shape_draws(draws: Draws, points: Draws, scores: Draws, target: Target, seed: int) -> Draws:
    """Return draws with the target's marginal shapes, if they clearly lack them.

    Args:
        draws: the draws.
        points: some points at which the target was evaluated before.
        scores: the target's scores there.
        target: the full-data target.
        seed: seed of the choice of draws at which it is evaluated further.
    """
    if not np.isfinite(scores).all():
        return draws
    covariance = _covariance(draws)
    marginals = _marginals(draws, covariance, points, scores, FIRST_DEGREE)
    moves = list(map(_largest_move, marginals, draws.T))
    if not _are_seen(marginals, moves):
        return draws
    num_points = _sufficient_points(_marginals(draws, covariance, points, scores, DEGREE))
    moved = _moved(draws, covariance, marginals)
    return _shaped(moved, draws, max(moves), target, num_points, np.random.default_rng((seed, 5)))


def _are_seen(marginals: list[_Marginal], moves: list[float]) -> bool:
    """Return whether one of the moves that marginals suggest is large, and not noise."""
    return any(
        move > max(MIN_SEEN_MOVE, MIN_SIGNIFICANCE * marginal.noise)
        for move, marginal in zip(moves, marginals, strict=True)
    )


def _shaped(
    draws: Draws,
    best: Draws,
    least: float,
    target: Target,
    num_points: int,
    generator: np.random.Generator,
) -> Draws:
    """Move draws further as long as less and less is left to move; return the best."""
    for _ in range(MAX_PASSES):
        chosen = generator.permutation(len(draws))[:num_points]
        scores = np.asarray(target(jnp.asarray(draws[chosen]))[1])
        if not np.isfinite(scores).all():
            break
        covariance = _covariance(draws)
        marginals = _marginals(draws, covariance, draws[chosen], scores, DEGREE)
        move = max(map(_largest_move, marginals, draws.T))
        if move >= least:
            break
        best, least = draws, move
        if move < MAX_MOVE:
            break
        draws = _moved(draws, covariance, marginals)
    return best


def _sufficient_points(marginals: list[_Marginal]) -> int:
    """Return the number of points at which scores tell quantiles to `MAX_NOISE`."""
    noise = max(marginal.noise for marginal in marginals)
    size = marginals[0].num_points * (noise / MAX_NOISE) ** 2
    return int(np.clip(size, *NUM_POINTS))


def _covariance(draws: Draws) -> Float[np.ndarray, "dim dim"]:
    return np.cov(draws, rowvar=False).reshape(2 * draws.shape[1:])


def _marginals(
    draws: Draws,
    covariance: Float[np.ndarray, "dim dim"],
    points: Draws,
    scores: Draws,
    degree: int,
) -> list[_Marginal]:
    """Fit the target's marginal along every coordinate."""
    mean = draws.mean(axis=0)
    sds = np.sqrt(np.diag(covariance))
    white = (points - mean) / sds
    # scores along the regression directions, in standardized coordinates
    along = scores @ (covariance / sds)
    marginals = []
    for j in range(draws.shape[1]):
        basis = _hermite(white[:, j], degree)
        inverse = np.linalg.pinv(basis.T @ basis)
        coefficients = inverse @ basis.T @ along[:, j]
        residuals = along[:, j] - basis @ coefficients
        variance = residuals @ residuals / max(1, len(residuals) - basis.shape[1])
        errors = np.sqrt(np.maximum(np.diag(inverse) * variance, 0.0))
        limits = (float(white[:, j].min()), float(white[:, j].max()))
        marginals.append(_Marginal(mean[j], sds[j], coefficients, errors, limits, len(points)))
    return marginals


def _hermite(white: np.ndarray | float, degree: int) -> np.ndarray:
    """Return Hermite polynomials, from degree zero on, along a last axis."""
    return np.polynomial.hermite_e.hermevander(white, degree)


def _largest_move(marginal: _Marginal, values: Float[np.ndarray, " draw"]) -> float:
    """Return by how many sds a 5 % or 95 % quantile would move."""
    own = np.quantile(values, LEVELS)
    return float(np.abs(marginal.quantiles(np.array(LEVELS)) - own).max() / marginal.sd)


def _moved(
    draws: Draws, covariance: Float[np.ndarray, "dim dim"], marginals: list[_Marginal]
) -> Draws:
    """Move draws to the quantiles of the marginals that need it."""
    moved = draws.copy()
    ranks = np.argsort(np.argsort(draws, axis=0), axis=0)
    for j, marginal in enumerate(marginals):
        if _largest_move(marginal, draws[:, j]) >= MAX_MOVE:
            new = marginal.quantiles((ranks[:, j] + 0.5) / len(draws))
            moved += np.outer(new - draws[:, j], covariance[j] / covariance[j, j])
    return moved
