"""Methods that split rows into shards: vcmc, and NumPyro's combiners on the draws of its shards."""

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from answer import Answer, Draws, named, path_of
from grouped_problems import GroupedProblem
from problems import Problem

import vcmc

NUM_SHARD_DRAWS = 1000  # of every shard, for NumPyro's combiners, and of their combined posterior


def vcmc_default(problem: Problem) -> Iterator[Answer]:
    """Run vcmc as it comes: it chooses the number of shards and of their draws."""
    begin = time.perf_counter()
    tree = vcmc.infer(_model(problem), problem.rows, progress=False)
    yield _answer(problem, tree, time.perf_counter() - begin)


def vcmc_listed(problem: Problem) -> Iterator[Answer]:
    """Run vcmc with the number of shards that the problem lists, as on a cluster.

    The seconds with a machine per shard come from this run. On large problems they are those of a
    second one, in which shards are sampled one at a time: two at a time share the memory bus.
    """
    begin = time.perf_counter()
    model = _model(problem)
    options = {"rows": problem.rows, "num_shards": problem.num_shards, "progress": False}
    tree = vcmc.infer(model, **options)
    seconds = time.perf_counter() - begin
    slowest = _slowest_shard(tree)
    if problem.is_large:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            slowest = _slowest_shard(vcmc.infer(model, executor=vcmc.executors.Local(1), **options))
    others = sum(tree.attrs[f"seconds_{stage}"] for stage in ("start", "compile", "check"))
    path = slowest + tree.attrs["seconds_combine"]
    yield _answer(problem, tree, seconds)._replace(
        seconds_critical=others + path, seconds_slowest=path
    )


def vcmc_refined(problem: Problem) -> Iterator[Answer]:
    """Run vcmc with `refine=True`, for posteriors that are far from Gaussian.

    Refinement starts chains on all rows at the combined draws.
    """
    if not problem.is_skewed and problem.name != "mixture":
        raise NotImplementedError("not run: the posterior is nearly Gaussian")
    begin = time.perf_counter()
    tree = vcmc.infer(_model(problem), problem.rows, refine=True, progress=False)
    yield _answer(problem, tree, time.perf_counter() - begin)


def _model(problem: Problem) -> vcmc.Model:
    if isinstance(problem, GroupedProblem):
        return vcmc.from_numpyro(
            problem.hierarchical(), problem.rows, groups="group", num_groups="num_groups"
        )
    return vcmc.from_numpyro(problem.model, problem.rows)


def _answer(problem: Problem, tree: Any, seconds: float) -> Answer:
    """Return the draws, the seconds of the whole call, and how they are spent."""
    stages = {
        str(name).removeprefix("seconds_"): float(value)
        for name, value in tree.attrs.items()
        if str(name).startswith("seconds_")
    }
    num_shards = int(tree.attrs["num_shards"])
    return Answer(
        problem.reported(vcmc.posterior_draws(tree)),
        seconds,
        tree.attrs["seconds_compile"],
        num_shards=num_shards,
        remark=f"K = {num_shards}, {seconds - stages['diagnose']:.1f} s without the diagnosis",
        verdict=str(tree.attrs["verdict"]),
        stages=stages,
        summary=_local_summary(problem, tree),
    )


def _local_summary(problem: Problem, tree: Any) -> Draws:
    """Return the statistics of local parameters whose draws would have taken too much memory."""
    if not isinstance(problem, GroupedProblem) or "local_mean" not in tree.children:
        return {}
    parts = [tree[f"local_{part}"] for part in ("mean", "sd", "q05", "q95")]
    return {
        name: np.stack([part[name].to_numpy()[problem.scored] for part in parts])
        for name in problem.local
    }


def _slowest_shard(tree: Any) -> float:
    """Return the seconds of the slowest shard."""
    return float((tree["sample_seconds"]["end"] - tree["sample_seconds"]["begin"]).max())


def shard_draws(problem: Problem) -> Iterator[Answer]:
    """Sample the shards by vcmc for NumPyro's combiners, which do not sample.

    They combine the t-th draws of all shards, so they get as many draws of every shard as they make
    of the posterior. The answer has no draws of its own.
    """
    begin = time.perf_counter()
    tree = vcmc.infer(
        _model(problem),
        problem.rows,
        num_shards=problem.num_shards,
        shard_draws=NUM_SHARD_DRAWS,
        progress=False,
    )
    group = tree["subposterior"].to_dataset()
    draws = {str(name): group[name].values for name in group.data_vars}
    np.savez(_shards_file(problem).with_suffix(".npz"), **draws)
    stages = {name: tree.attrs[f"seconds_{name}"] for name in ("start", "compile", "sample")}
    _shards_file(problem).with_suffix(".txt").write_text(json.dumps(stages))
    yield Answer({}, time.perf_counter() - begin, num_shards=problem.num_shards)


def _shards_file(problem: Problem) -> Path:
    """Return the path of the shards' draws."""
    return path_of(Path(os.environ["ARENA_ANSWERS"]), problem.name, "draws of shards")


def consensus(problem: Problem) -> Iterator[Answer]:
    """Combine the shards' draws by NumPyro's `consensus`."""
    return _combined(problem, "consensus")


def parametric(problem: Problem) -> Iterator[Answer]:
    """Combine the shards' draws by NumPyro's `parametric_draws`."""
    return _combined(problem, "parametric_draws")


def consensus_unconstrained(problem: Problem) -> Iterator[Answer]:
    """Use `consensus` in unconstrained coordinates, where averages stay in the support."""
    return _combined(problem, "consensus", _coordinates(problem))


def parametric_unconstrained(problem: Problem) -> Iterator[Answer]:
    """Use `parametric_draws` in unconstrained coordinates, where covariances are regular."""
    return _combined(problem, "parametric_draws", _coordinates(problem))


# Maps of one draw: from params to coordinates, and back.
Coordinates = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _coordinates(problem: Problem) -> Coordinates:
    """Return NumPyro's unconstrained coordinates, which vcmc's models share."""
    space = vcmc.from_numpyro(problem.model, problem.rows).space
    if all(support.is_real for support in space.values()):
        raise NotImplementedError("not run: the same, as all parameters are unconstrained")
    return (
        lambda params: {"point": space.unconstrain(params)},
        lambda coordinates: space.constrain(coordinates["point"]),
    )


def _identity(draw: Any) -> Any:
    return draw


def _combined(
    problem: Problem, function: str, maps: Coordinates = (_identity, _identity)
) -> Iterator[Answer]:
    """Combine vcmc's draws of the shards by a function of NumPyro, which does not sample shards."""
    from numpyro.infer import hmc_util

    path = _shards_file(problem).with_suffix(".npz")
    if not path.exists():
        raise FileNotFoundError("run the method 'shards' first: its draws are combined.")
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    shards: list[Draws] = [
        {
            name: jnp.asarray(values[shard].reshape(-1, *values.shape[3:]))
            for name, values in arrays.items()
        }
        for shard in range(problem.num_shards)
    ]
    sampling = json.loads(_shards_file(problem).with_suffix(".txt").read_text())
    begin = time.perf_counter()
    unconstrain, constrain = (jax.jit(jax.vmap(function)) for function in maps)
    combined = getattr(hmc_util, function)(
        [unconstrain(shard) for shard in shards], NUM_SHARD_DRAWS, rng_key=jax.random.key(0)
    )
    draws = named(constrain(combined))
    seconds = time.perf_counter() - begin
    yield Answer(
        draws,
        sum(sampling.values()) + seconds,
        sampling["compile"],
        remark=f"{NUM_SHARD_DRAWS} draws of every shard, combined in {seconds:.1f} s",
    )
