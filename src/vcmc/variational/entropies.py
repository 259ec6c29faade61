r"""Entropies of aggregated draws: bounds from the shards' entropies, or that of a Gaussian sum.

For sums $F = \sum_k F_k$ of independent parts, let $H_k$ be the entropy of shard $k$ and
$j_k = \mathbb E \log |\det J(F_k)|$. The entropy power inequality gives three lower bounds on
the entropy of $F$, each at most the next:

| | | |
|---|---|---|
| `Relaxed` | $\min_k H_k + \frac 1 K \sum_k j_k$ | the paper's; concave in the weights |
| `Tighter` | $\min_k H_k + \max_k j_k$ | the paper's tighter one; not concave |
| `EntropyPower` | $\frac d 2 \log \sum_k \exp \frac 2 d (H_k + j_k)$ | the tightest |

`EntropyPower` is exact for all Gaussians with proportional covariances. `GaussianSum` is not a
bound: it is the entropy itself if the sum is Gaussian.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.operators import AbstractMatrix, DenseOperator
from ..linalg.shrinkage import means_and_covariances, shrunk_covariances
from ..linalg.whitening import Whitening
from ..space import Scalar

MAX_SHRUNK_DIM = 1000  # coordinates; of more, fewer draws than that have variances only


class AbstractEntropyEstimate(eqx.Module):
    """An estimate of the shards' entropies from their draws."""

    @abc.abstractmethod
    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        """Return the shards' differential entropies, in nats."""


class Gaussian(AbstractEntropyEstimate):
    """The entropy of a Gaussian with the draws' covariance: an upper bound for any density.

    With more than a thousand coordinates, and no more draws than coordinates, covariances are taken
    to be zero. The bound is coarser, but matrices of that size would be noise and fill the memory.

    >>> draws = jax.random.normal(jax.random.key(0), (1, 100_000, 1))
    >>> Gaussian()(draws).round(2).tolist()  # 0.5 log(2 pi e)
    [1.42]
    """

    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        num_draws, dim = draws.shape[1:]
        if num_draws > dim:
            covariances = means_and_covariances(draws)[1] * num_draws / (num_draws - 1)
        elif dim > MAX_SHRUNK_DIM:
            return 0.5 * jnp.sum(
                jnp.log(2 * jnp.pi * jnp.e * jnp.var(draws, axis=1, ddof=1)), axis=1
            )
        else:
            covariances = shrunk_covariances(draws)  # sample covariances would be singular
        return jnp.asarray(0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariances)[1])


class NearestNeighbours(AbstractEntropyEstimate):
    """The estimate of Kozachenko and Leonenko (1987), from distances between whitened draws.

    It is consistent for densities that are not Gaussian, but needs nearly independent draws: in a
    chain that mixes slowly, neighbours are too close. Its bias grows with the dimension; above ten
    or so prefer `Gaussian`.

    Args:
        num_neighbours: the rank of the neighbour whose distance is measured.
    """

    num_neighbours: int = 4

    def __check_init__(self) -> None:
        if self.num_neighbours < 1:
            raise ValueError(f"num_neighbours must be 1 or more; got {self.num_neighbours}.")

    def __call__(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        return jnp.array([self._entropy(np.asarray(shard)) for shard in draws])

    def _entropy(self, draws: Float[np.ndarray, "draw dim"]) -> float:
        # imported here: they add to the time of `import vcmc`
        from scipy.spatial import KDTree
        from scipy.special import digamma, gammaln

        draws = np.unique(draws, axis=0)  # rejected proposals repeat a draw
        num_draws, dim = draws.shape
        if num_draws <= max(self.num_neighbours, dim):
            raise ValueError(
                f"NearestNeighbours({self.num_neighbours}) needs more draws than neighbours and "
                f"dimensions; got {num_draws} different draws in {dim} dimensions. Use the "
                "estimate variational.Gaussian()."
            )
        root = np.linalg.cholesky(np.atleast_2d(np.cov(draws, rowvar=False)))
        white = Whitening(draws.mean(axis=0), DenseOperator(root)).whiten(draws)
        distances = KDTree(white).query(white, k=[self.num_neighbours + 1])[0][:, 0]
        log_ball = 0.5 * dim * np.log(np.pi) - gammaln(dim / 2 + 1)
        spread = dim * np.mean(np.log(distances)) + np.log(np.diag(root)).sum()
        return float(digamma(num_draws) - digamma(self.num_neighbours) + log_ball + spread)


class EntropyInputs(NamedTuple):
    """Input of an entropy: shard entropies, log determinants, and the merged draws' covariance."""

    entropies: Float[Array, " shard"]
    log_dets: Float[Array, " shard"]
    covariance: AbstractMatrix | None
    dim: int


class AbstractEntropy(eqx.Module):
    """An estimate of, or a bound on, the entropy of aggregated draws.

    Args:
        estimate: the estimate of the shards' entropies.
    """

    estimate: AbstractEntropyEstimate = eqx.field(default_factory=Gaussian)

    def of_shards(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        """Return the entropies of the shards."""
        return self.estimate(draws)

    @abc.abstractmethod
    def __call__(self, inputs: EntropyInputs) -> Scalar:
        """Return the entropy or the bound, in nats."""


class Relaxed(AbstractEntropy):
    """The paper's relaxation. Its optimum is biased if shards differ."""

    def __call__(self, inputs: EntropyInputs) -> Scalar:
        return jnp.min(inputs.entropies) + jnp.mean(inputs.log_dets)


class Tighter(AbstractEntropy):
    """The paper's tighter relaxation. It is not concave: only the widest part has a gradient."""

    def __call__(self, inputs: EntropyInputs) -> Scalar:
        return jnp.min(inputs.entropies) + jnp.max(inputs.log_dets)


class EntropyPower(AbstractEntropy):
    """The entropy power bound, exact for Gaussian shards with proportional covariances."""

    def __call__(self, inputs: EntropyInputs) -> Scalar:
        powers = 2 * (inputs.entropies + inputs.log_dets) / inputs.dim
        return 0.5 * inputs.dim * jax.nn.logsumexp(powers)


class GaussianSum(AbstractEntropy):
    r"""The entropy of a Gaussian: $\frac 1 2 \log \det 2 \pi e \sum_k W_k \hat\Sigma_k W_k^\top$.

    Exact if the sum of the shards' parts is Gaussian, which it nearly is for many shards of any
    shape; else an upper bound. It is for families that are linear in all coordinates together:
    `AffineFamily`, `VectorFamily`.
    """

    def of_shards(self, draws: Float[Array, "shard draw dim"]) -> Float[Array, " shard"]:
        return jax.device_put(np.zeros(len(draws)))  # not used

    def __call__(self, inputs: EntropyInputs) -> Scalar:
        if inputs.covariance is None:
            raise TypeError(
                "the entropy GaussianSum is for families that are linear in all coordinates "
                "together, e.g. AffineFamily() or VectorFamily(); for other families use "
                "EntropyPower() or Relaxed()."
            )
        log_det = inputs.covariance.log_det_spd()
        return 0.5 * (log_det + inputs.dim * jnp.log(2 * jnp.pi * jnp.e))
