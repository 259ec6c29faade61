r"""Exact draws of a precision matrix under its conjugate prior.

With $\Lambda \sim \mathrm{Wishart}(\nu, V)$ to the power $\tau$ and $n$ rows
$x \sim N(\mu, \Lambda^{-1})$ of scatter $S = \sum (x - \mu)(x - \mu)^\top$ around a known mean, in
the space of matrices

$$\Lambda \mid x \sim \mathrm{Wishart}(\nu', V'), \quad
  \nu' = \tau (\nu - d - 1) + n + d + 1, \quad V' = (\tau V^{-1} + S)^{-1}.$$

A draw is $\Lambda = L L^\top$ with $L = C A$, $C C^\top = V'$, and $A$ lower triangular, standard
normal below the diagonal and $A_{ii}^2 \sim \chi^2_{\nu' - i + 1}$ on it (Bartlett). Real
coordinates are $L$ with the logarithms of its diagonal, and the map from them has
$|J| \propto \prod_i L_{ii}^{d - i + 2}$. As in all of vcmc, $|J|$ is raised to the power $\tau$
with the prior, so that the densities of shards multiply to the posterior *in real coordinates*.
That multiplies the density of $L$ by $\prod_i L_{ii}^{-(1 - \tau)(d - i + 2)}$, which only
subtracts $(1 - \tau)(d - i + 2)$ from the degrees of freedom of $A_{ii}^2$.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from numpyro.distributions import biject_to, constraints

from ..density import Subposterior
from ..space import Point, Scalar
from .base import BLOCK, AbstractSampler


class WishartExact(AbstractSampler):
    """Independent draws of `vcmc.models.NormalWishart`: no warm-up, no autocorrelation.

    Args:
        num_chains: chains per shard.
        temper_jacobian: temper in real coordinates, as NUTS does, so that the densities of shards
            multiply to the posterior there. Without it, they multiply to the posterior in the
            space of matrices, as in the paper: for combiners that work there.
    """

    num_warmup: int = 0
    num_chains: int = 1
    temper_jacobian: bool = True
    needs_start: ClassVar[bool] = False

    def setup(self, density: Subposterior) -> "Bartlett":
        model: Any = density.model
        if model.exact_sampler is not WishartExact:
            raise TypeError(
                f"WishartExact needs a vcmc.models.NormalWishart; got {model!r}. "
                "Use vcmc.samplers.NUTS() for other models."
            )
        posterior: Wishart = model.posterior_of(density.shard, density.prior_power)
        index = jnp.arange(1, model.dim + 1)
        dofs = posterior.dof - index + 1
        if self.temper_jacobian:
            dofs -= (1 - density.prior_power) * (model.dim - index + 2)
        if float(dofs.min()) <= 0:
            raise ValueError(
                f"a shard's posterior is proper only with dof above dim - 1 = {model.dim - 1}; got "
                f"{float(posterior.dof):.3g}. Use fewer shards, or a prior with a larger dof."
            )
        return Bartlett(jnp.linalg.cholesky(posterior.scale), dofs)

    def init(self, setup: "Bartlett", start: Point, key: Array) -> Int[Array, ""]:
        del setup, start, key
        return jnp.asarray(0)

    def advance(
        self, setup: "Bartlett", state: Int[Array, ""], key: Array, num_steps: int
    ) -> tuple[Int[Array, ""], Float[Array, "step dim"], dict[str, Array]]:
        first = int(state) % BLOCK
        points = _points(setup, state - first, key)
        return state + num_steps, points[first : first + num_steps], {}


class Wishart(NamedTuple):
    """A Wishart distribution, by its degrees of freedom and the inverse of its scale matrix."""

    dof: Scalar
    inverse_scale: Float[Array, "dim dim"]

    @property
    def scale(self) -> Float[Array, "dim dim"]:
        """The scale matrix."""
        return jnp.linalg.inv(self.inverse_scale)


class Bartlett(NamedTuple):
    """Bartlett's decomposition: a root of the scale, and the diagonal's degrees of freedom."""

    root: Float[Array, "dim dim"]
    dofs: Float[Array, " dim"]

    def draw(self, key: Array) -> Float[Array, "dim dim"]:
        """Return a Cholesky factor of one draw."""
        normal_key, gamma_key = jax.random.split(key)
        normal = jnp.tril(jax.random.normal(normal_key, self.root.shape), -1)
        chi = jnp.sqrt(2 * jax.random.gamma(gamma_key, self.dofs / 2))
        return self.root @ (normal + jnp.diag(chi))


@jax.jit
def _points(shard: Bartlett, step: Int[Array, ""], key: Array) -> Float[Array, "block point"]:
    """Return a block of draws as points, from their Cholesky factors."""
    keys = jax.vmap(lambda index: jax.random.fold_in(key, step + index))(jnp.arange(BLOCK))
    return biject_to(constraints.lower_cholesky).inv(jax.vmap(shard.draw)(keys))
