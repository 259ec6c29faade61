"""Methods that deal rows into shards: our own, and NumPyro's two functions on our draws of shards."""

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
from problems import Problem

NUM_DRAWS = 1000  # of every shard, and of what is combined


def vcmc_default(problem: Problem) -> Iterator[Answer]:
    """Our own, as it comes: 1000 draws of every shard."""
    return _infer(problem, NUM_DRAWS)


def vcmc_quick(problem: Problem) -> Iterator[Answer]:
    """Our own with 100 draws of every shard, and else as it comes."""
    return _infer(problem, 100)


def vcmc_refined(problem: Problem) -> Iterator[Answer]:
    """Our own with `refine=True`, which moves combined draws on by chains on all rows; for posteriors that are far from normal."""
    if problem.is_large:
        raise NotImplementedError("not for this: it takes as long as chains on all rows")
    return _infer(problem, NUM_DRAWS, refine=True)


def _infer(problem: Problem, num_draws: int, refine: bool = False) -> Iterator[Answer]:
    import vcmc

    begin = time.perf_counter()
    model = vcmc.from_numpyro(problem.model, problem.rows)
    given = {
        "rows": problem.rows,
        "num_shards": problem.num_shards,
        "num_draws": num_draws,
        "progress": False,
    }
    tree = vcmc.infer(model, refine=refine, **given)
    seconds = time.perf_counter() - begin
    slowest = _slowest(tree)
    if problem.is_large and num_draws == NUM_DRAWS:
        # shards that are sampled two at a time share the cores; on a machine for each they would not
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            slowest = _slowest(vcmc.infer(model, executor=vcmc.executors.Local(1), **given))
    names = ("start", "compile", "check", "combine")
    critical = slowest + sum(tree.attrs[f"seconds_{name}"] for name in names)
    if num_draws == NUM_DRAWS and not refine:
        _keep(problem, tree)
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
        slowest + tree.attrs["seconds_combine"],
        remark=f"calls itself {tree.attrs['verdict']}; seconds: {stages}",
    )


def _slowest(tree: Any) -> float:
    """Seconds of the shard that took longest."""
    return float((tree["sample_seconds"]["end"] - tree["sample_seconds"]["begin"]).max())


def _shards_file(problem: Problem) -> Path:
    """Where draws of shards are kept, by which NumPyro's functions are given the same."""
    return path_of(Path(os.environ["ARENA_ANSWERS"]), problem.name, "shards")


def _keep(problem: Problem, tree: Any) -> None:
    group = tree["subposterior"].to_dataset()
    draws = {str(name): group[name].values for name in group.data_vars}
    np.savez(_shards_file(problem).with_suffix(".npz"), **draws)
    spent = {name: tree.attrs[f"seconds_{name}"] for name in ("start", "compile", "sample")}
    _shards_file(problem).with_suffix(".txt").write_text(json.dumps(spent))


def consensus(problem: Problem) -> Iterator[Answer]:
    """NumPyro's `consensus`, on the same draws of shards as vcmc's."""
    return _combined(problem, "consensus")


def parametric(problem: Problem) -> Iterator[Answer]:
    """NumPyro's `parametric_draws`, on the same draws of shards as vcmc's."""
    return _combined(problem, "parametric_draws")


def consensus_unconstrained(problem: Problem) -> Iterator[Answer]:
    """NumPyro's `consensus` in NumPyro's real coordinates, where averages stay what they should be."""
    return _combined(problem, "consensus", _coordinates(problem))


def parametric_unconstrained(problem: Problem) -> Iterator[Answer]:
    """NumPyro's `parametric_draws` in NumPyro's real coordinates, where covariances are regular."""
    return _combined(problem, "parametric_draws", _coordinates(problem))


Coordinates = tuple[
    Callable[[Any], Any], Callable[[Any], Any]
]  # of one draw: from params, and to params


def _coordinates(problem: Problem) -> Coordinates:
    """NumPyro's, which vcmc's models share."""
    import vcmc

    space = vcmc.from_numpyro(problem.model, problem.rows).space
    if all(inside.is_real for inside in space.values()):
        raise NotImplementedError("the same: all parameters are real numbers")
    return (
        lambda params: {"point": space.unconstrain(params)},
        lambda place: space.constrain(place["point"]),
    )


def _same(draw: Any) -> Any:
    return draw


def _combined(
    problem: Problem, function: str, maps: Coordinates = (_same, _same)
) -> Iterator[Answer]:
    """Draws of shards that vcmc has made, as NumPyro has no sampler of shards, combined by NumPyro's own function."""
    from numpyro.infer import hmc_util

    kept = _shards_file(problem).with_suffix(".npz")
    if not kept.exists():
        raise FileNotFoundError("run vcmc first, whose draws of shards are used.")
    with np.load(kept) as file:
        arrays = {name: file[name] for name in file.files}
    shards: list[Draws] = [
        {
            name: jnp.asarray(values[shard].reshape(-1, *values.shape[3:]))
            for name, values in arrays.items()
        }
        for shard in range(problem.num_shards)
    ]
    spent = json.loads(_shards_file(problem).with_suffix(".txt").read_text())
    begin = time.perf_counter()
    forth, back = (jax.jit(jax.vmap(each)) for each in maps)
    combined = getattr(hmc_util, function)(
        [forth(shard) for shard in shards], NUM_DRAWS, rng_key=jax.random.key(0)
    )
    draws = named(back(combined))
    seconds = time.perf_counter() - begin
    yield Answer(
        draws,
        sum(spent.values()) + seconds,
        spent["compile"],
        remark=f"combined in {seconds:.1f} s",
    )
