"""Hierarchical models: errors against the truth, and seconds against NUTS on the joint model.

- `radon`: 919 houses in 85 counties, K = 5, against two-dimensional quadrature.
- `irt`: 30 012 answers of 400 students to 100 questions, K = 10, against the published reference.
- `logistic`: 2 000 groups of 20 rows, local intercept and slope, K = 20, against NumPyro's NUTS on
  the joint model: seconds until all global means are within 0.1 sd.
- `many`: 100 000 groups of 20 rows (2 million rows): seconds and memory.
- `ragged`: cost of an evaluation for groups of 1 to 10 000 rows, relative to equal ones.
- `lmm`: the linear mixed model of the WASP simulation (100 000 rows, 6 000 groups, 4 fixed and 3
  random effects), against statsmodels' maximum likelihood, if it is installed.

The data of `radon` and `irt` are read from the folder in VCMC_DATA, by default ../shared/data.

Run: .venv/bin/python benchmarks/groups.py radon irt …
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from timing import say

import vcmc
from vcmc.inference.partitioning import as_partition
from vcmc.target import Target

DATA = Path(os.environ.get("VCMC_DATA", Path(__file__).parents[2] / "shared" / "data"))
RADON = {  # mean and sd, by quadrature
    "mu": (1.41521, 0.03756),
    "uranium": (0.78648, 0.10090),
    "slope": (-0.63818, 0.06664),
    "tau": (0.14815, 0.04859),
    "sigma": (0.72967, 0.01774),
}


def seconds_of(tree: Any) -> str:
    parts = {
        name.removeprefix("seconds_"): value
        for name, value in tree.attrs.items()
        if name.startswith("seconds_")
    }
    return (
        f"{sum(parts.values()):.1f} s ("
        + ", ".join(f"{name} {value:.1f}" for name, value in parts.items())
        + ")"
    )


def radon() -> None:
    def model(county: Any, floor: Any, log_uranium: Any, log_radon: Any, *, num_counties: int):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        uranium = numpyro.sample("uranium", dist.Normal(0, 10))
        slope = numpyro.sample("slope", dist.Normal(0, 10))
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        with numpyro.plate("counties", num_counties):
            alpha = numpyro.sample("alpha", dist.Normal(0, tau))
        mean = mu + alpha[county] + uranium * log_uranium + slope * floor
        numpyro.sample("y", dist.Normal(mean, sigma), obs=log_radon)

    with np.load(DATA / "radon_mn.npz") as file:
        rows = {name: file[name] for name in ("county", "floor", "log_uranium", "log_radon")}
    converted = vcmc.from_numpyro(model, rows, groups="county", num_groups="num_counties")
    tree = vcmc.infer(converted, rows, num_shards=5, progress=False)
    say(f"radon: {seconds_of(tree)}, {tree.attrs['verdict']}")
    for name, (mean, sd) in RADON.items():
        draws = tree["posterior"][name].to_numpy().ravel()
        say(
            f"  {name}: mean {(draws.mean() - mean) / sd:+.3f} sd off, "
            f"sd {100 * (draws.std() / sd - 1):+.1f} %, 5 % {np.quantile(draws, 0.05):.4f}, "
            f"95 % {np.quantile(draws, 0.95):.4f}"
        )


def irt() -> None:
    def model(student: Any, question: Any, correct: Any, *, num_students: int):
        mean_ability = numpyro.sample("mean_ability", dist.Normal(0.75, 1))
        difficulty = numpyro.sample("difficulty", dist.Normal(0, 1).expand([100]).to_event(1))
        with numpyro.plate("students", num_students):
            ability = numpyro.sample("ability", dist.Normal(0, 1))
        logits = mean_ability + ability[student] - difficulty[question]
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=correct)

    with np.load(DATA / "irt.npz") as file:
        rows = {name: file[name] for name in ("student", "question", "correct")}
        reference = {name: file[name] for name in file.files}
    converted = vcmc.from_numpyro(model, rows, groups="student", num_groups="num_students")
    tree = vcmc.infer(converted, rows, num_shards=10, progress=False)
    say(f"irt: {seconds_of(tree)}, {tree.attrs['verdict']}")
    for name in ("mean_ability", "difficulty", "ability"):
        draws = tree["posterior"][name].to_numpy().reshape(-1, reference[f"{name}_mean"].size)
        mean, sd = (np.ravel(reference[f"{name}_{part}"]) for part in ("mean", "sd"))
        off = np.abs(draws.mean(axis=0) - mean) / sd
        ratio = np.abs(draws.std(axis=0) / sd - 1)
        say(
            f"  {name}: means {np.median(off):.4f} sd off (worst {off.max():.4f}), "
            f"sds {100 * np.median(ratio):.2f} % (worst {100 * ratio.max():.2f} %)"
        )


def logistic_model(group: Any, x: Any, y: Any, *, num_groups: int) -> None:
    mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(1).expand([2]).to_event(1))
    with numpyro.plate("groups", num_groups):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    local = mean + spread * z
    numpyro.sample("y", dist.Bernoulli(logits=local[group, 0] + local[group, 1] * x), obs=y)


def logistic_rows(num_groups: int, num_rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    local = np.array([-0.5, 0.7]) + np.array([0.8, 0.4]) * generator.normal(size=(num_groups, 2))
    group = np.repeat(np.arange(num_groups), num_rows)
    x = generator.normal(size=len(group))
    logits = local[group, 0] + local[group, 1] * x
    y = (generator.random(len(group)) < 1 / (1 + np.exp(-logits))).astype(float)
    return {"group": group, "x": x, "y": y}


def logistic() -> None:
    rows = logistic_rows(2000, 20)
    converted = vcmc.from_numpyro(logistic_model, rows, groups="group", num_groups="num_groups")
    seconds = {}
    for mode in ("none", "draws"):
        begin = time.perf_counter()
        tree = vcmc.infer(
            converted, rows, num_shards=20, progress=False, locals=mode, compile_cache=False
        )
        seconds[mode] = time.perf_counter() - begin
        say(f"logistic, locals={mode!r}: {seconds_of(tree)}, {tree.attrs['verdict']}")
        jax.clear_caches()
    # NUTS with a chain on each core: JAX has to know the number of devices when it starts
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        command = [sys.executable, __file__, "joint", f"{folder}/joint.npz"]
        subprocess.run(command, env=environment, check=True, timeout=3600)
        with np.load(f"{folder}/joint.npz") as file:
            joint = {name: file[name] for name in file.files}
    compare_with_joint(tree, joint, seconds)


def joint(path: str) -> None:
    """Run NUTS on the joint model, two chains in parallel, and keep its global draws."""
    rows = {name: jnp.asarray(value) for name, value in logistic_rows(2000, 20).items()}
    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(logistic_model),
        num_warmup=500,
        num_samples=1000,
        num_chains=2,
        chain_method="parallel",
        progress_bar=False,
    )
    times = [time.perf_counter()]
    mcmc.warmup(jax.random.key(0), num_groups=2000, **rows)
    jax.block_until_ready(mcmc.post_warmup_state.z)
    times.append(time.perf_counter())
    mcmc.run(mcmc.post_warmup_state.rng_key, num_groups=2000, **rows)
    draws = {
        name: np.asarray(mcmc.get_samples(group_by_chain=True)[name]) for name in ("mean", "spread")
    }
    times.append(time.perf_counter())
    np.savez(path, times=np.diff(times), **draws)


def compare_with_joint(tree: Any, joint: dict[str, np.ndarray], seconds: dict[str, float]) -> None:
    """Print the seconds until NUTS on the joint model knows all global means to 0.1 sd."""
    from arviz_stats.base import array_stats

    warmup, sampling = joint.pop("times")
    ess = min(
        float(np.min(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean")))
        for draws in joint.values()
    )
    to_goal = warmup + sampling * min(1.0, 100 / ess)
    say(
        f"  NUTS on the joint model: {warmup:.1f} s of warm-up, {sampling:.1f} s for 2 x 1000 "
        f"draws, {ess:.0f} effective: {to_goal:.1f} s to 0.1 sd"
    )
    for mode, own in seconds.items():
        say(f"  vcmc with locals={mode!r}: {own:.1f} s, {to_goal / own:.1f} times as fast")
    for name, draws in joint.items():
        ours = tree["posterior"][name].to_numpy().reshape(-1, 2)
        theirs = draws.reshape(-1, 2)
        off = (ours.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
        say(f"  {name}: means {off.round(3)} sd apart, sds {ours.std(axis=0) / theirs.std(axis=0)}")


def many() -> None:
    rows = logistic_rows(100_000, 20)
    converted = vcmc.from_numpyro(
        logistic_model,
        {name: array[:1000] for name, array in rows.items()},
        groups="group",
        num_groups="num_groups",
    )
    begin = time.perf_counter()
    tree = vcmc.infer(converted, rows, num_shards=40, progress="lines")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    total = time.perf_counter() - begin
    say(f"many: {total:.0f} s, {memory:.1f} GB, {seconds_of(tree)}, {tree.attrs['verdict']}")


def ragged() -> None:
    """Compare the cost of an evaluation for equal and for ragged groups of as many rows."""
    generator = np.random.default_rng(0)
    sizes = {
        "equal": np.full(1000, 40),
        "ragged": np.concatenate([[10_000], generator.integers(1, 60, 1000)]),
    }
    seconds = {}
    for name, counts in sizes.items():
        group = np.repeat(np.arange(len(counts)), counts)
        x = generator.normal(size=len(group))
        y = (generator.random(len(group)) < 0.4).astype(float)
        rows = {"group": group, "x": x, "y": y}
        model = vcmc.from_numpyro(logistic_model, rows, groups="group", num_groups="num_groups")
        partition = as_partition(rows, 1, 0, local=model.local)
        target = Target.fitted(model, partition, vcmc.executors.Local())
        points = jnp.asarray(0.3 * generator.normal(size=(32, 4)))
        target(points)
        begin = time.perf_counter()
        for _ in range(5):
            jax.block_until_ready(target(points))
        seconds[name] = (time.perf_counter() - begin) / 5 / len(group)
        say(f"ragged: {name}: {len(group)} rows, {partition.layout}, {1e6 * seconds[name]:.2f} µs")
    say(f"  ratio per row: {seconds['ragged'] / seconds['equal']:.2f}")


def mixed_model(group: Any, x: Any, z: Any, y: Any, *, num_groups: int) -> None:
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([4]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(2).expand([3]).to_event(1))
    root = numpyro.sample("root", dist.LKJCholesky(3, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("groups", num_groups):
        u = numpyro.sample("u", dist.MultivariateNormal(0.0, scale_tril=scale[:, None] * root))
    numpyro.sample("y", dist.Normal(x @ beta + jnp.sum(u[group] * z, axis=-1), sigma), obs=y)


def lmm() -> None:
    """Fit the linear mixed model of the WASP simulation."""
    generator = np.random.default_rng(0)
    num_rows, num_groups = 100_000, 6_000
    group = np.sort(generator.integers(0, num_groups, num_rows))
    x = np.column_stack([np.ones(num_rows), generator.normal(size=(num_rows, 3))])
    z = np.column_stack([np.ones(num_rows), generator.normal(size=(num_rows, 2))])
    covariance = np.array([[1.0, -0.4, 0.3], [-0.4, 2.0, 0.2], [0.3, 0.2, 3.0]])
    u = generator.multivariate_normal(np.zeros(3), covariance, num_groups)
    y = x @ [-2.0, 2.0, -2.0, 2.0] + np.sum(u[group] * z, axis=1) + generator.normal(size=num_rows)
    rows = {"group": group, "x": x, "z": z, "y": y}
    model = vcmc.from_numpyro(mixed_model, rows, groups="group", num_groups="num_groups")
    begin = time.perf_counter()
    tree = vcmc.infer(model, rows, progress=False)
    ours = time.perf_counter() - begin
    say(
        f"lmm: {ours:.1f} s, {seconds_of(tree)}, K = {tree.attrs['num_shards']}, "
        f"{tree.attrs['verdict']}"
    )
    try:
        from statsmodels.regression.mixed_linear_model import MixedLM
    except ImportError:
        say("  statsmodels is not installed: pip install statsmodels")
        return
    begin = time.perf_counter()
    fit = MixedLM(y, x, groups=group, exog_re=z).fit(reml=False)
    theirs = time.perf_counter() - begin
    means = tree["posterior"]["beta"].to_numpy().reshape(-1, 4).mean(axis=0)
    off = (means - fit.fe_params) / fit.bse_fe
    say(f"  statsmodels {theirs:.1f} s: ratio {ours / theirs:.2f}; beta {off.round(3)} se apart")


BENCHMARKS = {
    "radon": radon,
    "irt": irt,
    "logistic": logistic,
    "many": many,
    "ragged": ragged,
    "lmm": lmm,
}


def main() -> None:
    if sys.argv[1:2] == ["joint"]:
        joint(sys.argv[2])
        return
    for name in sys.argv[1:] or BENCHMARKS:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
