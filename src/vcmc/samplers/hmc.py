r"""Hamiltonian Monte Carlo, by BlackJAX, with many walkers at once: for large shards whose density is close to a normal one.

Walkers of one shard move together, so that rows are read from memory once for all of them, and log likelihoods and scores are products of
matrices. They run in whitened coordinates (`whitening.py`), in which a trajectory of a quarter turn, $\pi/2$, leads to a place that has next to
nothing to do with where it began: two or three gradients a draw, where the no-U-turn sampler takes seven. What is far from normal needs
trajectories whose length depends on the place: that is what `NUTS` is for.

Walkers take turns: step number $s$ of the chain is iteration $\lfloor s / W \rfloor$ of walker $s \bmod W$. While an iteration adapts, all
walkers learn one step size, and, in the middle third of the warm-up, scales of the whitened coordinates.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..density import Subposterior
from ..model import MAX_CACHED_BYTES
from ..space import Point, Scalar
from .base import BLOCK, AbstractSampler
from .whitening import MAX_WHITENED, inverse_root, non_normality, placed, unwhiten, whitened

LENGTHS = (
    0.9 * np.pi / 2,
    1.3 * np.pi / 2,
)  # of trajectories, at random: all of one length could come back to where they were
FIRST_RATE, AVERAGED_AFTER = 2.0, 3  # of the search for a step size
MAX_LEAPS = 200  # in a trajectory
PRIOR_DRAWS = (
    5.0  # of a standard normal, by which centre and scales are held close to those of the curvature
)
STATS = {  # what is reported of each step, by ArviZ's names
    "lp": float,
    "acceptance_rate": float,
    "diverging": bool,
    "energy": float,
    "n_steps": int,
    "step_size": float,
    "walker": int,
}
MAX_DEPARTURE = 0.1  # from a normal density, above which trajectories of one length do not do


class HMCState(NamedTuple):
    """What is carried from step to step; walkers have been moved as often as whole turns were begun."""

    step: Int[Array, ""]
    walkers: Any
    stats: dict[str, Array]
    log_steps: Float[Array, "2"]
    moments: Float[Array, "3 dim"]
    centre: Point
    root: Float[Array, "dim dim"]


class HMC(AbstractSampler):
    """Hamiltonian Monte Carlo with many walkers, for large shards whose density is close to a normal one.

    Args:
        num_warmup: steps of adaptation, of all walkers together, thrown away.
        num_chains: chains in every shard, each of as many walkers.
        num_walkers: walkers of a chain, whose draws follow each other in it.
        target_accept: acceptance rate that the step size aims at. Raise it where steps diverge.

    >>> HMC().num_walkers
    40
    """

    num_warmup: int = 400
    num_chains: int = 1
    num_walkers: int = 40
    target_accept: float = 0.8

    def __check_init__(self) -> None:
        self.check_share("target_accept")
        self.check_count("num_walkers", 1)

    def init(self, setup: Subposterior, start: Point, key: Array) -> HMCState:
        root = inverse_root(setup, start)
        white = np.asarray(_whites(key, self.num_walkers, start.size))
        walkers = placed(setup, np.concatenate([white, np.zeros((1, start.size))]), start, root)
        # a walker that would begin where there is no density begins at the start, where there is some
        inside = np.isfinite(walkers.logdensity) & np.isfinite(walkers.logdensity_grad).all(axis=1)
        chosen = np.where(inside[:-1], np.arange(self.num_walkers), self.num_walkers)

        def zeros(*shape: int, kind: type = float) -> Array:
            return jnp.asarray(np.zeros(shape, kind))  # JAX's own would be programs to compile

        return HMCState(
            zeros(kind=int),
            jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen]), walkers),
            {name: zeros(self.num_walkers, kind=kind) for name, kind in STATS.items()},
            zeros(2),
            zeros(3, start.size),
            start,
            root,
        )

    def advance(
        self, setup: Subposterior, state: HMCState, key: Array, num_steps: int
    ) -> tuple[HMCState, Float[Array, "step dim"], dict[str, Array]]:
        begun = int(state.step) % self.num_walkers
        state, points, stats = _advance(self, setup, state, key, jnp.asarray(num_steps))
        here = slice(begun, begun + num_steps)
        return state, points[here], {name: values[here] for name, values in stats.items()}

    @property
    def num_turns(self) -> int:
        """How often all walkers move while they adapt."""
        return self.num_warmup // self.num_walkers


def suits(density: Subposterior, start: Point) -> bool:
    """Whether it is the better sampler for a shard: one whose rows do not fit into a core's cache, and whose density is close to a normal one."""
    if density.shard.num_bytes <= MAX_CACHED_BYTES or start.size > MAX_WHITENED:
        return False
    return non_normality(density, start) <= MAX_DEPARTURE


@partial(jax.jit, static_argnums=(1, 2))
def _whites(key: Array, num_walkers: int, dim: int) -> Float[Array, "walker dim"]:
    """Where walkers begin, in whitened coordinates."""
    return jax.random.normal(jax.random.fold_in(key, 0), (num_walkers, dim))


@eqx.filter_jit
def _advance(
    sampler: HMC, density: Subposterior, state: HMCState, key: Array, num_steps: Int[Array, ""]
) -> tuple[HMCState, Float[Array, "buffer dim"], dict[str, Array]]:
    """Turns of all walkers until `num_steps` steps are made, after those of a turn that was begun before."""
    count = sampler.num_walkers
    size = count * (-(-BLOCK // count) + 1)
    first, done = state.step // count, -(-state.step // count)

    def write(state: HMCState, place: Array, points: Array, stats: dict[str, Array]) -> Any:
        found = jax.vmap(lambda white: unwhiten(white, state.centre, state.root))(
            state.walkers.position
        )
        return jax.lax.dynamic_update_slice_in_dim(points, found, place, 0), {
            name: jax.lax.dynamic_update_slice_in_dim(stats[name], values, place, 0)
            for name, values in state.stats.items()
        }

    def turn(number: Array, carry: Any) -> Any:
        state, points, stats = carry
        state = _turn(sampler, density, state, number, jax.random.fold_in(key, number + 1))
        return state, *write(state, (number - first) * count, points, stats)

    points = jnp.zeros((size, state.centre.size))
    stats = {name: jnp.zeros(size, kind) for name, kind in STATS.items()}
    points, stats = write(state, jnp.asarray(0), points, stats)
    end = state.step + num_steps
    state, points, stats = jax.lax.fori_loop(done, -(-end // count), turn, (state, points, stats))
    return state._replace(step=end), points, stats


def _rotating(log_density: Any, kinetic_energy: Any) -> Any:
    """An integrator whose steps turn around the centre, as all there is to do for a standard normal density, between kicks by what the score is beyond that."""
    del kinetic_energy
    from blackjax.mcmc.integrators import IntegratorState

    both = jax.value_and_grad(log_density)

    def step(state: Any, angle: Scalar) -> Any:
        white, momentum, _, score = state
        momentum = momentum + 0.5 * angle * (score + white)
        white, momentum = (
            jnp.cos(angle) * white + jnp.sin(angle) * momentum,
            jnp.cos(angle) * momentum - jnp.sin(angle) * white,
        )
        value, score = both(white)
        return IntegratorState(white, momentum + 0.5 * angle * (score + white), value, score)

    return step


def _turn(
    sampler: HMC, density: Subposterior, state: HMCState, number: Array, key: Array
) -> HMCState:
    """Move all walkers once, by trajectories of one length, and learn from it if it is still time to."""
    import blackjax

    adapts = number < sampler.num_turns
    largest = jnp.exp(jnp.where(adapts, state.log_steps[0], state.log_steps[1]))
    length_key, move_key = jax.random.split(key)
    low, high = LENGTHS
    length = jax.random.uniform(length_key, minval=low, maxval=high)
    num_leaps = jnp.clip(jnp.ceil(length / largest), 1, MAX_LEAPS).astype(int)
    step_size = length / num_leaps
    kernel = blackjax.hmc.build_kernel(_rotating)
    log_density = whitened(density.batched(), state.centre, state.root)
    unit = jnp.ones_like(state.centre)
    walkers, info = jax.vmap(
        lambda key, walker: kernel(key, walker, log_density, step_size, unit, num_leaps)
    )(jax.random.split(move_key, sampler.num_walkers), state.walkers)
    acceptance = jnp.nan_to_num(info.acceptance_rate)
    reported = (
        walkers.logdensity,
        acceptance,
        info.is_divergent,
        info.energy,
        jnp.broadcast_to(num_leaps, acceptance.shape),
        jnp.broadcast_to(step_size, acceptance.shape),
        jnp.arange(sampler.num_walkers),
    )
    state = state._replace(walkers=walkers, stats=dict(zip(STATS, reported, strict=True)))
    return jax.lax.cond(
        adapts, lambda: _adapted(sampler, state, number, acceptance.mean()), lambda: state
    )


def _adapted(sampler: HMC, state: HMCState, number: Array, acceptance: Scalar) -> HMCState:
    """Learn the step size, and in the middle third of the warm-up centre and scales of whitened coordinates."""
    begin, end = sampler.num_turns // 3, 2 * sampler.num_turns // 3
    turn = jnp.where(
        number < end, number, number - end
    )  # of this search for a step size: of two, one before coordinates change
    log_step = state.log_steps[0] + (acceptance - sampler.target_accept) * FIRST_RATE / jnp.sqrt(
        1.0 + turn
    )
    log_step = jnp.minimum(log_step, jnp.log(LENGTHS[1]))
    seen = jnp.maximum(turn - AVERAGED_AFTER, 0)
    average = (seen * state.log_steps[1] + log_step) / (seen + 1)
    white = state.walkers.position
    moments = state.moments + jnp.where(
        (number >= begin) & (number < end),
        jnp.stack([jnp.ones_like(white), white, white**2]).sum(axis=1),
        0.0,
    )
    state = state._replace(log_steps=jnp.stack([log_step, average]), moments=moments)

    def renewed() -> HMCState:
        num_seen, total, squares = moments
        mean = total / (num_seen + PRIOR_DRAWS)
        variances = (squares - num_seen * mean**2 + PRIOR_DRAWS) / (num_seen + PRIOR_DRAWS)
        sds = jnp.sqrt(variances)
        walkers = state.walkers._replace(
            position=(white - mean) / sds, logdensity_grad=state.walkers.logdensity_grad * sds
        )
        return state._replace(
            walkers=walkers,
            centre=unwhiten(mean, state.centre, state.root),
            root=state.root * sds,
        )

    return jax.lax.cond(number == end - 1, renewed, lambda: state)
