r"""Multiply Gaussian approximations of the shards.

Neiswanger, Wang and Xing, *Asymptotically exact, embarrassingly parallel MCMC* (2014), section 3.1:
draw from

$$N(\mu, \Lambda^{-1}) \propto \prod_k N(\mu_k, \Sigma_k).$$
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .gaussians import Gaussians


class Parametric(AbstractCombiner):
    """Draws from the product of the shards' Gaussian approximations."""

    needs: ClassVar[Needs] = Needs(streams=True)

    def combine(self, shards: Subposteriors) -> Combined:
        generator = np.random.default_rng(shards.seed)
        product = Gaussians.of(shards).product()
        return Combined(jnp.asarray(product.draws(shards.num_draws, generator)))
