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

# Gauss–Hermite nodes along each coordinate, by their number. 2000 groups of 20 binary rows with two
# local coordinates: with more nodes the log density changes by 0.006 nats over the posterior.
DEFAULT_NODES = {1: 9, 2: 5}
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


def default_quadrature(dim: int) -> AbstractQuadrature:
    """Return the rule for a number of local coordinates."""
    return GaussHermite(DEFAULT_NODES[dim]) if dim in DEFAULT_NODES else QuasiRandom()
