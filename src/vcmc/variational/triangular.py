r"""Triangular maps from a standard normal: bent posteriors with a known density.

A map makes the coordinates of a draw one after the other (a Knothe–Rosenblatt map; Marzouk,
Moselhy, Parno and Spantini, *Sampling via measure transport*, 2016),

$$v_i = m_i(v_{<i}) + e^{s_i(v_{<i})} \, h_i(z_i), \qquad z \sim N(0, I), \qquad u = c + L v.$$

$m_i$ is a polynomial of degree two, a bend. $s_i$ is a bounded one, as in a funnel. $h_i$ gives a
coordinate its marginal shape: it increases, and the logarithm of its derivative is linear between
knots. $c$ and the Cholesky factor $L$ are those of an affine fit. Such a map is inverted, and its
Jacobian is triangular,

$$\log \left| \det \frac{du}{dz} \right| = \log \det L + \sum_i \log h_i'(z_i) + s_i(v_{<i}).$$

All of it, and the gradients in its parameters, are a few lines of NumPy: nothing is compiled.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..linalg.stein import Draws, Vector

Values = Float[np.ndarray, " draw"]
Features = Float[np.ndarray, "draw feature"]

# of z: a log-gamma density of shape 1/3 and a density that falls off like exp(-x⁴) are fitted
KNOTS = np.array([-6.5, -4.5, -3.0, -2.0, -1.2, -0.5, 0.0, 0.5, 1.2, 2.0, 3.0, 4.5, 6.5])
MAX_LOG_SCALE = 3.0  # of a coordinate given others
GRID = np.linspace(KNOTS[0], KNOTS[-1], 1201)  # for integrals of the derivative
_HATS = np.stack([np.interp(GRID, KNOTS, row) for row in np.eye(len(KNOTS))], axis=1)
_WIDTH = GRID[1] - GRID[0]


class Forward(NamedTuple):
    """Points in white coordinates, and what the gradient needs of the way to them.

    Attributes:
        white: the points v.
        log_det: log determinants of dv/dz.
        steps: the intermediate values of every coordinate.
    """

    white: Draws
    log_det: Values
    steps: list["Step"]


class Step(NamedTuple):
    """The intermediate values of one coordinate."""

    features: Features
    shape_values: Values
    shape_gradients: Features
    hats: Features
    scale: Values
    scale_slope: Values


@dataclass(frozen=True)
class TriangularMap:
    """The map of one set of parameters.

    Attributes:
        centre: the shift c.
        root: the lower triangular matrix L, whose rows and columns are in `order`.
        order: the coordinate that is made first, second, …
        parameters: the parameters of all coordinates, one after the other.
    """

    centre: Vector
    root: Float[np.ndarray, "dim dim"]
    order: tuple[int, ...]
    parameters: Float[np.ndarray, " parameter"]

    @classmethod
    def affine(
        cls, centre: Vector, covariance: Float[np.ndarray, "dim dim"], order: tuple[int, ...]
    ) -> "TriangularMap":
        """Return the map whose draws are normal with a mean and a covariance."""
        index = np.array(order)
        root = np.linalg.cholesky(covariance[np.ix_(index, index)])
        count = sum(_num_parameters(i) for i in range(len(order)))
        return cls(centre, root, order, np.zeros(count))

    def with_parameters(self, parameters: Float[np.ndarray, " parameter"]) -> "TriangularMap":
        """Return the map with other parameters."""
        return TriangularMap(self.centre, self.root, self.order, parameters)

    @cached_property
    def _parts(self) -> list[np.ndarray]:
        """The parameters of every coordinate."""
        counts = [_num_parameters(i) for i in range(len(self.order))]
        return np.split(self.parameters, np.cumsum(counts)[:-1])

    def shape_slices(self) -> list[slice]:
        """Return where the values of log h' at the knots are among the parameters."""
        counts = [_num_parameters(i) for i in range(len(self.order))]
        starts = np.cumsum([1, *counts[:-1]]).tolist()
        return [slice(start, start + len(KNOTS)) for start in starts]

    @property
    def root_log_det(self) -> float:
        """The log determinant of L."""
        return float(np.log(np.diag(self.root)).sum())

    def __call__(self, base: Draws) -> tuple[Draws, Values]:
        """Return the points that base points are mapped to, and the log determinants there."""
        forward = self.forward(base)
        return self.points(forward.white), forward.log_det + self.root_log_det

    def points(self, white: Draws) -> Draws:
        """Return the points with given white coordinates."""
        ordered = white @ self.root.T
        points = np.empty_like(ordered)
        points[:, list(self.order)] = ordered
        return points + self.centre

    def white_scores(self, scores: Draws) -> Draws:
        """Return scores with respect to the white coordinates."""
        return scores[:, list(self.order)] @ self.root

    def inverse(self, points: Draws) -> tuple[Draws, Values]:
        """Return the base points that are mapped to points, and the log determinants there."""
        ordered = (points - self.centre)[:, list(self.order)]
        white = np.linalg.solve(self.root, ordered.T).T
        base, log_det = np.empty_like(white), np.full(len(white), self.root_log_det)
        for i, part in enumerate(self._parts):
            shape, log_scale, mean = _split(part, i)
            features = _features(white[:, :i])
            log_scales = _bounded(features @ log_scale)
            values = (white[:, i] - features @ mean) / np.exp(log_scales)
            base[:, i] = _inverse_integral(values, shape)
            log_det += _hats(base[:, i]) @ shape[1:] + log_scales
        return base, log_det

    def forward(self, base: Draws) -> Forward:
        """Map base points to white ones, and keep what the gradient needs."""
        white, log_det, steps = np.empty_like(base), np.zeros(len(base)), []
        for i, part in enumerate(self._parts):
            shape, log_scale, mean = _split(part, i)
            hats = _hats(base[:, i])
            values, gradients = _integrals(base[:, i], shape)
            features = _features(white[:, :i])
            bounded = _bounded(features @ log_scale)
            scale = np.exp(bounded)
            white[:, i] = features @ mean + scale * values
            log_det += hats @ shape[1:] + bounded
            slope = 1 - (bounded / MAX_LOG_SCALE) ** 2
            steps.append(Step(features, values, gradients, hats, scale, slope))
        return Forward(white, log_det, steps)

    def gradient(self, forward: Forward, scores: Draws) -> Float[np.ndarray, " parameter"]:
        """Return the gradient of the mean log density plus the mean log determinant.

        Args:
            forward: the result of `forward`.
            scores: the target's scores there, in white coordinates.
        """
        adjoint, count = scores.copy(), len(scores)
        parts: list[np.ndarray] = []
        for i in reversed(range(len(self.order))):
            step = forward.steps[i]
            _, log_scale, mean = _split(self._parts[i], i)
            by_mean = adjoint[:, i]
            by_scale = (by_mean * step.scale * step.shape_values + 1) * step.scale_slope
            by_shape = by_mean * step.scale
            parts.append(
                np.concatenate(
                    [
                        [by_shape.mean()],
                        by_shape @ step.shape_gradients / count + step.hats.mean(axis=0),
                        by_scale @ step.features / count,
                        by_mean @ step.features / count,
                    ]
                )
            )
            if i:
                by_features = np.outer(by_mean, mean) + np.outer(by_scale, log_scale)
                adjoint[:, :i] += _pulled_back(forward.white[:, :i], by_features)
        return np.concatenate(parts[::-1])

    def curvature(self, base: Draws) -> Float[np.ndarray, "parameter parameter"]:
        r"""Return minus the Hessian of the objective at the affine map, for a normal target.

        With $G = \partial h / \partial a$ and hat functions $\chi$, a shape has
        $\mathbb E [G G^\top + \chi \chi^\top]$, by Stein's identity. With features $f$, a bend has
        $\mathbb E [f f^\top]$ and a log scale twice that. There are no other terms.
        """
        affine = self.with_parameters(np.zeros_like(self.parameters))
        count = len(base)
        matrix = np.zeros((len(self.parameters), len(self.parameters)))
        first = 0
        for step in affine.forward(base).steps:
            ones = np.ones((count, 1))
            by_shape = np.concatenate([ones, step.shape_gradients], axis=1)
            hats = np.concatenate([0 * ones, step.hats], axis=1)
            features = step.features.T @ step.features / count
            blocks = (by_shape.T @ by_shape + hats.T @ hats) / count, 2 * features, features
            for block in blocks:
                place = slice(first, first + len(block))
                matrix[place, place] = block
                first += len(block)
        return matrix


def _num_parameters(i: int) -> int:
    """Return the number of parameters of a coordinate after `i` others."""
    return 1 + len(KNOTS) + 2 * _num_features(i)


def _num_features(i: int) -> int:
    return i + i * (i + 1) // 2


def _split(part: np.ndarray, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the parameters of the shape (its shift first), the log scale and the mean."""
    shape = 1 + len(KNOTS)
    return part[:shape], part[shape : shape + _num_features(i)], part[shape + _num_features(i) :]


def _bounded(log_scale: Values) -> Values:
    return np.asarray(MAX_LOG_SCALE * np.tanh(log_scale / MAX_LOG_SCALE))


def _features(white: Draws) -> Features:
    """Return coordinates and their products, those of squares with mean zero."""
    rows, columns = np.triu_indices(white.shape[1])
    products = white[:, rows] * white[:, columns] - (rows == columns)
    return np.concatenate([white, products], axis=1)


def _pulled_back(white: Draws, by_features: Features) -> Draws:
    """Return derivatives by coordinates, given those by their features."""
    dim = white.shape[1]
    rows, columns = np.triu_indices(dim)
    result = by_features[:, :dim].copy()
    products = by_features[:, dim:]
    for index, (row, column) in enumerate(zip(rows, columns, strict=True)):
        result[:, row] += products[:, index] * white[:, column]
        result[:, column] += products[:, index] * white[:, row]
    return result


def _hats(base: Values) -> Features:
    """Return the hat functions of the knots; beyond the last, they are constant."""
    clipped = np.clip(base, KNOTS[0], KNOTS[-1])
    right = np.clip(np.searchsorted(KNOTS, clipped), 1, len(KNOTS) - 1)
    share = (clipped - KNOTS[right - 1]) / (KNOTS[right] - KNOTS[right - 1])
    hats = np.zeros((len(base), len(KNOTS)))
    rows = np.arange(len(base))
    hats[rows, right - 1], hats[rows, right] = 1 - share, share
    return hats


def _integrals(base: Values, shape: np.ndarray) -> tuple[Values, Features]:
    """Return h at base points, and its derivatives by the values of log h' at the knots."""
    derivative = np.exp(_HATS @ shape[1:])
    terms = np.concatenate([derivative[:, None], derivative[:, None] * _HATS], axis=1)
    sums = _cumulated(terms)
    clipped = np.clip(base, GRID[0], GRID[-1])
    left = np.minimum(((clipped - GRID[0]) / _WIDTH).astype(int), len(GRID) - 2)
    share = ((clipped - GRID[left]) / _WIDTH)[:, None]
    values = (1 - share) * sums[left] + share * sums[left + 1]
    beyond = (base - clipped)[:, None]  # where the derivative is constant
    values += beyond * np.where(beyond > 0, terms[-1], terms[0])
    return shape[0] + values[:, 0], values[:, 1:]


def _inverse_integral(values: Values, shape: np.ndarray) -> Values:
    """Return the base points at which h has the given values."""
    derivative = np.exp(_HATS @ shape[1:])
    heights = shape[0] + _cumulated(derivative[:, None])[:, 0]
    below, above = np.minimum(values - heights[0], 0.0), np.maximum(values - heights[-1], 0.0)
    inside = np.interp(values, heights, GRID)
    return np.asarray(inside + below / derivative[0] + above / derivative[-1])


def _cumulated(terms: Features) -> Features:
    """Return integrals from zero to the points of the grid, by the trapezoid rule."""
    sums = np.zeros_like(terms)
    np.cumsum((terms[1:] + terms[:-1]) * (_WIDTH / 2), axis=0, out=sums[1:])
    return sums - sums[len(GRID) // 2]
