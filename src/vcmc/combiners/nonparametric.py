r"""Multiply kernel density estimates of the shards.

Neiswanger, Wang and Xing, *Asymptotically exact, embarrassingly parallel MCMC* (2014), section 3.2
and algorithm 1:

$$\prod_k \frac 1 {n_k} \sum_t N(\theta \mid \theta_{k,t}, h^2 \Sigma_k).$$

It assumes nothing about the shape of the shards, and is for few dimensions: kernels widen with the
number of dimensions until nothing is left of that shape. The formulas of the product, and the
differences from the paper, are in `kernels.py`.
"""

from typing import ClassVar

import jax.numpy as jnp

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .kernels import Kernels, check_bandwidth, default_bandwidth, mixing_warnings, multiply

MAX_BANDWIDTH_SD = 0.5  # wider kernels merge two modes into one


class Nonparametric(AbstractCombiner):
    """Draws from the product of the shards' kernel density estimates.

    Args:
        bandwidth: sd of a kernel, in sds of the shard; by default n^(-1/(4 + dim)), with n the
            fewest draws of a shard.
        pairwise: multiply pairs of shards, then pairs of these products, and so on, instead of all
            at once; by default in up to two dimensions.
        shrink: shrink draws towards their shard's mean, so that kernels do not widen the shard.
    """

    needs: ClassVar[Needs] = Needs()

    bandwidth: float | None = None
    pairwise: bool | None = None
    shrink: bool = True

    def __check_init__(self) -> None:
        check_bandwidth(self.bandwidth)

    def combine(self, shards: Subposteriors) -> Combined:
        kernels = Kernels(self.bandwidth or default_bandwidth(shards), shrink=self.shrink)
        product = multiply(shards, kernels, self.pairwise)
        notes = mixing_warnings(product)
        if kernels.bandwidth > MAX_BANDWIDTH_SD:
            notes.append(
                f"Kernels are {kernels.bandwidth:.2f} times as wide as the shards, given "
                f"{min(shards.counts)} draws in {shards.space.dim} dimensions, and smooth their "
                "shape away. Use Semiparametric() or Variational(), or more draws."
            )
        return Combined(jnp.asarray(product.draws), notes=notes)
