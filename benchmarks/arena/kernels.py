"""Chains of NumPyro's NUTS and HMCECS and of BlackJAX's adjusted MCLMC.

Each is one compiled program from start to end, and its draws are read while it runs (`polling.py`).
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from answer import Answer, named, rows_of
from density import in_blocks, mode_and_root, mode_of, of_numpyro
from polling import Length, Program, polled
from problems import Problem

LARGE_NUTS, SMALL_NUTS = Length(200, 60, 10), Length(500, 1000, 50)

# Rows of a subsample of HMCECS, and its blocks, one of which is replaced per step. The log
# likelihood that is estimated from so many rows varies little: 96 to 100 % of new blocks were
# accepted on `small`, `robust` and `rare`. Far from Gaussian (`rare`, `mixture`), a Taylor
# expansion leaves more to the rows. A row takes d² numbers, read at every gradient: 72 MB for a
# hundred rows of `probit`.
SUBSAMPLE, MAX_SUBSAMPLE_SHARE, NUM_BLOCKS = 200, 0.2, 20
SUBSAMPLES = {"logistic": 100, "flights": 100, "probit": 100, "mixture": 500, "rare": 2000}
LARGE_ECS = {
    "logistic": Length(300, 600, 50),
    "flights": Length(300, 600, 50),
    "probit": Length(300, 300, 20),
}

# MCLMC's chains move together, so that a step is one matrix product for all; two programs of eight
# chains use both cores.
NUM_MCLMC_CHAINS = 8
LARGE_MCLMC, SMALL_MCLMC = Length(10, 60, 10), Length(25, 500, 25)
# Its tuning takes 0.3 times as many steps. With an acceptance rate of 0.65 it reached the goal
# sooner than with 0.9 on `small`, `robust` and `rare`.
NUM_TUNING_STEPS = 500
TARGET_ACCEPTANCE = 0.65
BLOCKED_ROWS = 20_000  # above, vcmc's log density bounds the memory: it takes rows in blocks


def nuts(problem: Problem) -> Iterator[Answer]:
    """Run NumPyro's NUTS: two chains, on one core each.

    They take 500 warm-up steps and 1000 draws; on large problems 200 and 60. Fewer warm-up steps
    than its 1000 are in its favour: it is timed to a goal.
    """
    from numpyro.infer import NUTS

    begin = time.perf_counter()
    length = LARGE_NUTS if problem.is_large else SMALL_NUTS
    remark = f"{length.num_warmup} warm-up steps"
    return _numpyro_chains(problem, NUTS(problem.model), length, begin, remark)


def hmcecs(problem: Problem) -> Iterator[Answer]:
    """Run NumPyro's HMCECS: NUTS on a subsample of rows, corrected by a Taylor expansion.

    The expansion is of second degree, at the mode found by SciPy's L-BFGS, where the two chains
    start.
    """
    from numpyro.infer import HMCECS, NUTS, init_to_value

    begin = time.perf_counter()
    name = problem.name.partition("@")[0]
    length = LARGE_ECS[name] if problem.is_large else SMALL_NUTS
    batch = min(SUBSAMPLES.get(name, SUBSAMPLE), int(MAX_SUBSAMPLE_SHARE * problem.num_rows))
    density = of_numpyro(problem)
    mode = {
        name: jnp.asarray(values[0])
        for name, values in density.params(mode_of(density)[None]).items()
    }
    model = partial(problem.model, batch=batch)
    kernel = HMCECS(
        NUTS(model, init_strategy=init_to_value(values=mode)),
        num_blocks=NUM_BLOCKS,
        proxy=HMCECS.taylor_proxy(mode, degree=2),
    )
    remark = f"{length.num_warmup} warm-up steps, {batch} rows in {NUM_BLOCKS} blocks"
    return _numpyro_chains(problem, kernel, length, begin, remark)


def _numpyro_chains(
    problem: Problem, kernel: Any, length: Length, begin: float, remark: str
) -> Iterator[Answer]:
    """Run two chains of a kernel of NumPyro, in one thread each."""

    def start(key: Any, rows: Any) -> Any:
        def step(state: Any, _: Any) -> tuple[Any, Any]:
            state = kernel.sample(state, (), rows)
            return state, kernel.postprocess_fn((), rows)(state.z)

        def advance(state: Any) -> tuple[Any, Any]:
            return jax.lax.scan(step, state, None, length=length.block)

        return kernel.init(key, length.num_warmup, None, (), rows), advance

    def params(points: Any) -> Any:
        return problem.reported(named(points))

    return polled(Program(start, rows_of(problem), params), length, begin, remark)


def mclmc(problem: Problem) -> Iterator[Answer]:
    """Run BlackJAX's adjusted MCLMC, with trajectories of random length: sixteen chains.

    Its own tuning finds step size, trajectory length and the scale of each coordinate. It starts
    at the mode found by SciPy's L-BFGS, in coordinates whitened by the curvature there, in which it
    takes larger steps.
    """
    from blackjax.adaptation.adjusted_mclmc_adaptation import adjusted_mclmc_find_L_and_step_size
    from blackjax.mcmc import adjusted_mclmc_dynamic as package

    import vcmc

    begin = time.perf_counter()
    length = LARGE_MCLMC if problem.is_large else SMALL_MCLMC
    if problem.num_rows > BLOCKED_ROWS:
        density = in_blocks(problem, vcmc.from_numpyro(problem.model, problem.rows))
    else:
        density = of_numpyro(problem)
    mode, root = mode_and_root(density)
    kernel = package.build_kernel(package.make_random_trajectory_length_fn(True))

    def log_density(white: Any) -> Any:
        return density.log_density(mode + root @ white)

    def start(key: Any, _: Any) -> Any:
        first_key, tuning_key, lengths_key, key = jax.random.split(key, 4)
        first = package.init(jnp.zeros_like(mode), log_density, first_key)
        tuned, settings, _ = adjusted_mclmc_find_L_and_step_size(
            kernel, log_density, NUM_TUNING_STEPS, first, tuning_key, TARGET_ACCEPTANCE
        )
        states = jax.tree.map(lambda array: jnp.stack([array] * NUM_MCLMC_CHAINS), tuned)
        states = states._replace(
            random_generator_arg=jax.random.split(lengths_key, NUM_MCLMC_CHAINS)
        )

        def move(key: Any, state: Any) -> Any:
            return kernel(
                key,
                state,
                log_density,
                settings.step_size,
                inverse_mass_matrix=settings.inverse_mass_matrix,
                integration_steps_params=(settings.L / settings.step_size,),
            )[0]

        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            key, states = carry
            key, *keys = jax.random.split(key, 1 + NUM_MCLMC_CHAINS)
            states = jax.vmap(move)(jnp.stack(keys), states)
            return (key, states), states.position

        def advance(carry: Any) -> tuple[Any, Any]:
            return jax.lax.scan(step, carry, None, length=length.block)

        return (key, states), advance

    def params(white: Any) -> Any:
        return density.params(mode + white @ root.T)

    program = Program(start, {}, params, num_chains=NUM_MCLMC_CHAINS)
    remark = f"tuned in {3 * NUM_TUNING_STEPS // 10} steps"
    return polled(program, length, begin, remark)
