r"""The local parameters of groups, and the marginal likelihood of each group.

For a model $p(\phi) \prod_g p(u_g \mid \phi)\, p(x_g \mid u_g, \phi)$ the local parameters
$u_g$ are integrated out group by group,

$$m_g(\phi) = \int p(x_g \mid u, \phi)\, p(u \mid \phi)\, du,$$

so that $\log p(\phi \mid x) = \log p(\phi) + \sum_g \log m_g(\phi)$ is a model whose rows are
groups. In real coordinates $v$, with the mode $\hat v$ and the root $R$ of the inverse curvature,

$$m_g \approx |R|\, (2\pi)^{q/2} \sum_s e^{w_s + \lVert z_s \rVert^2 / 2}\, f_g(\hat v + R z_s)$$

with the nodes $z_s$ of a quadrature. Mode and root are held fixed when this is differentiated:
scores are then Fisher's identity with self-normalised weights, and Hessian products are consistent
with them. Where $\log f_g$ is quadratic in $v$ the integral has a closed form.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data.rows import Rows
from ..data.shard import Shard
from ..data.tiles import Groups
from ..space import Params, Product
from .local_modes import LocalNormals, LogJoint, derivatives, is_quadratic, local_normals
from .quadrature import AbstractQuadrature, ExactGaussian, default_quadrature
from .small_matrices import apply, apply_squares

LogLocalPrior = Callable[[Params, Params, Rows], Float[Array, " group"]]
LogLocalLikelihood = Callable[[Params, Params, Rows], Float[Array, " row"]]
LocalDerived = Callable[[Params, Params, Rows], Params]

LOG_TWO_PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class LocalModel:
    """What belongs to groups in a model.

    Attributes:
        space: the spaces of one group's local parameters.
        log_prior: log density of local params given params, one value per group; its last argument
            is the first row of every group.
        log_likelihood: one value per row, given params and the local params of the row's group.
        groups: the column of rows that says which group a row belongs to.
        quadrature: how local parameters are integrated out; None until rows are known.
        table: arrays with one entry per group, by name, and the labels of groups under `groups`.
        derived: further local quantities to report.
    """

    space: Product
    log_prior: LogLocalPrior
    log_likelihood: LogLocalLikelihood
    groups: str
    quadrature: AbstractQuadrature | None = None
    table: Mapping[str, np.ndarray] | None = None
    derived: LocalDerived | None = None

    def with_quadrature(self, quadrature: AbstractQuadrature) -> "LocalModel":
        """Return the same with another quadrature."""
        return replace(self, quadrature=quadrature)

    def constrain(self, points: Float[Array, "group dim"]) -> dict[str, Array]:
        """Return the local params of all groups' local coordinates."""
        return jax.vmap(self.space.constrain)(points)

    def log_joint(self, params: Params, shard: Shard) -> LogJoint:
        """Return the log density of local coordinates and rows, one value per group."""
        groups = groups_of(shard)
        num_rows = len(shard.weights)
        first_rows = groups.first_rows(shard.rows)

        def log_joint(points: Float[Array, "group dim"]) -> Float[Array, " group"]:
            local, log_dets = jax.vmap(self.space.constrain_with_log_det)(points)
            of_row = {name: groups.spread(value, num_rows) for name, value in local.items()}
            per_row = self.log_likelihood(params, of_row, shard.rows)
            prior = self.log_prior(params, local, first_rows)
            return prior + log_dets + groups.sum(per_row, shard.weights)

        return log_joint

    def start(self, shard: Shard) -> Float[Array, "group dim"]:
        """Return where the search for the modes begins, unless modes nearby are known."""
        return jnp.zeros((len(groups_of(shard).weights), self.space.dim))

    def normals(
        self, params: Params, shard: Shard, start: Float[Array, "group dim"] | None = None
    ) -> LocalNormals:
        """Return the normal approximation of every group's local coordinates.

        The search begins at `start`, e.g. modes nearby, and at zero where these are not finite.
        """
        start = self.start(shard) if start is None else jnp.where(jnp.isfinite(start), start, 0.0)
        return local_normals(self.log_joint(params, shard), start)

    def log_marginals(
        self, params: Params, shard: Shard, start: Float[Array, "group dim"] | None = None
    ) -> tuple[Float[Array, " group"], Float[Array, "group dim"]]:
        """Return the log marginal likelihood of every group, and the modes of local coordinates.

        The search for the modes begins at `start`, e.g. the modes at params nearby.
        """
        quadrature = self.quadrature or default_quadrature(self.space.dim)
        log_joint = self.log_joint(params, shard)
        frozen = jax.lax.stop_gradient(dict(params))
        if isinstance(quadrature, ExactGaussian):
            start = self.start(shard)
            return _gaussian_integrals(log_joint, self.log_joint(frozen, shard), start), start
        normals = jax.lax.stop_gradient(self.normals(frozen, shard, start))
        integrals = _integrals(log_joint, normals, quadrature)
        return integrals, normals.centres

    def changes(
        self,
        finer: AbstractQuadrature,
        params: Params,
        shard: Shard,
        start: Float[Array, "group dim"],
    ) -> tuple[Float[Array, " group"], Float[Array, "group dim"]]:
        """Return how log marginal likelihoods change with finer nodes, and the modes."""
        assert self.quadrature is not None
        log_joint = self.log_joint(params, shard)
        normals = self.normals(params, shard, start)
        fine = _integrals(log_joint, normals, finer)
        if isinstance(self.quadrature, ExactGaussian):
            coarse = _gaussian_integrals(log_joint, log_joint, self.start(shard))
        else:
            coarse = _integrals(log_joint, normals, self.quadrature)
        return fine - coarse, normals.centres

    def suited_quadrature(
        self, params: Params, shard: Shard, num_shards: int
    ) -> AbstractQuadrature:
        """Return the quadrature that suits the first of some shards, unless one was chosen."""
        if self.quadrature is not None:
            return self.quadrature
        dim, num_groups = self.space.dim, len(groups_of(shard).weights)
        log_joint = self.log_joint(params, shard)
        if is_quadratic(log_joint, num_groups, dim, seed=0):
            return ExactGaussian()
        return default_quadrature(dim, num_shards * num_groups)


def groups_of(shard: Shard) -> Groups:
    """Return the groups of a shard of rows for a model with local parameters."""
    if shard.groups is None:
        raise ValueError(
            "the rows have no groups: split them with vcmc.split(rows, num_shards, groups=...), or "
            "pass them to infer as they are."
        )
    return shard.groups


def _integrals(
    log_joint: LogJoint,
    normals: LocalNormals,
    quadrature: AbstractQuadrature,
) -> Float[Array, " group"]:
    dim = normals.centres.shape[1]
    nodes, log_weights = map(jnp.asarray, quadrature.nodes(dim))

    def at_node(node: Any) -> Float[Array, " group"]:
        point, log_weight = node
        return log_joint(normals.at(point)) + 0.5 * jnp.sum(point**2) + log_weight

    # one after the other, which XLA vectorizes over rows in cache: half the time of all at once;
    # evaluated again for a reverse pass, whose memory is then that of one node
    terms = jax.lax.map(jax.checkpoint(at_node), (nodes, log_weights))
    constant = normals.log_dets + 0.5 * dim * LOG_TWO_PI
    return constant + jax.scipy.special.logsumexp(terms, axis=0)


def _gaussian_integrals(
    log_joint: LogJoint, frozen: LogJoint, start: Float[Array, "group dim"]
) -> Float[Array, " group"]:
    """Integrate a density whose logarithm is quadratic, around any point: here its mode."""
    first = derivatives(frozen, start)
    mode = start + apply_squares(first.roots, first.gradients)
    expansion = derivatives(log_joint, jax.lax.stop_gradient(mode))
    roots = expansion.roots
    slopes = apply(jnp.swapaxes(roots, 1, 2), expansion.gradients)
    log_dets = LocalNormals(mode, roots).log_dets
    constant = 0.5 * start.shape[1] * LOG_TWO_PI
    return expansion.values + 0.5 * jnp.sum(slopes**2, axis=1) + log_dets + constant
