"""NUTS on all rows by PyMC with nutpie, and by Stan; NumPyro's is in `kernels.py`."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from answer import Answer, Draws
from problems import Problem

# Steps of warm-up and draws per chain: few where a step takes seconds.
LARGE_STEPS, NUTPIE_STEPS = (200, 60), (400, 1000)  # nutpie's defaults
STAN_STEPS = (500, 500)  # half of its defaults, which reach the goal later
SLOW_IN_STAN = ("mixture", "wishart")
STAN_PYTHON = Path(__file__).parents[2] / ".venv-stan" / "bin" / "python"


def nutpie(problem: Problem) -> Iterator[Answer]:
    """Run PyMC's model with nutpie: two chains, and its JAX backend, which compiles fastest.

    Chains have nutpie's default length; on large problems 200 warm-up steps and 60 draws. They run
    in the background, and their draws so far are read at intervals.
    """
    import nutpie as package

    names = problem.names
    begin = time.perf_counter()
    compiled = package.compile_pymc_model(
        problem.pymc(problem.rows), backend="jax", gradient_backend="jax"
    )
    seconds_compile = last = time.perf_counter() - begin
    num_warmup, num_draws = LARGE_STEPS if problem.is_large else NUTPIE_STEPS
    sampler = package.sample(
        compiled,
        tune=num_warmup,
        draws=num_draws,
        chains=2,
        cores=2,
        seed=0,
        progress_bar=False,
        blocking=False,
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
        draws = problem.reported(_common_draws(trace, names))
        num_new = len(next(iter(draws.values()))) - sum(map(len, ready)) if draws else 0
        ready.append(_times(last, now, num_new // 2, 2))
        last = now
        remark = f"{num_warmup} warm-up steps"
        if not draws:
            remark = f"at step {_num_warmed(trace)} of its {remark}"
        yield Answer(
            draws,
            now,
            seconds_compile,
            ready=np.concatenate(ready),
            num_chains=2,
            remark=remark,
        )


def _common_draws(trace: Any, names: frozenset[str]) -> Draws:
    """Return the draws that both chains have made, interleaved; the trace has NaN for others."""
    if "posterior" not in trace.groups():
        return {}
    values = {name: trace.posterior[name].values for name in names}  # (chain, draw, …)
    first = next(iter(values.values()))
    count = int(np.isfinite(first).all(axis=tuple(range(2, first.ndim))).sum(axis=1).min())
    if not count:
        return {}
    return {name: _interleaved(np.swapaxes(array, 0, 1)[:count]) for name, array in values.items()}


def _num_warmed(trace: Any) -> int:
    return trace.warmup_posterior.sizes["draw"] if "warmup_posterior" in trace.groups() else 0


def _interleaved(draws: np.ndarray) -> np.ndarray:
    """Flatten the first two axes of draws (draw, chain, …)."""
    return draws.reshape(-1, *draws.shape[2:])


def _times(last: float, now: float, count: int, num_chains: int) -> np.ndarray:
    """Interpolate the times of draws between the previous reading and this one."""
    return np.repeat(last + (now - last) * np.arange(1, count + 1) / max(count, 1), num_chains)


def stan(problem: Problem) -> Iterator[Answer]:
    """Run Stan by PyStan: two chains of half the default length, on one core each.

    PyStan takes data as text, so it is left out on large problems. So it is on two others, where it
    took three minutes: the same algorithm is in the comparison twice more.
    """
    if problem.is_large:
        raise NotImplementedError("not run: PyStan takes data as JSON text, gigabytes of it here")
    if problem.name in SLOW_IN_STAN:
        raise NotImplementedError(
            "not run: took three minutes, more than NumPyro's and PyMC's NUTS"
        )
    if not STAN_PYTHON.exists():
        raise NotImplementedError("not run: PyStan is missing, `make bench` could not install it")
    rows = dict(problem.rows)
    if "array[N] int y" in problem.stan:
        rows["y"] = rows["y"].astype(int)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/rows.npz", **rows)
        command = [STAN_PYTHON, Path(__file__).with_name("stan_child.py"), problem.stan]
        command += [f"{folder}/rows.npz", f"{folder}/draws.npz", *STAN_STEPS]
        # an empty cache, so that no program compiled earlier is used
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        process = subprocess.run(
            list(map(str, command)), env=environment, cwd=folder, capture_output=True, text=True
        )
        if process.returncode:
            raise RuntimeError(process.stderr.strip().splitlines()[-1])
        with np.load(f"{folder}/draws.npz") as file:
            draws = {name: file[name] for name in file.files if name in problem.names}
        record = json.loads(Path(f"{folder}/draws.json").read_text())
    yield Answer(
        draws,
        record["seconds"],
        record["compile"],
        num_chains=2,
        remark=f"PyStan {record['version']}, {STAN_STEPS[0]} warm-up steps",
    )
