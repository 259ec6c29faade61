r"""The no-U-turn sampler (Hoffman and Gelman 2014), by BlackJAX, with Stan's warm-up.

Chains run in whitened coordinates: points are $u = c + R z$ around the shard's mode $c$, with
$R R^\top$ the inverse of the curvature there, and start at a draw of that normal approximation.
Warm-up only has to learn a step size and a metric close to the identity, diagonal unless there are
few coordinates.

Warm-up and sampling are one compiled program: the number of the step decides whether step size and
metric adapt. The rows are its arguments, so that one compilation serves all shards.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..density import Subposterior
from ..space import Point, Scalar
from .base import BLOCK, AbstractSampler, Programs, strongly_typed
from .whitening import (
    MAX_HALVINGS,
    MAX_WHITENED_DIM,
    Root,
    chain_states,
    normal_approximation,
    unwhiten,
    whitened_density,
)

# Steps of the first and the last window of warm-up. Stan has 75 and 50: whitened chains need fewer
# of the first, and tuning the step size for 100 steps was measured to give a fifth more effective
# draws.
INITIAL_STEPS, FINAL_STEPS = 50, 100
MAX_DENSE_METRIC_DIM = 10  # up to here the metric is dense: it corrects an atypical curvature
DONE = 2  # the stage after warm-up; 0 adapts the step size, 1 the metric too (Stan's fast and slow)
STATS = {  # statistics of each step, by ArviZ's names
    "lp": float,
    "acceptance_rate": float,
    "diverging": bool,
    "energy": float,
    "n_steps": int,
    "tree_depth": int,
    "step_size": float,
}


class NUTSState(NamedTuple):
    """The state between steps."""

    step: Int[Array, ""]
    position: Any
    step_size_search: Any
    metric_search: Any
    centre: Point
    root: Root | None


class NUTS(AbstractSampler):
    """No-U-turn sampler for any differentiable model.

    Args:
        num_warmup: steps of adaptation, which are discarded.
        num_chains: chains per shard.
        target_accept: target acceptance rate of the step size. Raise it if steps diverge.
        whiten: run in coordinates whitened by the curvature at the start; by default for up to
            2,000 coordinates.
        max_depth: a trajectory has at most 2^max_depth steps.

    >>> NUTS(num_warmup=300, num_chains=2).target_accept
    0.8
    """

    # Whitened chains start in the typical set. Means of 96 draws after 100 steps were 0.8 to 1.6
    # times as precise as after 300 (rare events, a mixture, log-gamma shards), for two fifths to
    # three fifths of the gradients.
    num_warmup: int = 100
    num_chains: int = 1
    target_accept: float = 0.8
    whiten: bool | None = None
    max_depth: int = 10

    def __check_init__(self) -> None:
        self.check_share("target_accept")

    def init(self, setup: Subposterior, start: Point, key: Array) -> NUTSState:
        centre, root, white = start, None, np.zeros(start.size)
        if self.whitens(start.size):
            centre, root = normal_approximation(setup, start)
            white = np.asarray(_initial_draw(key, start.size))
        positions = _initial_position(setup, white, centre, root)
        position = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), positions)
        return _initial_state(self, position, centre, root)

    def advance(
        self, setup: Subposterior, state: NUTSState, key: Array, num_steps: int
    ) -> tuple[NUTSState, Float[Array, "step dim"], dict[str, Array]]:
        advance = _advance.for_shard(setup.shard)
        state, points, stats = advance(self, setup, state, key, jnp.asarray(num_steps))
        return (
            state,
            points[:num_steps],
            {name: values[:num_steps] for name, values in stats.items()},
        )

    def adaptation(self, dim: int) -> tuple[Any, Any]:
        """Return BlackJAX's dual averaging of the step size and its estimate of the metric."""
        from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        is_diagonal = dim > MAX_DENSE_METRIC_DIM
        return dual_averaging_adaptation(self.target_accept), mass_matrix_adaptation(is_diagonal)

    def whitens(self, dim: int) -> bool:
        """Return whether chains in `dim` dimensions run in whitened coordinates."""
        return dim <= MAX_WHITENED_DIM if self.whiten is None else self.whiten


@partial(jax.jit, static_argnums=1)
def _initial_draw(key: Array, dim: int) -> Float[Array, " dim"]:
    """Draw the initial position in whitened coordinates, with a key that no step has."""
    return jax.random.normal(jax.random.fold_in(key, 2**31 - 1), (dim,))


def _initial_position(
    density: Subposterior, white: np.ndarray, centre: Point, root: Root | None
) -> Any:
    """Return the state at a whitened point, halved while it is far less likely than it should be.

    Under a normal density its log density is |z|²/2 below that of the centre.
    """
    peak = chain_states(density, np.zeros_like(white)[None], centre, root)
    for _ in range(MAX_HALVINGS):
        state = chain_states(density, white[None], centre, root)
        is_sound = np.isfinite(state.logdensity_grad).all()
        if is_sound and state.logdensity[0] >= peak.logdensity[0] - white @ white:
            return state
        white = white / 2
    return peak


@eqx.filter_jit
def _initial_state(sampler: NUTS, position: Any, centre: Point, root: Root | None) -> NUTSState:
    """Return the state of a chain before adaptation."""
    (step_size_init, _, _), (metric_init, _, _) = sampler.adaptation(centre.size)
    state = NUTSState(
        jnp.asarray(0), position, step_size_init(1.0), metric_init(centre.size), centre, root
    )
    return strongly_typed(state)


def _advance_chain(
    sampler: NUTS, density: Subposterior, state: NUTSState, key: Array, num_steps: Int[Array, ""]
) -> tuple[NUTSState, Float[Array, "block dim"], dict[str, Float[Array, " block"]]]:
    """Write `num_steps` steps into buffers of `BLOCK` rows: one program for all blocks."""
    import blackjax

    kernel = blackjax.nuts.build_kernel()
    log_density = whitened_density(density, state.centre, state.root)
    stages, window_ends = _schedule(sampler.num_warmup)

    def step(index: Int[Array, ""], carry: Any) -> Any:
        state, points, stats = carry
        number = jnp.minimum(state.step, sampler.num_warmup)
        stage, window_end = jnp.asarray(stages)[number], jnp.asarray(window_ends)[number]
        step_size = _step_size(state, stage)
        position, info = kernel(
            jax.random.fold_in(key, state.step),
            state.position,
            log_density,
            step_size,
            state.metric_search.inverse_mass_matrix,
            sampler.max_depth,
        )
        state = _adapt(sampler, state, stage, window_end, position, info.acceptance_rate)
        step_stats = (
            position.logdensity,
            info.acceptance_rate,
            info.is_divergent,
            info.energy,
            info.num_integration_steps,
            info.num_trajectory_expansions,
            step_size,
        )
        return (
            state,
            points.at[index].set(unwhiten(position.position, state.centre, state.root)),
            {
                name: stats[name].at[index].set(value)
                for name, value in zip(STATS, step_stats, strict=True)
            },
        )

    stats = {name: jnp.zeros(BLOCK, dtype) for name, dtype in STATS.items()}
    points = jnp.zeros((BLOCK, density.model.space.dim))
    return jax.lax.fori_loop(0, num_steps, step, (state, points, stats))


_advance = Programs.of(_advance_chain)


def _step_size(state: NUTSState, stage: Int[Array, ""]) -> Scalar:
    """Return the current step size during warm-up, and the averaged one afterwards."""
    search = state.step_size_search
    return jnp.exp(jnp.where(stage == DONE, search.log_step_size_avg, search.log_step_size))


def _adapt(
    sampler: NUTS,
    state: NUTSState,
    stage: Int[Array, ""],
    window_end: Array,
    position: Any,
    acceptance_rate: Scalar,
) -> NUTSState:
    """Adapt to one step as the stage allows, and update the metric where a window ends."""
    (step_size_init, step_size_update, step_size_final), (_, metric_update, metric_final) = (
        sampler.adaptation(state.centre.size)
    )
    step_size_search, metric_search = jax.lax.switch(
        stage,
        (
            lambda search, metric: (step_size_update(search, acceptance_rate), metric),
            lambda search, metric: (
                step_size_update(search, acceptance_rate),
                metric_update(metric, position.position),
            ),
            lambda search, metric: (search, metric),
        ),
        state.step_size_search,
        state.metric_search,
    )
    step_size_search, metric_search = jax.lax.cond(
        window_end,
        lambda search, metric: (step_size_init(step_size_final(search)), metric_final(metric)),
        lambda search, metric: (search, metric),
        step_size_search,
        metric_search,
    )
    return NUTSState(
        state.step + 1, position, step_size_search, metric_search, state.centre, state.root
    )


@lru_cache
def _schedule(num_warmup: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return stages and ends of windows of the warm-up steps, and an entry for later steps."""
    from blackjax.adaptation.staged_adaptation import build_schedule

    if num_warmup == 0:
        return (DONE,), (False,)
    with jax.ensure_compile_time_eval():
        schedule = build_schedule(num_warmup, INITIAL_STEPS, FINAL_STEPS)
        # in NumPy: iterating over a JAX array would compile a program of 0.4 s
        warmup = [(int(stage), bool(end)) for stage, end in np.asarray(schedule)]
    stages, ends = zip(*warmup, (DONE, False), strict=True)
    return stages, ends
