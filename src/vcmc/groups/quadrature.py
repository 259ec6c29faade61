r"""Rules that integrate local parameters out: fixed nodes and weights for a standard normal.

$$\int f(z)\, \mathcal N(z; 0, I)\, dz \approx \sum_s e^{w_s} f(z_s).$$

All rules have mean zero and covariance $I$ exactly, and are exact for polynomials of degree three.
"""

import abc
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Means are off by about the sd, over the posterior, of the log density's error in nats. It grows as
# the root of the number of groups. 2000 groups of 20 binary rows with two local coordinates:
# 0.016 with 12 nodes, 0.010 with 5 x 5, 0.0015 with 6 x 6, 0.0003 with 7 x 7.
DEFAULT_NODES = 9  # for one local coordinate
MANY_GROUPS = 5000
NODES_FOR_MANY_GROUPS = {1: 11, 2: 6}
DEFAULT_QUASI_RANDOM_NODES = 64


class Nodes(NamedTuple):
    """Nodes and the logarithms of their weights."""

    points: Float[np.ndarray, "node dim"]
    log_weights: Float[np.ndarray, " node"]


class AbstractQuadrature(abc.ABC):
    """A rule that integrates over local coordinates."""

    @abc.abstractmethod
    def nodes(self, dim: int) -> Nodes:
        """Return the nodes for a number of local coordinates."""

    @abc.abstractmethod
    def doubled(self, dim: int) -> "AbstractQuadrature":
        """Return a rule with more nodes, whose result tells the error of this one."""


@dataclass(frozen=True)
class GaussHermite(AbstractQuadrature):
    """Gauss–Hermite nodes along each local coordinate: best for one or two of them.

    Args:
        num_nodes: number of nodes along each coordinate, 3 or more.

    >>> GaussHermite(5).nodes(2).points.shape
    (25, 2)
    """

    num_nodes: int = 9

    def __post_init__(self) -> None:
        if not isinstance(self.num_nodes, int | np.integer) or self.num_nodes < 3:
            raise ValueError(
                "GaussHermite: num_nodes must be an integer of at least 3, so that scores and "
                f"Hessians are right where local parameters are Gaussian; got {self.num_nodes!r}."
            )

    def nodes(self, dim: int) -> Nodes:
        line, weights = np.polynomial.hermite_e.hermegauss(self.num_nodes)
        weights = weights / weights.sum()
        points = np.array(list(product(line, repeat=dim)))
        products = np.array([np.prod(parts) for parts in product(weights, repeat=dim)])
        return Nodes(points, np.log(products))

    def doubled(self, dim: int) -> "GaussHermite":
        del dim
        return replace(self, num_nodes=2 * self.num_nodes)


@dataclass(frozen=True)
class TwelveNodes(AbstractQuadrature):
    """Twelve nodes for two local coordinates, exact for polynomials of degree seven.

    This is formula $E_2^{r^2}$ 7-1 of Stroud, Approximate Calculation of Multiple Integrals (1971):
    four nodes on the axes and eight on the diagonals. Gauss–Hermite nodes need sixteen for it.

    >>> TwelveNodes().nodes(2).points.shape
    (12, 2)
    """

    def nodes(self, dim: int) -> Nodes:
        if dim != 2:
            raise ValueError(f"TwelveNodes is for two local coordinates; got {dim}.")
        root = np.sqrt(5.0)
        near, far = np.sqrt((9 - 3 * root) / 4), np.sqrt((9 + 3 * root) / 4)
        axes = np.sqrt(6.0) * np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])
        diagonals = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
        weights = np.repeat([1 / 36, (5 + 2 * root) / 45, (5 - 2 * root) / 45], 4)
        return Nodes(np.concatenate([axes, near * diagonals, far * diagonals]), np.log(weights))

    def doubled(self, dim: int) -> GaussHermite:
        del dim
        return GaussHermite(7)


@dataclass(frozen=True)
class QuasiRandom(AbstractQuadrature):
    """Quasi-random nodes of a normal distribution, for three local coordinates or more.

    Nodes come in pairs of opposite signs, and are scaled to covariance I.

    Args:
        num_nodes: number of nodes, a power of two.

    >>> QuasiRandom(32).nodes(4).points.shape
    (32, 4)
    """

    num_nodes: int = DEFAULT_QUASI_RANDOM_NODES

    def __post_init__(self) -> None:
        count = self.num_nodes
        if not isinstance(count, int | np.integer) or count < 8 or count & (count - 1):
            raise ValueError(
                f"QuasiRandom: num_nodes must be a power of two of at least 8; got {count!r}."
            )

    def nodes(self, dim: int) -> Nodes:
        # imported here: SciPy adds to the time of `import vcmc`
        from scipy.special import ndtri
        from scipy.stats import qmc

        half = max(self.num_nodes // 2, 2 ** int(np.ceil(np.log2(dim + 1))))
        uniform = qmc.Sobol(dim, scramble=True, rng=np.random.default_rng(0)).random(half)
        points = ndtri(uniform)
        root = np.linalg.cholesky(points.T @ points / half)
        points = np.linalg.solve(root, points.T).T
        return Nodes(np.concatenate([points, -points]), np.full(2 * half, -np.log(2.0 * half)))

    def doubled(self, dim: int) -> "QuasiRandom":
        del dim
        return replace(self, num_nodes=2 * self.num_nodes)


@dataclass(frozen=True)
class ExactGaussian(AbstractQuadrature):
    """The closed form where the joint density is Gaussian in the local coordinates.

    It holds for normal local parameters in a normal likelihood with a linear predictor; vcmc
    recognises it. The diagnosis compares it with Gauss–Hermite nodes.
    """

    def nodes(self, dim: int) -> Nodes:
        return Nodes(np.zeros((1, dim)), np.zeros(1))

    def doubled(self, dim: int) -> AbstractQuadrature:
        return default_quadrature(dim)


def default_quadrature(dim: int, num_groups: int = 0) -> AbstractQuadrature:
    """Return the rule for a number of local coordinates and of groups."""
    if dim in NODES_FOR_MANY_GROUPS and num_groups > MANY_GROUPS:
        return GaussHermite(NODES_FOR_MANY_GROUPS[dim])
    rules = {1: GaussHermite(DEFAULT_NODES), 2: TwelveNodes()}
    return rules.get(dim, QuasiRandom())
