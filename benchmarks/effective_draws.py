"""Compare effective draws per second on all rows with NumPyro's NUTS.

The effective sample size is the smallest over coordinates. Both run two chains on two cores in
float64. NumPyro has its recommended form: NUTS with a diagonal metric, chains in parallel on two
host devices. On the mixture it gets our start, without which its chains are in different modes. Its
`MCMC.run` compiles at every call: the seconds that JAX reports for compilation are subtracted and
shown separately.

Run: .venv/bin/python benchmarks/effective_draws.py [probit] [logistic] [correlated] [mixture] (some
minutes in total)
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from polya_gamma import sample as polya_gamma_gibbs
from timing import say

numpyro.set_host_device_count(2)

import vcmc  # noqa: E402
from vcmc.density import Subposterior  # noqa: E402
from vcmc.executors import Local  # noqa: E402
from vcmc.samplers import BLOCK, AbstractSampler  # noqa: E402
from vcmc.samplers.start import common_start, search_starts  # noqa: E402
from vcmc.target import Target  # noqa: E402

COMPILE_SECONDS: list[float] = []  # of every compilation so far


def _record_compilation(event: str, seconds: float, **_: Any) -> None:
    if "compile" in event or "trace" in event or "lower" in event:
        COMPILE_SECONDS.append(seconds)


jax.monitoring.register_event_duration_secs_listener(_record_compilation)


class Rate(NamedTuple):
    """Smallest effective sample size, and seconds by stage; warm-up includes the start."""

    effective: float
    warmup: float
    draws: float
    compiling: float


def smallest_ess(draws: np.ndarray) -> float:
    from arviz_stats.base import array_stats

    return float(np.min(array_stats.ess(draws, chain_axis=0, draw_axis=1)))


def ours(model: vcmc.Model, rows: dict, sampler: AbstractSampler, num_draws: int) -> Rate:
    """Time start, warm-up and draws of two chains in two threads."""
    begin = time.perf_counter()
    shard = vcmc.split(rows, 1).load(0)
    density = Subposterior(model, shard, jnp.asarray(1.0))
    target = Target(model, [shard], Local())
    starts = search_starts(density, jax.random.key(0))
    common_start(target, starts)
    sampler.prepare(density, starts[0])
    compiling = time.perf_counter() - begin  # with a first start, which is repeated below
    begin = time.perf_counter()
    start = common_start(target, starts)

    def chain(seed: int) -> tuple[np.ndarray, float, float]:
        setup, key = sampler.setup(density), jax.random.key(seed)
        state = sampler.init(setup, start, key)
        for _ in range(sampler.num_warmup // BLOCK):
            state, points, _ = sampler.advance(setup, state, key, BLOCK)
        np.asarray(points)
        middle, draws = time.perf_counter(), []
        for _ in range(num_draws // BLOCK):
            state, points, _ = sampler.advance(setup, state, key, BLOCK)
            draws.append(np.asarray(points))
        return np.concatenate(draws), middle, time.perf_counter()

    with ThreadPoolExecutor(2) as pool:
        chains = list(pool.map(chain, range(2)))
    draws, middles, ends = zip(*chains, strict=True)
    middle, end = max(middles), max(ends)
    return Rate(smallest_ess(np.stack(draws)), middle - begin, end - middle, compiling)


def start_of(model: vcmc.Model, rows: dict) -> jax.Array:
    """Return the start of our chains."""
    shard = vcmc.split(rows, 1).load(0)
    return common_start(Target(model, [shard], Local()), model.starts(shard, jax.random.key(0)))


def theirs(
    model: Callable, rows: dict, name: str, num_warmup: int, num_draws: int, start: Any = None
) -> Rate:
    init = (
        numpyro.infer.init_to_uniform
        if start is None
        else numpyro.infer.init_to_value(values={name: start})
    )
    kernel = numpyro.infer.NUTS(model, init_strategy=init)
    mcmc = numpyro.infer.MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_draws,
        num_chains=2,
        chain_method="parallel",
        progress_bar=False,
    )

    def timed(run: Callable) -> tuple[float, float]:
        num_before, begin = len(COMPILE_SECONDS), time.perf_counter()
        run()
        compiling = sum(COMPILE_SECONDS[num_before:])
        return time.perf_counter() - begin - compiling, compiling

    warmup, first = timed(
        lambda: (
            mcmc.warmup(jax.random.key(0), **rows),
            jax.block_until_ready(mcmc.post_warmup_state),
        )
    )
    draws, second = timed(
        lambda: (
            mcmc.run(jax.random.key(1), **rows),
            jax.block_until_ready(mcmc.get_samples()[name]),
        )
    )
    samples = np.asarray(mcmc.get_samples(group_by_chain=True)[name])
    ess = smallest_ess(samples.reshape(*samples.shape[:2], -1))
    return Rate(ess, warmup, draws, first + second)


def probit_model(x: np.ndarray, y: np.ndarray) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    sign = 2 * y - 1
    numpyro.factor("y", jax.scipy.stats.norm.logcdf(sign * (x @ beta)).sum())


def logistic_model(x: np.ndarray, y: np.ndarray) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


def mixture_model(x: np.ndarray) -> None:
    centres = numpyro.sample("centres", dist.Normal(0, 2).expand([8, 8]).to_event(2))
    component = dist.Normal(centres, 1.0).to_event(1)
    numpyro.sample(
        "x", dist.MixtureSameFamily(dist.Categorical(probs=jnp.ones(8) / 8), component), obs=x
    )


def report(name: str, our: Rate, their: Rate) -> None:
    for who, rate in (("vcmc", our), ("NumPyro NUTS", their)):
        say(
            f"{name:36s} {who:13s} {rate.effective:8.0f} {rate.warmup:8.2f} {rate.draws:8.2f} "
            f"{rate.compiling:9.2f} {rate.effective / rate.draws:10.1f} "
            f"{rate.effective / (rate.warmup + rate.draws):12.1f}"
        )
    ratio = (our.effective / our.draws) / (their.effective / their.draws)
    whole = (our.effective / (our.warmup + our.draws)) / (
        their.effective / (their.warmup + their.draws)
    )
    say(f"{'':36s} {'ratio':13s} {'':35s} {ratio:11.1f} {whole:12.1f}")


def regression(dim: int, num_rows: int, kind: type, correlation: float = 0.0) -> tuple:
    model = kind(dim)
    generator = np.random.default_rng(0)
    beta = generator.normal(size=dim) / dim**0.5
    x = generator.normal(size=(num_rows, dim))
    for column in range(1, dim):
        x[:, column] = correlation * x[:, column - 1] + (1 - correlation**2) ** 0.5 * x[:, column]
    probability = np.exp(
        model.log_likelihood({"beta": jnp.asarray(beta)}, {"x": x, "y": np.ones(num_rows)})
    )
    return model, {"x": x, "y": (generator.random(num_rows) < probability).astype(float)}


def polya_gamma(rows: dict, num_draws: int) -> None:
    """Time one chain of Pólya–Gamma Gibbs sampling, with BLAS on both cores."""
    dim = rows["x"].shape[1]
    generator = np.random.default_rng(0)
    start = polya_gamma_gibbs(rows["x"], rows["y"], 1.0, np.zeros(dim), 50, generator)[-1]
    begin = time.perf_counter()
    draws = polya_gamma_gibbs(rows["x"], rows["y"], 1.0, start, num_draws, generator)
    seconds = time.perf_counter() - begin
    ess = smallest_ess(draws[None])
    say(
        f"{'':36s} {'Pólya–Gamma':13s} {ess:8.0f} {'':8s} {seconds:8.2f} {'':9s} "
        f"{ess / seconds:10.1f}"
    )


def main() -> None:
    chosen = sys.argv[1:] or ["probit", "logistic", "correlated", "mixture"]
    say(
        f"{'':36s} {'':13s} {'ess':>8s} {'warm-up':>8s} {'draws':>8s} {'compiling':>9s} "
        f"{'ess/s draws':>10s} {'ess/s all':>11s}"
    )
    if "probit" in chosen:
        model, rows = regression(300, 20_000, vcmc.models.Probit)
        report(
            "probit, 20 000 × 300",
            ours(model, rows, vcmc.samplers.ProbitGibbs(), 2000),
            theirs(probit_model, rows, "beta", 300, 300),
        )
    for name, correlation in (("logistic", 0.0), ("correlated", 0.9)):
        if name in chosen:
            model, rows = regression(50, 20_000, vcmc.models.Logistic, correlation)
            report(
                f"logistic, 20 000 × 50, correlation {correlation}",
                ours(model, rows, model.suited_sampler([]), 1000),
                theirs(logistic_model, rows, "beta", 500, 1000),
            )
            polya_gamma(rows, 500)
    if "mixture" in chosen:
        model = vcmc.models.GaussianMixture(8, 8)
        rows = model.simulate(0, 50_000).rows
        report(
            "mixture, 50 000 rows, 8 × 8",
            ours(model, rows, vcmc.samplers.MixtureGibbs(), 2000),
            theirs(mixture_model, rows, "centres", 300, 300, start_of(model, rows).reshape(8, 8)),
        )


if __name__ == "__main__":
    main()
