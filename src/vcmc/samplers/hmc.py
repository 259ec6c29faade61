r"""Hamiltonian Monte Carlo with many walkers, by BlackJAX, for nearly Gaussian shards.

The walkers of a chain move together, so that rows are read from memory once for all of them, and
log likelihoods and scores are matrix products. They run in whitened coordinates (`whitening.py`),
in which the end of a trajectory of length $\pi/2$ is nearly independent of its start: two
gradients per draw, where the no-U-turn sampler takes seven, each for one point. Densities far from
Gaussian need trajectories of varying length: use `NUTS` for them.

Walkers start at draws of the shard's normal approximation, so that warm-up is short: they adapt one
step size, and, in the middle third of a long warm-up, the centre and the scales of the coordinates.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..density import Subposterior
from ..space import Point, Scalar
from .base import AbstractSampler, Programs
from .walkers import initial_positions, new_steps, run_walkers
from .whitening import (
    chain_states,
    normal_approximation,
    unwhiten,
    whitened_density,
)

# Bounds of the random lengths of trajectories: with one length, some could return to their start.
TRAJECTORY_LENGTHS = (0.9 * np.pi / 2, 1.3 * np.pi / 2)
LEARNING_RATE = 2.0  # of the log step size in its first iteration
AVERAGING_START = 3  # iterations before step sizes are averaged
MAX_LOCAL_VALUES = 2**17  # rows times walkers that are evaluated together, with local parameters
MAX_LEAPFROG_STEPS = 200  # in a trajectory
# Weight, in draws of a standard normal, of the centre and the scales that the curvature suggests.
PRIOR_DRAWS = 5.0
# Steps of the middle third of warm-up from which centre and scales are learned: the scales of fewer
# are worse than those of the curvature at the centre.
MIN_MOMENT_DRAWS = 100
STATS = {  # statistics of each step, by ArviZ's names
    "lp": float,
    "acceptance_rate": float,
    "diverging": bool,
    "energy": float,
    "n_steps": int,
    "step_size": float,
    "walker": int,
}
# Non-normality of a shard (`whitening.py`). Up to the first, the curvature gives centre and scales:
# 96 draws of log-gamma shards of shape 12 (0.04) were unbiased. Up to the second, they are learned
# in a longer warm-up: of shape 5 (0.10) such draws were unbiased, and 0.07 sd off without it.
# Above, trajectories of nearly one length are slow to reach the tails: of shape 3 (0.3) sds were
# wrong.
MAX_NORMAL, MAX_NON_NORMALITY = 0.05, 0.1
ADAPTIVE_WARMUP = 384  # steps, of which the middle third learns centre and scales


class HMCState(NamedTuple):
    """The state between steps; walkers are those after the last iteration that was started."""

    step: Int[Array, ""]
    walkers: Any
    stats: dict[str, Array]
    log_step_sizes: Float[Array, "2"]
    moments: Float[Array, "3 dim"]
    centre: Point
    root: Float[Array, "dim dim"]


class Adaptation(NamedTuple):
    """What adaptation needs to know: arrays, so that one program serves all settings.

    `num_iterations` are those of all walkers during warm-up.
    """

    num_iterations: Int[Array, ""]
    target_accept: Scalar


class HMC(AbstractSampler):
    """Hamiltonian Monte Carlo with many walkers, for shards that are nearly Gaussian.

    Args:
        num_warmup: steps of adaptation, of all walkers together, which are discarded.
        num_chains: chains per shard.
        num_walkers: walkers per chain.
        target_accept: target acceptance rate of the step size. Raise it if steps diverge.

    >>> HMC().num_walkers
    32
    """

    # Four iterations. After three, means of 96 draws of log-gamma shards of shape 8 to 40 had 1 to
    # 1.1 times the precision of independent draws; shape 8 had a bias of about 0.02 sd.
    num_warmup: int = 128
    num_chains: int = 1
    num_walkers: int = 32
    target_accept: float = 0.9

    def __check_init__(self) -> None:
        self.check_share("target_accept")
        self.check_count("num_walkers", 1)

    def init(self, setup: Subposterior, start: Point, key: Array) -> HMCState:
        centre, root = normal_approximation(setup, start)
        white = initial_positions(key, self.num_walkers, start.size)
        walkers = chain_states(setup, white, centre, root)
        # a walker that would start outside of the support starts at the centre instead
        is_inside = np.isfinite(walkers.logdensity) & np.isfinite(walkers.logdensity_grad).all(
            axis=1
        )
        if not is_inside.all():
            walkers = chain_states(setup, np.where(is_inside[:, None], white, 0.0), centre, root)

        def zeros(*shape: int, dtype: type = float) -> Array:
            return jax.device_put(np.zeros(shape, dtype))  # jnp.zeros would compile programs

        return HMCState(
            zeros(dtype=int),
            jax.device_put(walkers),
            {name: zeros(self.num_walkers, dtype=dtype) for name, dtype in STATS.items()},
            zeros(2),
            zeros(3, start.size),
            centre,
            root,
        )

    def advance(
        self, setup: Subposterior, state: HMCState, key: Array, num_steps: int
    ) -> tuple[HMCState, Float[Array, "step dim"], dict[str, Array]]:
        advance = _advance.for_shard(setup.shard)
        after, points, stats = advance(self._adaptation, setup, state, key, jnp.asarray(num_steps))
        return after, *new_steps(state, self.num_walkers, num_steps, points, stats)

    @property
    def _adaptation(self) -> "Adaptation":
        num_iterations = self.num_warmup // self.num_walkers
        return Adaptation(jnp.asarray(num_iterations), jnp.asarray(self.target_accept))


def _advance_walkers(
    adaptation: Adaptation,
    density: Subposterior,
    state: HMCState,
    key: Array,
    num_steps: Int[Array, ""],
) -> tuple[HMCState, Float[Array, "buffer dim"], dict[str, Array]]:
    """Run iterations of all walkers until `num_steps` steps are done."""
    iteration = partial(_iteration, adaptation, density)
    return run_walkers(iteration, state, key, num_steps, STATS)


_advance = Programs.of(_advance_walkers)


def _rotation_integrator(log_density: Any, kinetic_energy: Any) -> Any:
    """Return an integrator that is exact for a standard normal density.

    Rotations of position and momentum alternate with kicks by the difference of the score to that
    of a standard normal.
    """
    del kinetic_energy
    from blackjax.mcmc.integrators import IntegratorState

    value_and_score = jax.value_and_grad(log_density)

    def step(state: Any, angle: Scalar) -> Any:
        white, momentum, _, score = state
        momentum = momentum + 0.5 * angle * (score + white)
        white, momentum = (
            jnp.cos(angle) * white + jnp.sin(angle) * momentum,
            jnp.cos(angle) * momentum - jnp.sin(angle) * white,
        )
        value, score = value_and_score(white)
        return IntegratorState(white, momentum + 0.5 * angle * (score + white), value, score)

    return step


def _iteration(
    adaptation: Adaptation, density: Subposterior, state: HMCState, number: Array, key: Array
) -> HMCState:
    """Move all walkers once, by trajectories of one random length, and adapt during warm-up."""
    import blackjax

    is_warmup = number < adaptation.num_iterations
    num_walkers = len(state.walkers.position)
    max_step_size = jnp.exp(jnp.where(is_warmup, state.log_step_sizes[0], state.log_step_sizes[1]))
    length_key, move_key = jax.random.split(key)
    low, high = TRAJECTORY_LENGTHS
    length = jax.random.uniform(length_key, minval=low, maxval=high)
    num_leapfrog_steps = jnp.clip(jnp.ceil(length / max_step_size), 1, MAX_LEAPFROG_STEPS).astype(
        int
    )
    step_size = length / num_leapfrog_steps
    kernel = blackjax.hmc.build_kernel(_rotation_integrator)
    log_density = whitened_density(density.batched(), state.centre, state.root)
    unit_metric = jnp.ones_like(state.centre)

    def move(arguments: tuple[Array, Any]) -> Any:
        key, walker = arguments
        return kernel(key, walker, log_density, step_size, unit_metric, num_leapfrog_steps)

    keyed = jax.random.split(move_key, num_walkers), state.walkers
    # with local parameters, walkers on many rows would not fit into cache together
    num_values = num_walkers * len(density.shard.weights)
    in_turn = density.model.local is not None and num_values > MAX_LOCAL_VALUES
    walkers, info = jax.lax.map(move, keyed) if in_turn else jax.vmap(move)(keyed)
    acceptance = jnp.nan_to_num(info.acceptance_rate)
    stats = (
        walkers.logdensity,
        acceptance,
        info.is_divergent,
        info.energy,
        jnp.broadcast_to(num_leapfrog_steps, acceptance.shape),
        jnp.broadcast_to(step_size, acceptance.shape),
        jnp.arange(num_walkers),
    )
    state = state._replace(walkers=walkers, stats=dict(zip(STATS, stats, strict=True)))
    return jax.lax.cond(
        is_warmup, lambda: _adapted(adaptation, state, number, acceptance.mean()), lambda: state
    )


def _adapted(
    adaptation: Adaptation, state: HMCState, number: Array, acceptance: Scalar
) -> HMCState:
    """Adapt the step size, and at two thirds of the warm-up the centre and the scales."""
    white, total = state.walkers.position, adaptation.num_iterations
    begin, end = total // 3, 2 * total // 3
    # a short warm-up has no middle third
    end = jnp.where((end - begin) * len(white) < MIN_MOMENT_DRAWS, 0, end)
    # the search for a step size starts again when the coordinates change
    iteration = jnp.where(number < end, number, number - end)
    excess = acceptance - adaptation.target_accept
    log_step_size = state.log_step_sizes[0] + excess * LEARNING_RATE / jnp.sqrt(1.0 + iteration)
    log_step_size = jnp.minimum(log_step_size, jnp.log(TRAJECTORY_LENGTHS[1]))
    num_averaged = jnp.maximum(iteration - AVERAGING_START, 0)
    average = (num_averaged * state.log_step_sizes[1] + log_step_size) / (num_averaged + 1)
    moments = state.moments + jnp.where(
        (number >= begin) & (number < end),
        jnp.stack([jnp.ones_like(white), white, white**2]).sum(axis=1),
        0.0,
    )
    state = state._replace(log_step_sizes=jnp.stack([log_step_size, average]), moments=moments)

    def with_new_coordinates() -> HMCState:
        count, sums, squares = moments
        mean = sums / (count + PRIOR_DRAWS)
        variances = (squares - count * mean**2 + PRIOR_DRAWS) / (count + PRIOR_DRAWS)
        sds = jnp.sqrt(variances)
        walkers = state.walkers._replace(
            position=(white - mean) / sds, logdensity_grad=state.walkers.logdensity_grad * sds
        )
        return state._replace(
            walkers=walkers,
            centre=unwhiten(mean, state.centre, state.root),
            root=state.root * sds,
        )

    return jax.lax.cond(number == end - 1, with_new_coordinates, lambda: state)
