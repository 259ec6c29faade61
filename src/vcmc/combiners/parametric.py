"""Multiply Gaussians: every shard's density is taken for a Gaussian, and draws are of their product.

Neiswanger, Wang and Xing, *Asymptotically exact, embarrassingly parallel MCMC* (2014), section 3.1.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussians


class Parametric(AbstractCombiner):
    """Draws of the product of Gaussians that have the shards' means and covariances."""

    needs: ClassVar[Needs] = Needs(streams=True)

    def combine(self, shards: Subposteriors) -> Combined:
        product = Gaussians.of(shards).product()
        return Combined(
            jnp.asarray(product.draws(shards.num_draws, np.random.default_rng(shards.seed)))
        )
