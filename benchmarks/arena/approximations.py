"""Methods that approximate the posterior, and stochastic-gradient Langevin dynamics."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from answer import Answer, named, rows_of
from density import curvature_at, in_blocks, mode_of, of_numpyro
from problems import Problem

NUM_DRAWS = 4000  # of an approximation
FULL_BATCH_ROWS = 20_000  # up to here all rows are used at once


def svi_full(problem: Problem) -> Iterator[Answer]:
    """Run NumPyro's SVI with AutoMultivariateNormal."""
    from numpyro.infer.autoguide import AutoMultivariateNormal

    return _svi(problem, AutoMultivariateNormal, "full covariance")


def svi_diagonal(problem: Problem) -> Iterator[Answer]:
    """Run NumPyro's SVI with AutoDiagonalNormal."""
    from numpyro.infer.autoguide import AutoDiagonalNormal

    return _svi(problem, AutoDiagonalNormal, "diagonal covariance")


def _svi(problem: Problem, guide_of: Any, remark: str) -> Iterator[Answer]:
    """Run Adam with settings chosen in SVI's favour.

    The learning rate decays exponentially from 10⁻² to 10⁻⁶, which suits wide and narrow
    coordinates alike; a cosine schedule stays too large for too long. Scales start at about their
    final size: from NumPyro's 0.1, those of 300 coefficients do not converge. Means start at the
    mode, but for large problems, where any start will do: from NumPyro's random points, the mixture
    stays where two components coincide.
    """
    import optax
    from numpyro.infer import SVI, Trace_ELBO, init_to_uniform

    width = sum(array.size for array in problem.rows.values()) // problem.num_rows
    is_batched = problem.num_rows > FULL_BATCH_ROWS
    batch = min(problem.num_rows // 5, 1_000_000 // width) if is_batched else problem.num_rows
    num_steps = 30_000 if problem.is_large else 10_000
    begin = time.perf_counter()
    start = init_to_uniform if problem.is_large else _init_to_mode(problem)
    guide = guide_of(problem.model, init_loc_fn=start, init_scale=problem.num_rows**-0.5)
    rate = optax.exponential_decay(1e-2, num_steps, 1e-4)
    adam = numpyro.optim.optax_to_numpyro(optax.adam(rate))
    svi = SVI(
        _batched_model(problem, batch) if is_batched else problem.model, guide, adam, Trace_ELBO()
    )
    rows = rows_of(problem)
    result = svi.run(jax.random.key(0), num_steps, **rows, progress_bar=False)
    draws = guide.sample_posterior(
        jax.random.key(1), result.params, *(), sample_shape=(NUM_DRAWS,), **rows
    )
    params = {name: values for name, values in named(draws).items() if not name.startswith("_")}
    seconds = time.perf_counter() - begin
    yield Answer(
        params, seconds, remark=f"{remark}, {num_steps} Adam steps, batches of {batch} rows"
    )


def _batched_model(problem: Problem, batch: int) -> Callable[..., None]:
    """Return the model on a random range of consecutive rows; the rows are in random order.

    NumPyro's own subsampling permutes all indices, which takes most of a step for a million rows.
    """

    def model(**rows: Any) -> None:
        first = jax.random.randint(numpyro.prng_key(), (), 0, problem.num_rows)
        # ranges wrap around, so that all rows are used equally often
        with numpyro.handlers.substitute(
            data={"rows": (first + jnp.arange(batch)) % problem.num_rows}
        ):
            problem.model(**rows, batch=batch)

    return model


def laplace(problem: Problem) -> Iterator[Answer]:
    """Run NumPyro's AutoLaplaceApproximation, by its BFGS on all rows.

    It starts at the mode found by SciPy's L-BFGS: from elsewhere it stops far away on large
    problems.
    """
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoLaplaceApproximation

    begin = time.perf_counter()
    rows = rows_of(problem)
    guide = AutoLaplaceApproximation(problem.model, init_loc_fn=_init_to_mode(problem))
    svi = SVI(problem.model, guide, numpyro.optim.Minimize(), Trace_ELBO())
    result = svi.run(jax.random.key(0), 1, **rows, progress_bar=False)
    draws = guide.sample_posterior(
        jax.random.key(1), result.params, *(), sample_shape=(NUM_DRAWS,), **rows
    )
    yield Answer(named(draws), time.perf_counter() - begin)


def _init_to_mode(problem: Problem) -> Any:
    """Return an initialisation of guides at the mode found by SciPy's L-BFGS."""
    from numpyro.infer import init_to_value

    density = of_numpyro(problem)
    mode = {name: values[0] for name, values in density.params(mode_of(density)[None]).items()}
    return init_to_value(values=mode)


def pathfinder(problem: Problem) -> Iterator[Answer]:
    """Run BlackJAX's Pathfinder with a single path.

    It has 100 iterations, because its default of 30 does not always suffice, and 200 draws per
    estimate of the ELBO, or fewer where all rows times all draws do not fit into memory. With many
    rows it gets vcmc's log density, which evaluates them in blocks.
    """
    from blackjax.vi import pathfinder as package

    import vcmc

    begin = time.perf_counter()
    has_blocks = problem.num_rows > FULL_BATCH_ROWS
    num_samples = 50 if has_blocks else {"mixture": 50, "wishart": 20}.get(problem.name, 200)
    if has_blocks:
        density = in_blocks(problem, vcmc.from_numpyro(problem.model, problem.rows))
    else:
        density = of_numpyro(problem)

    @jax.jit
    def approximate(key: Any, first: Any) -> Any:
        return package.approximate(key, density.log_density, first, num_samples, maxiter=100)

    state, _ = approximate(jax.random.key(0), density.first)
    points, _ = package.sample(jax.random.key(1), state, NUM_DRAWS)
    yield Answer(density.params(points), time.perf_counter() - begin)


def sgld(problem: Problem) -> Iterator[Answer]:
    """Run BlackJAX's SGLD with control variates at the mode: 20,000 steps, every tenth kept.

    It starts at the mode found by SciPy's L-BFGS, in unconstrained coordinates scaled by the
    curvature there; the step size is a tenth of a posterior variance. It gets vcmc's log density in
    NumPyro's coordinates, which is available row by row.
    """
    import blackjax
    from blackjax.sgmcmc.gradients import control_variates, grad_estimator

    import vcmc

    begin = time.perf_counter()
    model = vcmc.from_numpyro(problem.model, problem.rows)
    density = in_blocks(problem, model)
    mode = mode_of(density)
    scale = jnp.diag(curvature_at(mode, density.log_density)).clip(1e-10) ** -0.5
    num_rows, batch = problem.num_rows, min(2000, problem.num_rows // 10)

    def log_likelihood(white: Any, row: Any) -> Any:
        params = model.space.constrain(mode + scale * white)
        return model.log_likelihood(params, jax.tree.map(lambda array: array[None], row))[0]

    estimator = grad_estimator(
        lambda white: model.log_prior_at(mode + scale * white), log_likelihood, num_rows
    )
    rows = rows_of(problem)
    kernel = blackjax.sgld(control_variates(estimator, jnp.zeros_like(mode), rows))

    @jax.jit
    def run(key: Any) -> Any:
        def step(white: Any, key: Any) -> Any:
            choose, move = jax.random.split(key)
            indices = jax.random.choice(choose, num_rows, (batch,))
            minibatch = jax.tree.map(lambda array: array[indices], rows)
            return kernel.step(move, white, minibatch, 0.1), white

        def ten_steps(white: Any, key: Any) -> Any:
            white, _ = jax.lax.scan(step, white, jax.random.split(key, 10))
            return white, white

        return jax.lax.scan(ten_steps, jnp.zeros_like(mode), jax.random.split(key, 2000))[1]

    white = run(jax.random.key(0))
    draws = density.params(mode + scale * white[200:])  # less the first tenth
    yield Answer(draws, time.perf_counter() - begin, remark=f"batches of {batch} rows")
