r"""Exact draws of a precision matrix under its conjugate prior.

With $\Lambda \sim \mathrm{Wishart}(\nu, V)$ to the power $\tau$ and $n$ rows $x \sim N(\mu, \Lambda^{-1})$ of scatter
$S = \sum (x - \mu)(x - \mu)^\top$ around a known mean,

$$\Lambda \mid x \sim \mathrm{Wishart}(\tau (\nu - d - 1) + n + d + 1,\; (\tau V^{-1} + S)^{-1}).$$
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int
from numpyro.distributions import biject_to, constraints

from ..model import Subposterior
from ..typing import Point, Scalar
from .base import BLOCK, AbstractSampler


class WishartExact(AbstractSampler):
    """Independent draws of `vcmc.models.NormalWishart`: no warm-up, no autocorrelation."""

    num_warmup: int = 0
    num_chains: int = 1
    needs_start: ClassVar[bool] = False

    def setup(self, density: Subposterior) -> "Wishart":
        model: Any = density.model
        if model.exact_sampler is not WishartExact:
            raise TypeError(f"WishartExact samples vcmc.models.NormalWishart only; got {model!r}.")
        posterior: Wishart = model.posterior_of(density.shard, density.prior_power)
        if float(posterior.dof) <= model.dim - 1:
            raise ValueError(
                f"a shard's posterior is proper only with dof above dim - 1 = {model.dim - 1}; got "
                f"{float(posterior.dof):.3g}. Use fewer shards, or a prior with a larger dof."
            )
        return posterior

    def init(self, setup: "Wishart", start: Point, key: Array) -> Int[Array, ""]:
        del setup, start, key
        return jnp.asarray(0)

    def advance(
        self, setup: "Wishart", state: Int[Array, ""], key: Array, num_steps: int
    ) -> tuple[Int[Array, ""], Float[Array, "step dim"], dict[str, Array]]:
        points = _points(setup, state, key)
        return state + num_steps, points[:num_steps], {}


class Wishart(NamedTuple):
    """A Wishart distribution by its degrees of freedom and the inverse of its scale matrix."""

    dof: Scalar
    inverse_scale: Float[Array, "dim dim"]

    @property
    def scale(self) -> Float[Array, "dim dim"]:
        """The scale matrix."""
        return jnp.linalg.inv(self.inverse_scale)


@eqx.filter_jit
def _points(posterior: Wishart, step: Int[Array, ""], key: Array) -> Float[Array, "block point"]:
    """A block of draws as points: a Cholesky factor of a draw is what its coordinates are made of."""
    root = jnp.linalg.cholesky(posterior.scale)
    wishart = dist.WishartCholesky(posterior.dof, scale_tril=root, validate_args=False)
    keys = jax.vmap(lambda index: jax.random.fold_in(key, step + index))(jnp.arange(BLOCK))
    factors = jax.vmap(wishart.sample)(keys)
    return biject_to(constraints.lower_cholesky).inv(factors)
