r"""Gibbs sampling of a mixture of spherical Gaussians with equal weights.

With $x_n \sim N(\theta_{z_n}, \sigma^2 I)$, a sweep draws every $z_n$ given the centres, then
$\theta_l \sim N(s_l / (\sigma^2 \rho_l), I / \rho_l)$, $\rho_l = \lambda + n_l / \sigma^2$, from
the sums $s_l$ and counts $n_l$ of the rows assigned to $l$.

Rows run along the last axis, so that each step over the components is a vector operation over rows.
One uniform number per row is compared with the cumulative sums of
$e^{x_n^\top \theta_l / \sigma^2 - |\theta_l|^2 / 2 \sigma^2}$. The product of the result,
$H_{ln} = 1[z_n \le l]$, with $[x, 1]$ gives cumulative sums and counts, without any index.
"""

import copy
import itertools
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Array, Float
from numpy.random import Generator

from ..density import Subposterior
from ..space import Point
from .base import AbstractSampler
from .ranges import cut, generators, on_each

RANGE_CELLS = 65_536  # components times rows of a range: its buffers take 1 MB, an L2 cache


class MixtureGibbs(AbstractSampler):
    """Gibbs sampler over assignments and centres of `vcmc.models.GaussianMixture`.

    Args:
        num_warmup: sweeps to discard.
        num_chains: chains per shard.
    """

    takes_powers: ClassVar[bool] = False

    num_warmup: int = 200
    num_chains: int = 1

    def setup(self, density: Subposterior) -> "Mixture":
        model: Any = density.model
        if model.exact_sampler is not MixtureGibbs:
            raise TypeError(
                f"MixtureGibbs needs a vcmc.models.GaussianMixture; got {model!r}. "
                "Use vcmc.samplers.NUTS() for other models."
            )
        is_row = np.asarray(density.shard.weights) > 0
        x = np.asarray(density.shard.rows["x"], float)[is_row].T
        return Mixture(
            np.concatenate([x, np.ones((1, x.shape[1]))]),
            model.num_components,
            model.noise_scale**2,
            float(density.prior_power) / model.prior_scale**2,
        )

    def init(self, setup: "Mixture", start: Point, key: Array) -> "MixtureState":
        rng, *range_rngs = generators(key, 1 + len(setup.ranges()))
        centres = np.asarray(start, float).reshape(setup.num_components, -1)
        return MixtureState(centres, rng, range_rngs)

    def advance(
        self, setup: "Mixture", state: "MixtureState", key: Array, num_steps: int
    ) -> tuple["MixtureState", Float[Array | np.ndarray, "step dim"], dict[str, Array]]:
        del key
        state, draws = setup.sweeps(state, num_steps)
        return state, draws.reshape(num_steps, state.centres.size), {}


class MixtureState(NamedTuple):
    """The state between sweeps: the centres, and all random generators."""

    centres: Float[np.ndarray, "component dim"]
    rng: Generator
    range_rngs: list[Generator]


class Mixture(NamedTuple):
    """Rows of a shard with a last coordinate of ones, noise variance, and prior precision."""

    x: Float[np.ndarray, "dim_and_one row"]
    num_components: int
    variance: float
    precision: float

    def ranges(self) -> list[slice]:
        """Return the ranges of rows."""
        return cut(self.x.shape[1], RANGE_CELLS // self.num_components)

    def sweeps(
        self, state: MixtureState, num_steps: int
    ) -> tuple[MixtureState, Float[np.ndarray, "step component dim"]]:
        """Run sweeps from a state, and return the centres after each."""
        centres, rng, range_rngs = copy.deepcopy(state)
        parts = [
            Range(self, rows, range_rng)
            for rows, range_rng in zip(self.ranges(), range_rngs, strict=True)
        ]
        num_components, dim = centres.shape
        weights = np.empty((num_components, dim + 1))
        draws = np.empty((num_steps, num_components, dim))
        for step in range(num_steps):
            weights[:, :dim] = centres / self.variance
            weights[:, dim] = -0.5 * np.vecdot(centres, weights[:, :dim])
            on_each(partial(Range.draw, weights=weights), parts)
            sums = np.diff(np.sum([part.sums for part in parts], axis=0), axis=0, prepend=0.0)
            precision = self.precision + sums[:, dim:] / self.variance
            noise = rng.standard_normal((num_components, dim))
            mean = sums[:, :dim] / (self.variance * precision)
            centres = draws[step] = mean + noise / np.sqrt(precision)
        return MixtureState(centres, rng, range_rngs), draws


class Range:
    """One range of rows, its generator, and buffers for its assignments."""

    def __init__(self, shard: Mixture, rows: slice, rng: Generator):
        size = rows.stop - rows.start
        self.x, self.rng = np.ascontiguousarray(shard.x[:, rows]), rng
        self.uniform, self.peak = np.empty(size), np.empty(size)
        self.mass, self.below = np.empty((2, shard.num_components, size))
        self.sums = np.zeros((shard.num_components, len(shard.x)))

    def draw(self, weights: Float[np.ndarray, "component dim_and_one"]) -> None:
        """Draw the assignments of these rows, and reduce them to cumulative sums and counts."""
        mass = self.mass
        np.dot(weights, self.x, out=mass)
        np.maximum.reduce(mass, axis=0, out=self.peak)
        np.subtract(mass, self.peak, out=mass)
        np.exp(mass, out=mass)
        for lower, upper in itertools.pairwise(mass):  # np.add.accumulate is slower
            np.add(lower, upper, out=upper)
        self.rng.random(out=self.uniform)
        np.multiply(self.uniform, mass[-1], out=self.uniform)
        np.greater(mass, self.uniform, out=self.below)
        np.dot(self.below, self.x.T, out=self.sums)
