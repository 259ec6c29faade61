r"""Independence Metropolis sampling, for shards whose log density is costly and nearly Gaussian.

Proposals are draws of a Student t distribution around the shard's mode, in whitened coordinates,
and do not depend on where a walker is. One is accepted with probability
$\min(1, w(z') / w(z))$, where $w$ is the ratio of the density to that of the proposals. A draw
costs one value of the log density, where Hamiltonian Monte Carlo takes two or three gradients.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..density import Subposterior
from ..space import Point
from .base import AbstractSampler, Programs
from .proposals import systematic_resample
from .walkers import new_steps, run_walkers
from .whitening import chain_states, normal_approximation, unwhiten

STATS = {  # statistics of each step, by ArviZ's names
    "lp": float,
    "acceptance_rate": float,
    "walker": int,
}
# Degrees of freedom of the proposals: the tails are heavier than normal, and in many dimensions the
# ratio of the two densities still varies little.
MIN_DOF, DOF_PER_DIM = 5.0, 5.0
MAX_UNMOVED_SHARE = 0.2  # of walkers, after warm-up
PROPOSALS_PER_WALKER = 4  # of which one is where a walker begins
NUM_TRIALS = 64  # proposals from which the acceptance rate is estimated


class Walkers(NamedTuple):
    """Positions of walkers in whitened coordinates, and the log ratios there."""

    position: Float[Array, "walker dim"]
    log_ratio: Float[Array, " walker"]


class IndependenceState(NamedTuple):
    """The state between steps."""

    step: Int[Array, ""]
    walkers: Walkers
    stats: dict[str, Array]
    centre: Point
    root: Float[Array, "dim dim"]


class Independence(AbstractSampler):
    """Independence Metropolis sampling with many walkers, for shards that are nearly Gaussian.

    Args:
        num_warmup: steps of all walkers together, which are discarded.
        num_chains: chains per shard.
        num_walkers: walkers per chain.

    >>> Independence().num_walkers
    32
    """

    num_warmup: int = 96
    num_chains: int = 1
    num_walkers: int = 32

    def __check_init__(self) -> None:
        self.check_count("num_walkers", 1)

    @classmethod
    def for_rate(cls, acceptance_rate: float) -> "Independence":
        """Return the sampler with a warm-up after which most walkers have moved."""
        rate = min(acceptance_rate, 1 - MAX_UNMOVED_SHARE)
        num_iterations = int(np.ceil(np.log(MAX_UNMOVED_SHARE) / np.log1p(-rate)))
        return cls(num_warmup=cls.num_walkers * max(2, num_iterations))

    def init(self, setup: Subposterior, start: Point, key: Array) -> IndependenceState:
        centre, root = normal_approximation(setup, start)
        # Walkers begin at some of many proposals, chosen by their weights: close to draws of the
        # density, so that a short warm-up suffices.
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        proposals = _first_proposals(generator, PROPOSALS_PER_WALKER * self.num_walkers, start.size)
        log_ratios = _log_ratios(setup, proposals, centre, root)
        log_ratios = np.where(np.isfinite(log_ratios), log_ratios, -np.inf)
        if np.isneginf(log_ratios).all():  # nothing but the centre is left
            proposals = np.zeros_like(proposals)
            log_ratios = _log_ratios(setup, proposals, centre, root)
        weights = np.exp(log_ratios - log_ratios.max())
        chosen = systematic_resample(weights, self.num_walkers, generator)
        white, log_ratios = proposals[chosen], log_ratios[chosen]
        walkers = Walkers(jnp.asarray(white), jnp.asarray(log_ratios))
        # jnp.zeros would compile programs
        step = jnp.asarray(np.zeros((), int))
        stats: dict[str, Array] = {
            name: jnp.asarray(np.zeros(self.num_walkers, dtype)) for name, dtype in STATS.items()
        }
        return IndependenceState(step, walkers, stats, centre, root)

    def advance(
        self, setup: Subposterior, state: IndependenceState, key: Array, num_steps: int
    ) -> tuple[IndependenceState, Float[Array, "step dim"], dict[str, Array]]:
        advance = _advance.for_shard(setup.shard)
        after, points, stats = advance(setup, state, key, jnp.asarray(num_steps))
        return after, *new_steps(state, self.num_walkers, num_steps, points, stats)


def acceptance_rate(density: Subposterior, start: Point) -> float:
    """Return the share of proposals that would be accepted, estimated from some of them."""
    centre, root = normal_approximation(density, start)
    white = _first_proposals(np.random.default_rng(0), NUM_TRIALS, start.size)
    log_ratios = _log_ratios(density, white, centre, root)
    if not np.isfinite(log_ratios).any():
        return 0.0
    ratios = np.exp(log_ratios - np.nanmax(log_ratios))
    # of a walker that is at a draw of the density to each of the proposals
    pairs = np.minimum(ratios[:, None], ratios[None])
    return float(np.nansum(pairs) / (NUM_TRIALS * np.nansum(ratios)))


def _first_proposals(
    generator: np.random.Generator, count: int, dim: int
) -> Float[np.ndarray, "proposal dim"]:
    """Draw proposals in NumPy, where nothing is compiled."""
    scales = np.sqrt(_dof(dim) / generator.chisquare(_dof(dim), count))
    return scales[:, None] * generator.normal(size=(count, dim))


def _log_ratios(
    density: Subposterior,
    white: Float[np.ndarray, "walker dim"],
    centre: Point,
    root: Float[Array, "dim dim"],
) -> Float[np.ndarray, " walker"]:
    log_densities = chain_states(density, white, centre, root).logdensity
    return np.asarray(log_densities) - np.asarray(_log_proposals(white))


def _dof(dim: int) -> float:
    return MIN_DOF + DOF_PER_DIM * dim


def _log_proposals(white: Float[Array | np.ndarray, "walker dim"]) -> Any:
    """Return the log densities of proposals, up to a constant."""
    dim = white.shape[1]
    log1p: Any = np.log1p if isinstance(white, np.ndarray) else jnp.log1p  # nothing to compile
    return -0.5 * (_dof(dim) + dim) * log1p((white**2).sum(axis=1) / _dof(dim))


def _propose(key: Array, num_walkers: int, dim: int) -> Float[Array, "walker dim"]:
    normal_key, scale_key = jax.random.split(key)
    dof = _dof(dim)
    squares = 2 * jax.random.gamma(scale_key, dof / 2, (num_walkers, 1))
    return jax.random.normal(normal_key, (num_walkers, dim)) * jnp.sqrt(dof / squares)


def _iteration(
    density: Subposterior, state: IndependenceState, number: Array, key: Array
) -> IndependenceState:
    """Propose a new position for every walker, and accept or reject it."""
    del number
    walkers = state.walkers
    num_walkers, dim = walkers.position.shape
    propose_key, accept_key = jax.random.split(key)
    proposed = _propose(propose_key, num_walkers, dim)
    points = jax.vmap(lambda white: unwhiten(white, state.centre, state.root))(proposed)
    values = density.values(points)
    log_ratio = values - _log_proposals(proposed)
    log_ratio = jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)
    rates = jnp.exp(jnp.minimum(0.0, log_ratio - walkers.log_ratio))
    accepted = jax.random.uniform(accept_key, (num_walkers,)) < rates
    position = jnp.where(accepted[:, None], proposed, walkers.position)
    new = Walkers(position, jnp.where(accepted, log_ratio, walkers.log_ratio))
    lp = new.log_ratio + _log_proposals(position)
    stats: dict[str, Any] = dict(zip(STATS, (lp, rates, jnp.arange(num_walkers)), strict=True))
    return state._replace(walkers=new, stats=stats)


def _advance_walkers(
    density: Subposterior, state: IndependenceState, key: Array, num_steps: Int[Array, ""]
) -> tuple[IndependenceState, Float[Array, "buffer dim"], dict[str, Array]]:
    """Run iterations of all walkers until `num_steps` steps are done."""
    return run_walkers(partial(_iteration, density), state, key, num_steps, STATS)


_advance = Programs.of(_advance_walkers)
