"""The arena's contestants: each takes a contest, and gives draws of the posterior with the seconds at which they were there.

Each runs in a process of its own, in double precision, on all cores, in the configuration that its documentation recommends; where a
choice had to be made, it is said beside it.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from contests import Contest

Draws = dict[str, np.ndarray]
NUM_DRAWS = 1000  # of those that make as many as they are asked for
STAN_PYTHON = Path(__file__).parents[2] / ".venv-stan" / "bin" / "python"


class Answer(NamedTuple):
    """Draws so far (draw, …), and the seconds since the beginning; what was compiled by then, if it can be told apart.

    Attributes:
        draws: by name, of one chain after the other, or of chains in turns.
        seconds: when they were there.
        seconds_compile: how many of these went into compiling.
        seconds_critical: with a machine for each shard: start, compiling, slowest shard and combination.
        seconds_slowest: of these, slowest shard and combination.
        ready: when each draw was there, where draws come one after the other.
        remark: whatever else there is to say.
    """

    draws: Draws
    seconds: float
    seconds_compile: float = np.nan
    seconds_critical: float = np.nan
    seconds_slowest: float = np.nan
    ready: np.ndarray | None = None
    remark: str = ""


Contestant = Callable[[Contest], Iterator[Answer]]


def _rows(contest: Contest) -> dict[str, Any]:
    return {name: jnp.asarray(array) for name, array in contest.rows.items()}


def _named(samples: Any) -> Draws:
    return {name: np.asarray(values, float) for name, values in samples.items()}


# Chains on all rows.


def nuts(contest: Contest) -> Iterator[Answer]:
    """NumPyro's NUTS on all rows: two chains, on a core each; 1000 steps of warm-up, or 300 where rows are many."""
    from numpyro.infer import MCMC, NUTS

    num_warmup, block = (300, 20) if contest.is_large else (1000, 250)
    begin = time.perf_counter()
    chains = MCMC(
        NUTS(contest.model), num_warmup=num_warmup, num_samples=block, num_chains=2, progress_bar=False
    )
    chains.warmup(jax.random.key(0), **_rows(contest))
    made: list[Draws] = []
    ready: list[np.ndarray] = []
    last = time.perf_counter() - begin
    for number in range(5 if contest.is_large else 4):
        chains.post_warmup_state = chains.last_state
        chains.run(jax.random.key(number), **_rows(contest))
        samples = _named(chains.get_samples(group_by_chain=True))
        made.append({name: np.swapaxes(each, 0, 1) for name, each in samples.items()})  # (draw, chain, …)
        now = time.perf_counter() - begin
        ready.append(np.repeat(last + (now - last) * np.arange(1, block + 1) / block, 2))
        last = now
        draws = {
            name: np.concatenate([part[name] for part in made]).reshape(-1, *made[0][name].shape[2:])
            for name in made[0]
        }
        yield Answer(draws, last, ready=np.concatenate(ready), remark=f"{num_warmup} steps of warm-up")


def nutpie(contest: Contest) -> Iterator[Answer]:
    """PyMC with nutpie: its JAX backend, which compiles soonest, two chains, its own number of steps."""
    import nutpie as package

    if contest.pymc is None:
        raise NotImplementedError("not written in PyMC, whose own Wishart distribution cannot be sampled")
    names = names_of(contest)
    begin = time.perf_counter()
    compiled = package.compile_pymc_model(contest.pymc(contest.rows), backend="jax", gradient_backend="jax")
    ready = time.perf_counter() - begin
    options = {"tune": 300, "draws": 100} if contest.is_large else {"tune": 400, "draws": 1000}
    found = package.sample(compiled, chains=2, cores=2, seed=0, progress_bar=False, **options)
    posterior = found.posterior
    draws = {
        str(name): np.swapaxes(posterior[name].values, 0, 1).reshape(-1, *posterior[name].shape[2:])
        for name in posterior.data_vars
        if name in names
    }
    yield Answer(draws, time.perf_counter() - begin, ready, remark=f"{options['tune']} steps of warm-up")


def stan(contest: Contest) -> Iterator[Answer]:
    """Stan through PyStan: two chains, on a core each, its own number of steps. It takes rows as text, so that it is left out where they are many."""
    if not contest.stan or contest.is_large:
        raise NotImplementedError(
            "PyStan takes rows as JSON text, gigabytes of it here"
            if contest.is_large
            else "not written in Stan"
        )
    if not STAN_PYTHON.exists():
        raise NotImplementedError("PyStan is not there: `make bench` could not install it")
    rows = dict(contest.rows)
    if "array[N] int y" in contest.stan:
        rows["y"] = rows["y"].astype(int)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/rows.npz", **rows)
        words = [STAN_PYTHON, Path(__file__).with_name("stan_child.py"), contest.stan]
        words += [f"{folder}/rows.npz", f"{folder}/draws.npz", "1000", "1000"]
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": folder,
        }  # or a program that was compiled before is found
        done = subprocess.run(list(map(str, words)), env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        with np.load(f"{folder}/draws.npz") as file:
            draws = {name: file[name] for name in file.files if name in names_of(contest)}
        spent = json.loads(Path(f"{folder}/draws.json").read_text())
    yield Answer(
        draws, spent["seconds"], spent["compile"], remark=f"PyStan {spent['version']}, 1000 steps of warm-up"
    )


def names_of(contest: Contest) -> frozenset[str]:
    """Names of the NumPyro model's parameters: others may have more."""
    import vcmc

    return frozenset(vcmc.from_numpyro(contest.model, contest.rows).space)


# Approximations.


def _svi(contest: Contest, guide: Any, remark: str) -> Iterator[Answer]:
    import optax
    from numpyro.infer import SVI, Trace_ELBO

    num_steps = 20_000 if contest.is_large else 10_000
    batch = 2000 if contest.num_rows > 20_000 else None
    rate = optax.cosine_decay_schedule(1e-2, num_steps, alpha=1e-2)
    begin = time.perf_counter()
    svi = SVI(
        contest.model, guide, numpyro.optim.optax_to_numpyro(optax.adam(rate)), Trace_ELBO(num_particles=4)
    )
    rows = _rows(contest)
    found = svi.run(jax.random.key(0), num_steps, **rows, batch=batch, progress_bar=False)
    draws = guide.sample_posterior(
        jax.random.key(1), found.params, *(), sample_shape=(4000,), **rows, batch=batch
    )
    kept = {name: values for name, values in _named(draws).items() if not name.startswith("_")}
    size = f"{batch} rows at a time" if batch else "all rows"
    yield Answer(kept, time.perf_counter() - begin, remark=f"{remark}, {num_steps} steps of Adam, {size}")


def svi_full(contest: Contest) -> Iterator[Answer]:
    """NumPyro's SVI with AutoMultivariateNormal."""
    from numpyro.infer.autoguide import AutoMultivariateNormal

    return _svi(contest, AutoMultivariateNormal(contest.model), "full covariance")


def svi_diagonal(contest: Contest) -> Iterator[Answer]:
    """NumPyro's SVI with AutoDiagonalNormal."""
    from numpyro.infer.autoguide import AutoDiagonalNormal

    return _svi(contest, AutoDiagonalNormal(contest.model), "diagonal")


def laplace(contest: Contest) -> Iterator[Answer]:
    """NumPyro's AutoLaplaceApproximation, by its BFGS on all rows, which begins at the mode that SciPy's L-BFGS finds: from elsewhere it stops far away where rows are many."""
    from numpyro.infer import SVI, Trace_ELBO, init_to_value
    from numpyro.infer.autoguide import AutoLaplaceApproximation

    begin = time.perf_counter()
    rows = _rows(contest)
    first, log_density, params, _ = points_of(contest)
    mode = {name: values[0] for name, values in params(mode_of(first, log_density)[None]).items()}
    guide = AutoLaplaceApproximation(contest.model, init_loc_fn=init_to_value(values=mode))
    svi = SVI(contest.model, guide, numpyro.optim.Minimize(), Trace_ELBO())
    found = svi.run(jax.random.key(0), 1, **rows, progress_bar=False)
    draws = guide.sample_posterior(jax.random.key(1), found.params, *(), sample_shape=(4000,), **rows)
    yield Answer(_named(draws), time.perf_counter() - begin)


def points_of(contest: Contest) -> Any:
    """The log density of points in R^n, from NumPyro, and the map to params."""
    from jax.flatten_util import ravel_pytree
    from numpyro.infer.util import initialize_model

    rows = _rows(contest)
    start, potential, constrain, _ = initialize_model(
        jax.random.key(0), contest.model, model_kwargs=rows, dynamic_args=True
    )
    first, unravel = ravel_pytree(start.z)

    def log_density(point: Any) -> Any:
        return -potential(**rows)(unravel(point))

    def params(points: Any) -> Draws:
        return _named(jax.vmap(lambda point: constrain(**rows)(unravel(point)))(points))

    return first, log_density, params, unravel


def mode_of(first: Any, log_density: Any) -> Any:
    """The mode, by SciPy's L-BFGS from a first point."""
    from scipy.optimize import minimize

    both = jax.jit(jax.value_and_grad(log_density))

    def negative(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, score = both(jnp.asarray(point))
        return -float(value), -np.asarray(score)

    return jnp.asarray(minimize(negative, np.asarray(first), jac=True, method="L-BFGS-B").x)


def pathfinder(contest: Contest) -> Iterator[Answer]:
    """BlackJAX's Pathfinder, single path. Where rows are many: 100 iterations in place of 30, in which it does not arrive, 50 draws for each estimate of the ELBO in place of 200, and vcmc's log density, which
    looks at rows in blocks, as all of them times all draws do not fit into memory.
    """
    from blackjax.vi import pathfinder as package

    begin = time.perf_counter()
    first, log_density, params, unravel = points_of(contest)
    num_samples = 50 if contest.is_large else 200
    more = {"maxiter": 100} if contest.is_large else {}
    if contest.is_large:
        log_density = _in_blocks(contest, unravel)
    state, _ = jax.jit(lambda key, point: package.approximate(key, log_density, point, num_samples, **more))(
        jax.random.key(0), first
    )
    points, _ = package.sample(jax.random.key(1), state, 4000)
    yield Answer(params(points), time.perf_counter() - begin)


def _in_blocks(contest: Contest, unravel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The log density at points of parameters that are real numbers, rows looked at in blocks."""
    import vcmc

    model = vcmc.from_numpyro(contest.model, contest.rows)
    shard = vcmc.split(contest.rows, 1).load(0)

    def log_density(point: Any) -> Any:
        place = model.space.unconstrain(unravel(point))
        return model.log_prior_at(place) + model.log_likelihood_at(place, shard, many=True)

    return log_density


def sgld(contest: Contest) -> Iterator[Answer]:
    """BlackJAX's SGLD with control variates, in coordinates scaled by the curvature at the mode, from there: 20,000 steps, a tenth of them kept.

    Mode and curvature are those of SciPy's L-BFGS and finite differences; the step is a tenth of a posterior variance.
    """
    import blackjax
    from blackjax.sgmcmc.gradients import control_variates, grad_estimator

    begin = time.perf_counter()
    first, log_density, params, unravel = points_of(contest)
    mode = mode_of(first, log_density)
    score = jax.jit(jax.grad(log_density))
    widths = []
    for number in range(len(first)):
        step = 1e-4 * np.eye(len(first))[number]
        change = (score(mode + step) - score(mode - step))[number] / 2e-4
        widths.append(1 / np.sqrt(max(-float(change), 1e-10)))
    scale = jnp.asarray(widths)
    num_rows, batch = contest.num_rows, min(2000, contest.num_rows // 10)
    prior, likelihood = _parts(contest, unravel)
    estimator = grad_estimator(
        lambda white: prior(mode + scale * white),
        lambda white, row: likelihood(mode + scale * white, row),
        num_rows,
    )
    rows = _rows(contest)
    step_gradient = control_variates(estimator, jnp.zeros_like(mode), rows)
    kernel = blackjax.sgld(step_gradient)

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
    yield Answer(
        params(mode + scale * white[200:]), time.perf_counter() - begin, remark=f"{batch} rows a step"
    )


def _parts(contest: Contest, unravel: Callable[[Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Log prior of a point, and log likelihood of a point and one row."""
    import vcmc

    model = vcmc.from_numpyro(contest.model, contest.rows)

    def params(point: Any) -> Any:
        return unravel(point)

    if any(not inside.is_real for inside in model.space.values()):
        raise NotImplementedError("written for parameters that are real numbers only.")

    def prior(point: Any) -> Any:
        return model.log_prior(params(point))

    def likelihood(point: Any, row: Any) -> Any:
        return model.log_likelihood(params(point), jax.tree.map(lambda each: each[None], row))[0]

    return prior, likelihood


# Shards.


def _shards_file(contest: Contest) -> Path:
    """Where draws of shards are kept, by which NumPyro's functions are given the same."""
    return Path(os.environ["ARENA_ANSWERS"]) / f"{contest.name.replace('/', '-')}--shards"


def _infer(contest: Contest, num_draws: int, refine: bool = False) -> Iterator[Answer]:
    import vcmc

    begin = time.perf_counter()
    model = vcmc.from_numpyro(contest.model, contest.rows)
    tree = vcmc.infer(
        model,
        contest.rows,
        num_shards=contest.num_shards,
        num_draws=num_draws,
        refine=refine,
        seed=0,
        progress=False,
    )
    seconds = time.perf_counter() - begin
    took = (tree["sample_seconds"]["end"] - tree["sample_seconds"]["begin"]).values
    names = ("start", "compile", "check", "combine")
    critical = float(took.max()) + sum(tree.attrs[f"seconds_{name}"] for name in names)
    if num_draws == NUM_DRAWS and not refine:
        group = tree["subposterior"].to_dataset()
        np.savez(
            _shards_file(contest).with_suffix(".npz"),
            **{str(name): group[name].values for name in group.data_vars},
        )
        spent = {name: tree.attrs[f"seconds_{name}"] for name in ("start", "compile", "sample")}
        _shards_file(contest).with_suffix(".txt").write_text(json.dumps(spent))
    stages = ", ".join(
        f"{name.removeprefix('seconds_')} {value:.1f}"
        for name, value in tree.attrs.items()
        if str(name).startswith("seconds_")
    )
    yield Answer(
        vcmc.posterior_draws(tree),
        seconds - tree.attrs["seconds_diagnose"],  # the others do not judge themselves
        tree.attrs["seconds_compile"],
        np.nan if refine else critical,
        float(took.max()) + tree.attrs["seconds_combine"],
        remark=f"calls itself {tree.attrs['verdict']}; seconds: {stages}",
    )


def vcmc_default(contest: Contest) -> Iterator[Answer]:
    """Our own, as it comes: 1000 draws of every shard."""
    return _infer(contest, NUM_DRAWS)


def vcmc_quick(contest: Contest) -> Iterator[Answer]:
    """Our own with 100 draws of every shard, and else as it comes."""
    return _infer(contest, 100)


def vcmc_refined(contest: Contest) -> Iterator[Answer]:
    """Our own with `refine=True`, which moves combined draws on by chains on all rows; for posteriors that are far from normal."""
    if contest.is_large:
        raise NotImplementedError("not for this: it takes as long as chains on all rows")
    return _infer(contest, NUM_DRAWS, refine=True)


def _consensus(contest: Contest, combine: Callable[[list[Draws]], Draws]) -> Iterator[Answer]:
    """Draws of shards that vcmc has made, as NumPyro has no sampler of shards, combined by NumPyro's own function."""
    kept = _shards_file(contest).with_suffix(".npz")
    if not kept.exists():
        raise FileNotFoundError("run vcmc first, whose draws of shards are used.")
    with np.load(kept) as file:
        arrays = {name: file[name] for name in file.files}
    shards = [
        {name: jnp.asarray(values[shard].reshape(-1, *values.shape[3:])) for name, values in arrays.items()}
        for shard in range(contest.num_shards)
    ]
    spent = json.loads(_shards_file(contest).with_suffix(".txt").read_text())
    begin = time.perf_counter()
    draws = combine(shards)
    seconds = time.perf_counter() - begin
    yield Answer(
        draws, sum(spent.values()) + seconds, spent["compile"], remark=f"combined in {seconds:.1f} s"
    )


def numpyro_consensus(contest: Contest) -> Iterator[Answer]:
    """NumPyro's `consensus`, on the same draws of shards as vcmc's."""
    from numpyro.infer.hmc_util import consensus

    return _consensus(contest, lambda shards: _named(consensus(shards, NUM_DRAWS, rng_key=jax.random.key(0))))


def numpyro_parametric(contest: Contest) -> Iterator[Answer]:
    """NumPyro's `parametric_draws`, on the same draws of shards as vcmc's."""
    from numpyro.infer.hmc_util import parametric_draws

    return _consensus(
        contest, lambda shards: _named(parametric_draws(shards, NUM_DRAWS, rng_key=jax.random.key(0)))
    )


CONTESTANTS: dict[str, Contestant] = {
    "vcmc": vcmc_default,
    "vcmc, 100 draws": vcmc_quick,
    "vcmc, refined": vcmc_refined,
    "NumPyro NUTS": nuts,
    "PyMC, nutpie": nutpie,
    "Stan": stan,
    "NumPyro consensus": numpyro_consensus,
    "NumPyro parametric": numpyro_parametric,
    "SVI, full": svi_full,
    "SVI, diagonal": svi_diagonal,
    "Laplace": laplace,
    "Pathfinder": pathfinder,
    "SGLD": sgld,
}
