r"""Multiply Gaussian approximations that are corrected by kernel density estimates.

Neiswanger, Wang and Xing, *Asymptotically exact, embarrassingly parallel MCMC* (2014), section 3.3.
With the Gaussian approximation $f_k$ of a shard and its draws $\theta_{k,t}$,

$$p_k(\theta) = f_k(\theta) \, \frac 1 {n_k} \sum_t
\frac{N(\theta \mid \theta_{k,t}, h^2 \Sigma_k)}{f_k(\theta_{k,t})}.$$

The wider the kernels, the closer the product is to `Parametric`. The formulas of the product, and
the differences from the paper, are in `kernels.py`.
"""

from typing import ClassVar

import jax.numpy as jnp

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .kernels import Kernels, check_bandwidth, default_bandwidth, mixing_warnings, multiply


class Semiparametric(AbstractCombiner):
    """Draws from the product of the shards' Gaussian approximations, corrected by kernels.

    Args:
        bandwidth: sd of a kernel, in sds of the shard; by default n^(-1/(4 + dim)), with n the
            fewest draws of a shard.
        pairwise: multiply pairs of shards, then pairs of these products, and so on, instead of all
            at once; by default in up to two dimensions.
    """

    needs: ClassVar[Needs] = Needs()

    bandwidth: float | None = None
    pairwise: bool | None = None

    def __check_init__(self) -> None:
        check_bandwidth(self.bandwidth)

    def combine(self, shards: Subposteriors) -> Combined:
        kernels = Kernels(self.bandwidth or default_bandwidth(shards), correct=True)
        product = multiply(shards, kernels, self.pairwise)
        return Combined(jnp.asarray(product.draws), notes=mixing_warnings(product))
