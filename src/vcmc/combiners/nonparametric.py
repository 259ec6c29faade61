"""Multiply kernel densities: every shard's density is a kernel estimate, and draws are of their product.

Neiswanger, Wang and Xing, *Asymptotically exact, embarrassingly parallel MCMC* (2014), section 3.2 and algorithm 1; the formulas, and
what is done in other ways than the paper's, are in `kernels.py`. It makes no assumption on the shape of shards, and is for few
dimensions: kernels widen with their number until nothing is left of that shape.
"""

from typing import ClassVar

import jax.numpy as jnp

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .kernels import Kernels, check_bandwidth, default_bandwidth, doubts, multiply

WIDE = 0.5  # sds: two modes are seen as one if kernels are any wider


class Nonparametric(AbstractCombiner):
    """Draws of the product of kernel densities of the shards.

    Args:
        bandwidth: sds of a kernel, in sds of the shard; by default n^(-1/(4 + dim)), n being the fewest draws of a shard.
        pairwise: multiply pairs of shards, then pairs of their products, and so on, in place of all at once; by default in up to
            two dimensions.
        shrink: pull draws towards their shard's mean, so that kernels do not widen the shard.
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
        notes = doubts(product)
        if kernels.bandwidth > WIDE:
            notes.append(
                f"Kernels are {kernels.bandwidth:.2f} as wide as the shards, with {min(shards.counts)} draws in {shards.space.dim} "
                "dimensions, and smooth their shape away. Use Semiparametric() or Variational(), or more draws."
            )
        return Combined(jnp.asarray(product.draws), notes=notes)
