r"""Entropies of aggregated draws: bounds from the shards' entropies, or the entropy of a Gaussian sum.

For sums $F = \sum_k F_k$ of independent parts, let $H_k$ be the entropy of shard $k$ and
$j_k = \mathbb E \log |\det J(F_k)|$. The entropy power inequality gives three lower bounds on
the entropy of $F$, each at most the next:

| | | |
|---|---|---|
| `Relaxed` | $\min_k H_k + \frac 1 K \sum_k j_k$ | the paper's; concave in the weights |
| `Tighter` | $\min_k H_k + \max_k j_k$ | the paper's tighter one; not concave |
| `EntropyPower` | $\frac d 2 \log \sum_k \exp \frac 2 d (H_k + j_k)$ | exact for Gaussians with proportional covariances |

`GaussianSum` is not a bound: it is the entropy itself where the sum is Gaussian.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.shrinkage import means_and_covariances, shrunk_covariances
from ..space import Scalar

MANY = 1000  # coordinates, above which covariances of few draws are not estimated


class AbstractEntropyEstimate(eqx.Module):
    """How the entropies of shards are estimated from their draws."""

    @abc.abstractmethod
    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        """The differential entropies, in nats."""


class Gaussian(AbstractEntropyEstimate):
    """The entropy of a Gaussian with the draws' covariance: an upper bound, whatever the shard's shape.

    Of more than a thousand coordinates, and no more draws than that, covariances are taken as zero: a coarser bound, but their matrices
    would say next to nothing and fill the memory.

    >>> draws = jax.random.normal(jax.random.key(0), (1, 100_000, 1))
    >>> Gaussian()(draws).round(2).tolist()  # 0.5 log(2 pi e)
    [1.42]
    """

    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        num_draws, dim = draws.shape[1:]
        if num_draws > dim:
            covariances = means_and_covariances(draws)[1] * num_draws / (num_draws - 1)
        elif dim > MANY:
            return 0.5 * jnp.sum(
                jnp.log(2 * jnp.pi * jnp.e * jnp.var(draws, axis=1, ddof=1)), axis=1
            )
        else:
            covariances = shrunk_covariances(draws)  # a plain one would have no determinant
        return jnp.asarray(0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariances)[1])


class NearestNeighbours(AbstractEntropyEstimate):
    """The estimate of Kozachenko and Leonenko, from distances to the nearest draws, after whitening.

    It sees shapes that are not Gaussian, and needs draws that hardly depend on each other: in a chain
    that moves slowly, neighbours are too near. Its bias grows with the number of dimensions; above ten or so
    prefer `Gaussian`.
    """

    num_neighbours: int = 4

    def __check_init__(self) -> None:
        if self.num_neighbours < 1:
            raise ValueError(f"num_neighbours must be 1 or more; got {self.num_neighbours}.")

    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        return jnp.array([self._entropy(np.asarray(shard)) for shard in draws])

    def _entropy(self, draws: Float[np.ndarray, "draw dim"]) -> float:
        from scipy.spatial import KDTree  # here, not above: they add to the time of `import vcmc`
        from scipy.special import digamma, gammaln

        draws = np.unique(draws, axis=0)  # a chain that stood still repeats its draws
        num_draws, dim = draws.shape
        if num_draws <= max(self.num_neighbours, dim):
            raise ValueError(
                f"NearestNeighbours({self.num_neighbours}) needs more draws than neighbours and dimensions; got {num_draws} "
                f"different draws in {dim} dimensions. Use the estimate variational.Gaussian()."
            )
        root = np.linalg.cholesky(np.atleast_2d(np.cov(draws, rowvar=False)))
        whitened = np.linalg.solve(root, (draws - draws.mean(axis=0)).T).T
        apart = KDTree(whitened).query(whitened, k=[self.num_neighbours + 1])[0][:, 0]
        log_ball = 0.5 * dim * np.log(np.pi) - gammaln(dim / 2 + 1)
        spread = dim * np.mean(np.log(apart)) + np.log(np.diag(root)).sum()
        return float(digamma(num_draws) - digamma(self.num_neighbours) + log_ball + spread)


class Parts(NamedTuple):
    """What an entropy is computed from: the shards' entropies and log determinants, and the covariance of merged draws."""

    entropies: Float[Array, " shard"]
    log_dets: Float[Array, " shard"]
    covariance: Array | None
    dim: int


class AbstractEntropy(eqx.Module):
    """A bound on the entropy of aggregated draws, from the shards' entropies and log determinants."""

    estimate: AbstractEntropyEstimate = eqx.field(default_factory=Gaussian)

    def of_shards(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        """The entropies of the shards."""
        return self.estimate(draws)

    @abc.abstractmethod
    def __call__(self, parts: Parts) -> Scalar:
        """The bound."""


class Relaxed(AbstractEntropy):
    """The paper's relaxation. Its optimum is biased where shards differ."""

    def __call__(self, parts: Parts) -> Scalar:
        return jnp.min(parts.entropies) + jnp.mean(parts.log_dets)


class Tighter(AbstractEntropy):
    """The paper's tighter relaxation, which is not concave: only the widest part gets a gradient."""

    def __call__(self, parts: Parts) -> Scalar:
        return jnp.min(parts.entropies) + jnp.max(parts.log_dets)


class EntropyPower(AbstractEntropy):
    """The entropy power bound itself, exact where the shards are Gaussians of proportional covariances."""

    def __call__(self, parts: Parts) -> Scalar:
        powers = 2 * (parts.entropies + parts.log_dets) / parts.dim
        return 0.5 * parts.dim * jax.nn.logsumexp(powers)


class GaussianSum(AbstractEntropy):
    r"""The entropy that a Gaussian of the merged draws' covariance has: $\frac 1 2 \log \det 2 \pi e \sum_k W_k \hat\Sigma_k W_k^\top$.

    Exact where sums of the shards' parts are Gaussian, which they nearly are for many shards whatever the shards' shape; else
    an upper bound. It is for families that are linear in all coordinates together: `AffineFamily`, `VectorFamily`.
    """

    def of_shards(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        return jnp.asarray(np.zeros(len(draws)))  # they are not asked for

    def __call__(self, parts: Parts) -> Scalar:
        covariance = parts.covariance
        if covariance is None:
            raise TypeError(
                "the entropy GaussianSum is for families that are linear in all coordinates together, such as AffineFamily() or "
                "VectorFamily(); for others use EntropyPower() or Relaxed()."
            )
        if covariance.ndim == 1:
            log_det = jnp.sum(jnp.log(covariance))
        else:
            log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(covariance))))
        return 0.5 * (log_det + parts.dim * jnp.log(2 * jnp.pi * jnp.e))
