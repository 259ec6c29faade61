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
from problems import Problem

NUM_DRAWS = 1000  # per shard, and of the combined posterior
NUM_QUICK_DRAWS = 100


def vcmc_default(problem: Problem) -> Iterator[Answer]:
    """Run vcmc with its defaults: 1000 draws per shard."""
    return _infer(problem, NUM_DRAWS)


def vcmc_quick(problem: Problem) -> Iterator[Answer]:
    """Run vcmc with 100 draws per shard."""
    return _infer(problem, NUM_QUICK_DRAWS)


def vcmc_refined(problem: Problem) -> Iterator[Answer]:
    """Run vcmc with `refine=True`, for posteriors that are far from Gaussian.

    Refinement starts chains on all rows at the combined draws.
    """
    if problem.is_large:
        raise NotImplementedError("not run: takes as long as chains on all rows")
    return _infer(problem, NUM_DRAWS, refine=True)


def _infer(problem: Problem, num_draws: int, refine: bool = False) -> Iterator[Answer]:
    import vcmc

    begin = time.perf_counter()
    model = vcmc.from_numpyro(problem.model, problem.rows)
    options = {
        "rows": problem.rows,
        "num_shards": problem.num_shards,
        "num_draws": num_draws,
        "progress": False,
    }
    tree = vcmc.infer(model, refine=refine, **options)
    seconds = time.perf_counter() - begin
    slowest = _slowest_shard(tree)
    if problem.is_large and num_draws == NUM_DRAWS:
        # shards sampled two at a time share the memory bus; with one machine each they would not
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            slowest = _slowest_shard(vcmc.infer(model, executor=vcmc.executors.Local(1), **options))
    stages = ("start", "compile", "check", "combine")
    critical = slowest + sum(tree.attrs[f"seconds_{stage}"] for stage in stages)
    if num_draws == NUM_DRAWS and not refine:
        _store_shards(problem, tree)
    by_stage = ", ".join(
        f"{name.removeprefix('seconds_')} {value:.1f}"
        for name, value in tree.attrs.items()
        if str(name).startswith("seconds_")
    )
    yield Answer(
        vcmc.posterior_draws(tree),
        seconds - tree.attrs["seconds_diagnose"],  # the other methods have no diagnosis
        tree.attrs["seconds_compile"],
        np.nan if refine else critical,
        slowest + tree.attrs["seconds_combine"],
        remark=f"verdict {tree.attrs['verdict']}; seconds by stage: {by_stage}",
    )


def _slowest_shard(tree: Any) -> float:
    """Return the seconds of the slowest shard."""
    return float((tree["sample_seconds"]["end"] - tree["sample_seconds"]["begin"]).max())


def _shards_file(problem: Problem) -> Path:
    """Return the path of the shards' draws, which NumPyro's combiners share with vcmc."""
    return path_of(Path(os.environ["ARENA_ANSWERS"]), problem.name, "shards")


def _store_shards(problem: Problem, tree: Any) -> None:
    group = tree["subposterior"].to_dataset()
    draws = {str(name): group[name].values for name in group.data_vars}
    np.savez(_shards_file(problem).with_suffix(".npz"), **draws)
    seconds = {name: tree.attrs[f"seconds_{name}"] for name in ("start", "compile", "sample")}
    _shards_file(problem).with_suffix(".txt").write_text(json.dumps(seconds))


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
    import vcmc

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
        raise FileNotFoundError("run the method vcmc first: its draws of the shards are used.")
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
        [unconstrain(shard) for shard in shards], NUM_DRAWS, rng_key=jax.random.key(0)
    )
    draws = named(constrain(combined))
    seconds = time.perf_counter() - begin
    yield Answer(
        draws,
        sum(sampling.values()) + seconds,
        sampling["compile"],
        remark=f"combined in {seconds:.1f} s",
    )
