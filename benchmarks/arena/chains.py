"""Methods that run chains on all rows."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from answer import Answer, Draws, named, names_of, rows_of
from problems import Problem

STAN_PYTHON = Path(__file__).parents[2] / ".venv-stan" / "bin" / "python"


def nuts(problem: Problem) -> Iterator[Answer]:
    """NumPyro's NUTS on all rows: two chains, on a core each; 1000 steps of warm-up and 1000 draws, or 300 and 60 where rows are many."""
    from numpyro.infer import MCMC, NUTS

    num_warmup, block, num_blocks = (300, 20, 3) if problem.is_large else (1000, 250, 4)
    begin = time.perf_counter()
    chains = MCMC(
        NUTS(problem.model),
        num_warmup=num_warmup,
        num_samples=block,
        num_chains=2,
        progress_bar=False,
    )
    chains.warmup(jax.random.key(0), **rows_of(problem))
    made: list[Draws] = []
    ready: list[np.ndarray] = []
    last = time.perf_counter() - begin
    for number in range(num_blocks):
        chains.post_warmup_state = chains.last_state
        chains.run(jax.random.key(number), **rows_of(problem))
        samples = named(chains.get_samples(group_by_chain=True))
        made.append(
            {name: np.swapaxes(each, 0, 1) for name, each in samples.items()}
        )  # (draw, chain, …)
        now = time.perf_counter() - begin
        ready.append(_times(last, now, block, 2))
        last = now
        draws = {name: _in_turns(np.concatenate([part[name] for part in made])) for name in made[0]}
        yield Answer(
            draws, last, ready=np.concatenate(ready), remark=f"{num_warmup} steps of warm-up"
        )


def nutpie(problem: Problem) -> Iterator[Answer]:
    """PyMC with nutpie: its JAX backend, which compiles soonest, two chains, its own number of steps, or 300 and 60 where rows are many.

    It runs in the background, and is asked every now and then for what it has.
    """
    import nutpie as package

    names = names_of(problem)
    begin = time.perf_counter()
    compiled = package.compile_pymc_model(
        problem.pymc(problem.rows), backend="jax", gradient_backend="jax"
    )
    compiled_by = last = time.perf_counter() - begin
    options = {"tune": 300, "draws": 60} if problem.is_large else {"tune": 400, "draws": 1000}
    sampler = package.sample(
        compiled, chains=2, cores=2, seed=0, progress_bar=False, blocking=False, **options
    )
    ready = [np.zeros(0)]
    finished = False
    while not finished:
        try:
            trace = sampler.wait(timeout=max(0.2, 0.01 * last))
            finished = True
        except TimeoutError:
            trace = sampler.inspect()
        now = time.perf_counter() - begin
        draws = _there_in_all(trace, names)
        fresh = len(next(iter(draws.values()))) - sum(map(len, ready)) if draws else 0
        ready.append(_times(last, now, fresh // 2, 2))
        last = now
        remark = f"{options['tune']} steps of warm-up"
        if not draws:
            remark = f"at step {_num_warmed(trace)} of its {remark}"
        yield Answer(draws, now, compiled_by, ready=np.concatenate(ready), remark=remark)


def _there_in_all(trace: Any, names: frozenset[str]) -> Draws:
    """Draws that all chains have made, of chains in turns; those that one has not made yet are NaN."""
    if "posterior" not in trace.groups():
        return {}
    values = {name: trace.posterior[name].values for name in names}  # (chain, draw, …)
    some = next(iter(values.values()))
    count = int(np.isfinite(some).all(axis=tuple(range(2, some.ndim))).sum(axis=1).min())
    if not count:
        return {}
    return {name: _in_turns(np.swapaxes(each, 0, 1)[:count]) for name, each in values.items()}


def _num_warmed(trace: Any) -> int:
    return trace.warmup_posterior.sizes["draw"] if "warmup_posterior" in trace.groups() else 0


def _in_turns(draws: np.ndarray) -> np.ndarray:
    """Draws (draw, chain, …) of chains in turns."""
    return draws.reshape(-1, *draws.shape[2:])


def _times(last: float, now: float, count: int, num_chains: int) -> np.ndarray:
    """When draws were there of which only the time before the first and that of the last are known."""
    return np.repeat(last + (now - last) * np.arange(1, count + 1) / max(count, 1), num_chains)


def stan(problem: Problem) -> Iterator[Answer]:
    """Stan through PyStan: two chains, on a core each, its own number of steps. It takes rows as text, so that it is left out where they are many."""
    if problem.is_large:
        raise NotImplementedError("PyStan takes rows as JSON text, gigabytes of it here")
    if not STAN_PYTHON.exists():
        raise NotImplementedError("PyStan is not there: `make bench` could not install it")
    rows = dict(problem.rows)
    if "array[N] int y" in problem.stan:
        rows["y"] = rows["y"].astype(int)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/rows.npz", **rows)
        words = [STAN_PYTHON, Path(__file__).with_name("stan_child.py"), problem.stan]
        words += [f"{folder}/rows.npz", f"{folder}/draws.npz", "1000", "1000"]
        # a cache of its own, or a program that was compiled before is found
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        done = subprocess.run(
            list(map(str, words)), env=environment, cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        with np.load(f"{folder}/draws.npz") as file:
            draws = {name: file[name] for name in file.files if name in names_of(problem)}
        spent = json.loads(Path(f"{folder}/draws.json").read_text())
    yield Answer(
        draws,
        spent["seconds"],
        spent["compile"],
        remark=f"PyStan {spent['version']}, 1000 steps of warm-up",
    )
