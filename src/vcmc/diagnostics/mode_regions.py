r"""The regions of modes, and the target restricted to one of them.

Pompe, Holmes and Łatuszyński, *A framework for adaptive MCMC targeting multimodal distributions*
(2020), eq. 1. With a Gaussian $w_j \, N_j$ for every mode, a point belongs to mode $j$ with the
probability

$$r_j(u) = \frac{w_j N_j(u)}{\sum_l w_l N_l(u)}, \qquad
  p(u) = \sum_j p(u) \, r_j(u).$$

So the target is a sum of parts $p \, r_j$ of one hill each, whatever the Gaussians are; better ones
make parts that are closer to Gaussian. The mass of a part is the weight of its mode.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import logsumexp

from ..density import Directions, Points, Vector
from ..target import Target
from .mode_shape import Mode
from .sampling_error import DrawSource


class ModeRegions(NamedTuple):
    """A Gaussian for every mode: centre, precision, and log mass."""

    centres: Float[np.ndarray, "mode dim"]
    precisions: Float[np.ndarray, "mode dim dim"]
    log_masses: Float[np.ndarray, " mode"]

    @classmethod
    def of(cls, modes: Sequence[Mode]) -> "ModeRegions":
        """Return the regions of modes by Laplace's approximations."""
        return cls(
            np.stack([mode.point for mode in modes]),
            np.stack([mode.curvature for mode in modes]),
            np.array([mode.log_mass for mode in modes]),
        )

    def log_shares(self, points: Float[np.ndarray, "point dim"]) -> Float[np.ndarray, "point mode"]:
        """Return log r_j of every mode at points."""
        return self._log_shares_and_slopes(points)[0]

    def _log_shares_and_slopes(
        self, points: Float[np.ndarray, "point dim"]
    ) -> tuple[Float[np.ndarray, "point mode"], Float[np.ndarray, "point mode dim"]]:
        """Return log r_j, and the scores of the Gaussians, at points."""
        steps = points[:, None] - self.centres
        slopes = -np.einsum("mij,pmj->pmi", self.precisions, steps)
        log_dets = np.linalg.slogdet(self.precisions)[1]
        heights = self.log_masses + 0.5 * log_dets + 0.5 * np.sum(steps * slopes, axis=2)
        return heights - logsumexp(heights, axis=1, keepdims=True), slopes

    def value_and_score(
        self, mode: int, points: Float[np.ndarray, "point dim"]
    ) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point dim"]]:
        """Return log r_j of one mode, and its gradient, at points."""
        log_shares, slopes = self._log_shares_and_slopes(points)
        mean_slope = np.einsum("pm,pmi->pi", np.exp(log_shares), slopes)
        return log_shares[:, mode], slopes[:, mode] - mean_slope

    def hessian(self, mode: int, point: Float[np.ndarray, " dim"]) -> np.ndarray:
        """Return the Hessian of log r_j of one mode at a point."""
        log_shares, slopes = self._log_shares_and_slopes(point[None])
        shares, slopes = np.exp(log_shares[0]), slopes[0]
        mean_slope = shares @ slopes
        mixed = np.einsum("m,mij->ij", shares, self.precisions)
        spread = np.einsum("m,mi,mj->ij", shares, slopes, slopes)
        return mixed - self.precisions[mode] - spread + np.outer(mean_slope, mean_slope)


class ModeDraws(NamedTuple):
    """The modes of a posterior, and which draws are from which.

    Attributes:
        labels: the mode of every draw.
        regions: the regions of the modes.
        weights, standard_errors: the modes' shares of the mass, and their standard errors.
        pareto_k: the Pareto k of the importance ratios that weights come from.
        sources: where the draws of every mode come from.
        exact: how the draws of every mode were made, if they are exact up to Monte Carlo error.
    """

    labels: Int[np.ndarray, " draw"]
    regions: ModeRegions
    weights: Float[np.ndarray, " mode"]
    standard_errors: Float[np.ndarray, " mode"]
    pareto_k: Float[np.ndarray, " mode"]
    sources: tuple[DrawSource, ...]
    exact: tuple[str, ...]


class RegionTarget(Target):
    """The full log density in the region of one mode: log p + log r_j, on the same shards."""

    def __init__(self, target: Target, regions: ModeRegions, mode: int):
        super().__init__(target.model, target.shard_cache, target.executor)
        self.shard_cache = target.shard_cache  # the same key: no process loads its shards again
        self.regions = regions
        self.mode = mode

    def __call__(
        self, points: Points, only: Sequence[int] | None = None
    ) -> tuple[Float[Array, " point"], Float[Array, "point dim"]]:
        """Return log densities and scores at a batch of points."""
        values, scores = super().__call__(points, only)
        shares, slopes = self.regions.value_and_score(self.mode, np.asarray(points))
        return jax.device_put(np.asarray(values) + shares), jax.device_put(
            np.asarray(scores) + slopes
        )

    def hessian_products(
        self, point: Vector, directions: Directions
    ) -> Float[Array, "direction dim"]:
        """Return the products of the Hessian at a point with directions."""
        products = np.asarray(super().hessian_products(point, directions))
        hessian = self.regions.hessian(self.mode, np.asarray(point))
        return jax.device_put(products + np.asarray(directions) @ hessian)
