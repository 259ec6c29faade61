"""Multiply Gaussians that kernels correct: draws are of the product, which is Gaussian where kernels have nothing to say.

Neiswanger, Wang and Xing, *Asymptotically exact, embarrassingly parallel MCMC* (2014), section 3.3; the formulas, and what is done in
other ways than the paper's, are in `kernels.py`. The wider the kernels, the closer it is to
`Parametric`.
"""

from typing import ClassVar

import jax.numpy as jnp

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .kernels import Kernels, check_bandwidth, default_bandwidth, doubts, multiply


class Semiparametric(AbstractCombiner):
    """Draws of the product of Gaussians of the shards, each corrected by kernels.

    Args:
        bandwidth: sds of a kernel, in sds of the shard; by default n^(-1/(4 + dim)), n being the fewest draws of a shard.
        pairwise: multiply pairs of shards, then pairs of their products, and so on, in place of all at once; by default in up to
            two dimensions.
    """

    needs: ClassVar[Needs] = Needs()

    bandwidth: float | None = None
    pairwise: bool | None = None

    def __check_init__(self) -> None:
        check_bandwidth(self.bandwidth)

    def combine(self, shards: Subposteriors) -> Combined:
        kernels = Kernels(self.bandwidth or default_bandwidth(shards), correct=True)
        product = multiply(shards, kernels, self.pairwise)
        return Combined(jnp.asarray(product.draws), notes=doubts(product))
