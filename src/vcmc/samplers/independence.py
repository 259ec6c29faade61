r"""Independence Metropolis sampling, for shards whose log density is costly and nearly Gaussian.

Proposals are draws of a Student t distribution, and do not depend on where a walker is. One is
accepted with probability $\min(1, w(z') / w(z))$, where $w$ is the ratio of the density to that of
the proposals. A draw costs one evaluation of the log density, where Hamiltonian Monte Carlo takes
two or three gradients. First proposals are made around the shard's mode with the curvature there;
where their weights $w$ are uneven, their weighted moments are those of the proposals that follow,
unless these would be noisier than the curvature is wrong.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from ..density import Subposterior
from ..space import Point
from .base import AbstractSampler
from .proposals import systematic_resample
from .whitening import chain_states, normal_approximation, unwhiten_all

# Degrees of freedom of the proposals: the tails are heavier than normal, and in many dimensions the
# ratio of the two densities still varies little.
MIN_DOF, DOF_PER_DIM = 5, 5
MAX_UNMOVED_SHARE = 0.2  # of walkers, after warm-up
NUM_FIRST = 128  # first proposals
NUM_TRIALS = 64  # proposals from which the acceptance rate is estimated
MAX_FITTED_DIM = 16  # coordinates: more have too many moments for so few proposals


class IndependenceState(NamedTuple):
    """The state between steps: that after the last iteration of all walkers that was started.

    Attributes:
        step: number of steps done; an iteration has as many steps as there are walkers.
        position: positions of the walkers in whitened coordinates.
        log_ratio: logarithms of the ratios of the density to that of the proposals there.
        rates: probabilities with which the walkers' last proposals were accepted.
        centre: the centre of the proposals.
        root: a root of their covariance.
    """

    step: int
    position: Float[np.ndarray, "walker dim"]
    log_ratio: Float[np.ndarray, " walker"]
    rates: Float[np.ndarray, " walker"]
    centre: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]


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
        # Walkers begin at some of the first proposals, chosen by their weights: close to draws of
        # the density, so that a short warm-up suffices.
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        first = _first_proposals(setup, start, generator)
        chosen = systematic_resample(first.weights, self.num_walkers, generator)
        white, log_ratios = first.white[chosen], first.log_ratios[chosen]
        rates = np.ones(self.num_walkers)
        return IndependenceState(0, white, log_ratios, rates, first.centre, first.root)

    def prepare(self, density: Subposterior, start: Point) -> None:
        root = np.eye(start.size)
        chain_states(density, np.zeros((1, start.size)), start, root)

    def advance(
        self, setup: Subposterior, state: IndependenceState, key: Array, num_steps: int
    ) -> tuple[IndependenceState, Float[np.ndarray, "step dim"], dict[str, Any]]:
        count = self.num_walkers
        end = state.step + num_steps
        numbers = range(-(-state.step // count), -(-end // count))  # of the iterations to run
        iterations = [state] if state.step % count else []
        iterations += _iterations(setup, state, key, numbers)
        iterations = iterations or [state]  # nothing to do
        after = iterations[-1]._replace(step=end)
        offset = state.step % count
        new = slice(offset, offset + num_steps)
        positions = np.concatenate([iteration.position for iteration in iterations])[new]
        log_ratios = np.concatenate([iteration.log_ratio for iteration in iterations])[new]
        rates = np.concatenate([iteration.rates for iteration in iterations])[new]
        stats = {
            "lp": log_ratios + _log_proposals(positions),
            "acceptance_rate": rates,
            "walker": np.tile(np.arange(count), len(iterations))[new],
        }
        return after, unwhiten_all(positions, state.centre, state.root), stats


class FirstProposals(NamedTuple):
    """The first proposals of a shard, in the coordinates that are fitted to them.

    Attributes:
        white: the proposals.
        weights: ratios of the density to that of the first proposals, up to a constant.
        log_ratios: logarithms of the ratios of the density to that of the proposals that follow.
        centre: the centre of the proposals that follow.
        root: a root of their covariance.
    """

    white: Float[np.ndarray, "proposal dim"]
    weights: Float[np.ndarray, " proposal"]
    log_ratios: Float[np.ndarray, " proposal"]
    centre: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]


def acceptance_rate(density: Subposterior, start: Point) -> float:
    """Return the share of proposals that would be accepted, estimated from some of them."""
    generator = np.random.default_rng(0)
    first = _first_proposals(density, start, generator)
    white = _propose(generator, NUM_TRIALS, start.size)
    log_ratios = _log_ratios(density, white, first.centre, first.root)
    if np.isneginf(log_ratios).all():
        return 0.0
    ratios = np.exp(log_ratios - log_ratios.max())
    # of a walker that is at a draw of the density to each of the proposals
    pairs = np.minimum(ratios[:, None], ratios[None])
    return float(np.sum(pairs) / (NUM_TRIALS * np.sum(ratios)))


def _log_ratios(
    density: Subposterior, white: Float[np.ndarray, "proposal dim"], centre: Any, root: Any
) -> Float[np.ndarray, " proposal"]:
    """Return the log ratios of the density to that of proposals; minus infinity if not finite."""
    values = chain_states(density, white, centre, root).logdensity - _log_proposals(white)
    return np.where(np.isfinite(values), values, -np.inf)


def _first_proposals(
    density: Subposterior, start: Point, generator: np.random.Generator
) -> FirstProposals:
    """Draw the first proposals and fit those that follow, in NumPy, where nothing is compiled."""
    dim = start.size
    centre, root = map(np.asarray, normal_approximation(density, start))
    white = _propose(generator, NUM_FIRST, dim)
    log_ratios = _log_ratios(density, white, centre, root)
    if np.isneginf(log_ratios).all():  # nothing but the centre is left
        return FirstProposals(np.zeros_like(white), np.ones(NUM_FIRST), log_ratios, centre, root)
    weights = np.exp(log_ratios - log_ratios.max())
    if dim <= MAX_FITTED_DIM and _is_worth_fitting(weights, dim):
        shift, factor = _fit(white, weights)
        centre, root = (
            centre + np.einsum("ij,j->i", root, shift),
            np.einsum("ij,jk->ik", root, factor),
        )
        log_densities = log_ratios + _log_proposals(white)
        white = np.linalg.solve(factor, (white - shift).T).T
        log_ratios = log_densities - _log_proposals(white)
    return FirstProposals(white, weights, log_ratios, centre, root)


def _is_worth_fitting(weights: Float[np.ndarray, " proposal"], dim: int) -> bool:
    r"""Return whether moments of weighted proposals are closer to the density than the curvature.

    With $m$ effective ones of $n$, proposals are about $(n/m - 1)/2$ nats from the density, and
    proposals with their $d + d (d + 1)/2$ moments about half a nat for each, over $m$.
    """
    effective = weights.sum() ** 2 / np.sum(weights**2)
    return bool(dim * (dim + 3) / (4 * effective) < (len(weights) / effective - 1) / 2)


def _fit(
    white: Float[np.ndarray, "proposal dim"], weights: Float[np.ndarray, " proposal"]
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
    """Return the mean of weighted proposals, and a root of their covariance, that of a normal.

    The largest weights are cut off, and moments are shrunk towards those of the proposals by the
    number of effective ones.
    """
    dim, dof = white.shape[1], _dof(white.shape[1])
    shares = np.minimum(weights, len(weights) ** 0.5 * weights.mean())
    shares = shares / shares.sum()
    trust = 1 / (1 + 2 * dim * np.sum(shares**2))
    mean = np.einsum("i,ij->j", shares, white)
    moment = np.einsum("i,ij,ik->jk", shares, white - mean, white - mean)
    # the covariance of Student's t is dof / (dof - 2) times that of its normal
    covariance = trust * moment * (dof - 2) / dof + (1 - trust) * np.eye(dim)
    return trust * mean, np.linalg.cholesky(covariance)


def _dof(dim: int) -> int:
    return MIN_DOF + DOF_PER_DIM * dim


def _log_proposals(white: Float[np.ndarray, "walker dim"]) -> Float[np.ndarray, " walker"]:
    """Return the log densities of proposals, up to a constant."""
    dim = white.shape[1]
    return -0.5 * (_dof(dim) + dim) * np.log1p((white**2).sum(axis=1) / _dof(dim))


def _propose(
    generator: np.random.Generator, count: int, dim: int
) -> Float[np.ndarray, "proposal dim"]:
    scales = np.sqrt(_dof(dim) / generator.chisquare(_dof(dim), count))
    return scales[:, None] * generator.normal(size=(count, dim))


def _iterations(
    density: Subposterior, state: IndependenceState, key: Array, numbers: range
) -> list[IndependenceState]:
    """Return the states after iterations; their proposals are evaluated together."""
    if not numbers:
        return []
    count, dim = state.position.shape
    seed = np.asarray(jax.random.key_data(key)).tolist()
    generators = [np.random.default_rng([*seed, number + 1]) for number in numbers]
    proposed = np.stack([_propose(generator, count, dim) for generator in generators])
    white = proposed.reshape(-1, dim)
    log_ratios = _log_ratios(density, white, state.centre, state.root).reshape(-1, count)
    states = []
    for generator, position, log_ratio in zip(generators, proposed, log_ratios, strict=True):
        with np.errstate(invalid="ignore"):  # neither may be finite
            rates = np.nan_to_num(np.exp(np.minimum(0.0, log_ratio - state.log_ratio)))
        accepted = generator.random(count) < rates
        state = state._replace(
            position=np.where(accepted[:, None], position, state.position),
            log_ratio=np.where(accepted, log_ratio, state.log_ratio),
            rates=rates,
        )
        states.append(state)
    return states
