"""Methods that approximate the posterior, or walk about it by a few rows at a time."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from answer import Answer, named, rows_of
from density import curvature_at, in_blocks, mode_of, of_numpyro
from problems import Problem


def svi_full(problem: Problem) -> Iterator[Answer]:
    """NumPyro's SVI with AutoMultivariateNormal."""
    from numpyro.infer.autoguide import AutoMultivariateNormal

    return _svi(problem, AutoMultivariateNormal, "full covariance")


def svi_diagonal(problem: Problem) -> Iterator[Answer]:
    """NumPyro's SVI with AutoDiagonalNormal."""
    from numpyro.infer.autoguide import AutoDiagonalNormal

    return _svi(problem, AutoDiagonalNormal, "diagonal")


def _svi(problem: Problem, guide_of: Any, remark: str) -> Iterator[Answer]:
    """Adam's rate falls as a power from 0.01 to a millionth, which suits wide and narrow coordinates alike: a cosine stays where it is too large for too long.

    Scales begin about where they belong; from NumPyro's 0.1, those of 300 coefficients do not get there. So do means, unless rows are many, where any
    start will do: from NumPyro's random points, those of a mixture stay where two components are one.
    """
    import optax
    from numpyro.infer import SVI, Trace_ELBO, init_to_uniform

    width = sum(array.size for array in problem.rows.values()) // problem.num_rows
    is_batched = problem.num_rows > 20_000
    batch = min(problem.num_rows // 5, 1_000_000 // width) if is_batched else problem.num_rows
    num_steps = 50_000 if problem.is_large else 20_000
    begin = time.perf_counter()
    start = init_to_uniform if problem.is_large else _at_the_mode(problem)
    guide = guide_of(problem.model, init_loc_fn=start, init_scale=problem.num_rows**-0.5)
    rate = optax.exponential_decay(1e-2, num_steps, 1e-4)
    adam = numpyro.optim.optax_to_numpyro(optax.adam(rate))
    svi = SVI(
        _some_rows(problem, batch) if is_batched else problem.model, guide, adam, Trace_ELBO()
    )
    rows = rows_of(problem)
    found = svi.run(jax.random.key(0), num_steps, **rows, progress_bar=False)
    draws = guide.sample_posterior(
        jax.random.key(1), found.params, *(), sample_shape=(4000,), **rows
    )
    kept = {name: values for name, values in named(draws).items() if not name.startswith("_")}
    seconds = time.perf_counter() - begin
    yield Answer(
        kept, seconds, remark=f"{remark}, {num_steps} steps of Adam, {batch} rows at a time"
    )


def _some_rows(problem: Problem, batch: int) -> Callable[..., None]:
    """The model on some rows that follow each other, from a random one on; rows are in no order.

    NumPyro's own choice shuffles the numbers of all rows, which takes most of a step where there are a million.
    """

    def model(**rows: Any) -> None:
        first = jax.random.randint(numpyro.prng_key(), (), 0, problem.num_rows)
        # after the last row comes the first, so that all are looked at equally often
        with numpyro.handlers.substitute(
            data={"rows": (first + jnp.arange(batch)) % problem.num_rows}
        ):
            problem.model(**rows, batch=batch)

    return model


def laplace(problem: Problem) -> Iterator[Answer]:
    """NumPyro's AutoLaplaceApproximation, by its BFGS on all rows, which begins at the mode that SciPy's L-BFGS finds: from elsewhere it stops far away where rows are many."""
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoLaplaceApproximation

    begin = time.perf_counter()
    rows = rows_of(problem)
    guide = AutoLaplaceApproximation(problem.model, init_loc_fn=_at_the_mode(problem))
    svi = SVI(problem.model, guide, numpyro.optim.Minimize(), Trace_ELBO())
    found = svi.run(jax.random.key(0), 1, **rows, progress_bar=False)
    draws = guide.sample_posterior(
        jax.random.key(1), found.params, *(), sample_shape=(4000,), **rows
    )
    yield Answer(named(draws), time.perf_counter() - begin)


def _at_the_mode(problem: Problem) -> Any:
    """What begins a guide at the mode that SciPy's L-BFGS finds."""
    from numpyro.infer import init_to_value

    density = of_numpyro(problem)
    mode = {name: values[0] for name, values in density.params(mode_of(density)[None]).items()}
    return init_to_value(values=mode)


def pathfinder(problem: Problem) -> Iterator[Answer]:
    """BlackJAX's Pathfinder, single path, 100 iterations, as it does not always arrive in its own 30; 200 draws for each estimate of the ELBO, or fewer where all rows times all draws do not fit into memory.

    Where rows are many: vcmc's log density, which looks at them in blocks.
    """
    from blackjax.vi import pathfinder as package

    import vcmc

    begin = time.perf_counter()
    is_many = problem.num_rows > 20_000
    num_samples = 50 if is_many else {"mixture": 50, "wishart": 20}.get(problem.name, 200)
    if is_many:
        density = in_blocks(problem, vcmc.from_numpyro(problem.model, problem.rows))
    else:
        density = of_numpyro(problem)

    @jax.jit
    def approximate(key: Any, first: Any) -> Any:
        return package.approximate(key, density.log_density, first, num_samples, maxiter=100)

    state, _ = approximate(jax.random.key(0), density.first)
    points, _ = package.sample(jax.random.key(1), state, 4000)
    yield Answer(density.params(points), time.perf_counter() - begin)


def sgld(problem: Problem) -> Iterator[Answer]:
    """BlackJAX's SGLD with control variates, in real coordinates scaled by the curvature at the mode, from there: 20,000 steps, a tenth of them kept.

    The mode is that of SciPy's L-BFGS; the step is a tenth of a posterior variance. Log densities are vcmc's, in NumPyro's coordinates, as they are told row by row.
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
        return model.log_likelihood(params, jax.tree.map(lambda each: each[None], row))[0]

    estimator = grad_estimator(
        lambda white: model.log_prior_at(mode + scale * white), log_likelihood, num_rows
    )
    rows = rows_of(problem)
    kernel = blackjax.sgld(control_variates(estimator, jnp.zeros_like(mode), rows))

    @jax.jit
    def run(key: Any) -> Any:
        def step(white: Any, key: Any) -> Any:
            choose, move = jax.random.split(key)
            some = jax.random.choice(choose, num_rows, (batch,))
            return kernel.step(move, white, jax.tree.map(lambda each: each[some], rows), 0.1), white

        def ten(white: Any, key: Any) -> Any:
            white, _ = jax.lax.scan(step, white, jax.random.split(key, 10))
            return white, white

        return jax.lax.scan(ten, jnp.zeros_like(mode), jax.random.split(key, 2000))[1]

    white = run(jax.random.key(0))
    draws = density.params(mode + scale * white[200:])
    yield Answer(draws, time.perf_counter() - begin, remark=f"{batch} rows a step")
