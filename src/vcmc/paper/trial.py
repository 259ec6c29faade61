"""A problem at one size, drawn from in one piece and in shards, and combined: what all figures are made of."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..aggregators.combinatorial import with_common_labels
from ..combiners import Average
from ..combiners.base import Subposteriors
from ..data.params import to_params, to_points
from ..data.partition import split
from ..data.shard import AbstractPartition
from ..diagnostics.convergence import rhat
from ..errors import DoubtfulWarning
from ..executors.local import Local
from ..inference.assessment import diagnose_draws
from ..inference.pipeline import infer
from ..inference.refinement import refine_draws
from ..results.tree import posterior_draws
from ..samplers.base import AbstractSampler
from ..samplers.mixture_gibbs import MixtureGibbs
from ..samplers.probit_gibbs import ProbitGibbs
from ..target import Target
from .base import Arrays, Folder, Job, Step
from .methods import Method, methods_of
from .problem import Problem, Size

MEAN = "mean of "  # before the name of a class of test functions
FLOOR, REFINED = "floor", "refined"
NUM_FOLLOWED = 200  # test functions whose R-hat is looked at
NUM_JUDGED = 100  # draws of a serial chain whose log density is compared with that of the truth
MAX_JUDGED = 1000  # coordinates, above which a diagnosis takes minutes


@dataclass(frozen=True)
class Trial:
    """A problem at one size.

    Attributes:
        name: what it is called.
        make: makes the problem, from a size and a seed.
        size: how large it is.
        job: how it is to be run.
    """

    name: str
    make: Callable[[Size, int], Problem]
    size: Size
    job: Job

    @cached_property
    def problem(self) -> Problem:
        return self.make(self.size, self.job.seed)

    @cached_property
    def folder(self) -> Folder:
        """Where draws and expectations are kept, shared by all figures about this problem at this size."""
        return self.job.folder(self.name, self._settings("shards", "refined"))

    def folder_for(self, figure: str, **more: Any) -> Folder:
        """Where another figure about this problem at this size keeps what it makes, given further settings."""
        return self.job.folder(f"{figure}-{self.name}", self._settings("shards", "refined") | more)

    def _settings(self, *but: str) -> dict[str, Any]:
        known = {**self.size.settings(), **self.problem.settings()}
        return {name: value for name, value in known.items() if name not in but}

    @cached_property
    def serial_folder(self) -> Folder:
        """Where serial chains are kept, shared by all problems that differ only in what is done with shards."""
        about_shards = (
            "shards",
            "iterations",
            "refined",
            "prior",
            "family",
            "shard_sampler",
            "paper_sampler",
        )
        return self.job.folder("serial", self._settings(*about_shards))

    @cached_property
    def methods(self) -> Mapping[str, Method]:
        """The methods by name."""
        return methods_of(self.problem, self.size)

    def steps(self) -> list[Step]:
        """Serial chains; then shards and every method, for every number of shards."""
        steps = self.serial_steps()
        for num_shards in self.size.shards:
            steps += self.shard_steps(num_shards)
            steps += [
                self._step(f"{name}-{num_shards}", name, self.combined, name, num_shards)
                for name in self.methods
            ]
            if num_shards in self.size.refined:
                steps.append(
                    self._step(f"{REFINED}-{num_shards}", REFINED, self.refined, num_shards)
                )
        return steps

    def serial_steps(self) -> list[Step]:
        """The steps that make the serial chains."""
        count = self.size.num_reference + self.size.num_floor
        return [
            Step(f"serial-{index}", "serial", partial(self.serial, index), self.serial_folder)
            for index in range(count)
        ]

    def shard_steps(self, num_shards: int) -> list[Step]:
        """The steps that make the shards' draws, as ours and, if it is otherwise, as the paper's methods need them."""
        kinds = (False, True) if self.problem.paper_sampler else (False,)
        return [
            self._step(
                shards_name(num_shards, as_paper), "shards", self.shards, num_shards, as_paper
            )
            for as_paper in kinds
        ]

    def _step(self, name: str, kind: str, make: Callable[..., Arrays], *arguments: Any) -> Step:
        return Step(name, kind, partial(make, *arguments), self.folder)

    def sample(self, rows: Any, num_shards: int | None, sampler: AbstractSampler, seed: int) -> Any:
        """A tree of draws; what is doubtful about shards shows in the errors."""
        problem, size = self.problem, self.size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoubtfulWarning)
            return infer(
                problem.model,
                rows,
                num_shards=num_shards,
                num_draws=size.num_draws,
                thin=thinning(sampler, size),
                seed=seed,
                sampler=sampler,
                combiner=Average(),
                prior=problem.prior,
                progress=False,
            )

    def serial(self, index: int) -> Arrays:
        """Expectations of a serial chain, and what tells whether it is sound."""
        problem = self.problem
        tree = self.sample(
            problem.rows, 1, problem.sampler, seed=1000 * (1 + index) + self.job.seed
        )
        draws = posterior_draws(tree)
        first = problem.first(draws)
        followed = (
            np.linspace(0, first.shape[1] - 1, min(NUM_FOLLOWED, first.shape[1]))
            .round()
            .astype(int)
        )
        found = {"followed": first[:, followed], "seconds": tree.attrs["seconds_sample"]}
        if problem.truth is not None:
            found["above_truth"] = self._above_truth(draws)
        return found | self._named(problem.expectations(draws))

    def _above_truth(self, draws: Mapping[str, np.ndarray]) -> float:
        """By how much a chain's mean log density is above that of the params that made the rows."""
        space, truth = self.problem.model.space, self.problem.truth or {}
        some = np.linspace(0, len(draws[next(iter(space))]) - 1, NUM_JUDGED).round().astype(int)
        chosen = {
            name: np.concatenate([np.asarray(truth[name])[None], draws[name][some]])
            for name in space
        }
        log_densities, _ = self.target(self.size.shards[0])(to_points(space, chosen))
        return float(jnp.mean(log_densities[1:]) - log_densities[0])

    def partition(self, num_shards: int) -> AbstractPartition:
        """The rows, dealt."""
        return split(dict(self.problem.rows), num_shards, seed=self.job.seed)

    def target(self, num_shards: int) -> Target:
        """The full-data target, its rows dealt; the last one is kept."""
        return _target(self, num_shards)

    def shards(self, num_shards: int, as_paper: bool) -> Arrays:
        """Draws of all shards, as points (shard, draw, dim), their components labelled alike, and the largest R-hat of each."""
        problem = self.problem
        sampler = (problem.paper_sampler if as_paper else problem.shard_sampler) or problem.sampler
        tree = self.sample(self.partition(num_shards), None, sampler, seed=self.job.seed)
        space, num_draws = problem.model.space, self.size.num_draws
        inside = {name: tree["subposterior"][name].to_numpy()[:, 0] for name in space}
        flat = {
            name: array.reshape(num_shards * num_draws, *array.shape[2:])
            for name, array in inside.items()
        }
        points = np.asarray(to_points(space, flat)).reshape(num_shards, num_draws, -1)
        rhats = [
            tree["subposterior_rhat"][name].to_numpy().reshape(num_shards, -1) for name in space
        ]
        return {
            "draws": with_common_labels(space, points),
            "rhat": np.nanmax(np.concatenate(rhats, axis=1), axis=1),
            "seconds": tree.attrs["seconds_sample"],
        }

    def load_shards(self, num_shards: int, as_paper: bool) -> Float[np.ndarray, "shard draw dim"]:
        """Draws that were made before."""
        as_paper = as_paper and self.problem.paper_sampler is not None
        return self.folder.load(shards_name(num_shards, as_paper), "draws")["draws"]

    def subposteriors(self, num_shards: int, as_paper: bool) -> Subposteriors:
        """What a combiner is given."""
        draws = jnp.asarray(self.load_shards(num_shards, as_paper))
        target = self.target(num_shards)
        return Subposteriors(draws, target.model.space, target, self.job.seed)

    def combined(self, name: str, num_shards: int) -> Arrays:
        """Expectations under a method's draws, the draws where they are to be refined, and what they say of themselves."""
        method = self.methods[name]
        found = method.combiner(self.subposteriors(num_shards, method.as_paper))
        kept = {"draws": np.asarray(found.draws)} if name == "default" else {}
        return kept | self._judged(np.asarray(found.draws)[None], found.notes, num_shards)

    def refined(self, num_shards: int) -> Arrays:
        """Expectations under refined.points of the default method."""
        draws = self.folder.load(f"default-{num_shards}", "draws")["draws"]
        refined = refine_draws(draws[None], self.target(num_shards), seed=self.job.seed)
        return {"by": refined.settings["refined_by"]} | self._judged(
            refined.points, refined.notes, num_shards
        )

    def _judged(
        self, draws: Float[np.ndarray, "chain draw dim"], notes: list[str], num_shards: int
    ) -> dict[str, Any]:
        target = self.target(num_shards)
        verdict = "unknown"
        if draws.shape[2] <= MAX_JUDGED and np.isfinite(draws).all():
            verdict = diagnose_draws(draws, target, notes, self.job.seed).verdict
        return {"verdict": verdict, "notes": np.array(notes, str)} | self.expectations(draws)

    def expectations(self, draws: Float[np.ndarray, "chain draw dim"]) -> dict[str, np.ndarray]:
        """Means of all test functions over draws given as points."""
        space = self.problem.model.space
        params = to_params(space, jnp.asarray(draws.reshape(-1, draws.shape[2])))
        return self._named(self.problem.expectations(params))

    def _named(self, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {MEAN + name: values for name, values in means.items()}

    @cached_property
    def reference(self) -> dict[str, np.ndarray]:
        """Means of all test functions over the serial chains of the reference, in classes."""
        chains = [
            self.serial_folder.load(f"serial-{index}") for index in range(self.size.num_reference)
        ]
        classes = [name.removeprefix(MEAN) for name in chains[0] if name.startswith(MEAN)]
        return {name: np.mean([chain[MEAN + name] for chain in chains], axis=0) for name in classes}

    def median_error(self, draws: Float[Array, "draw dim"]) -> float:
        """The median relative error over the first class of test functions, of draws given as points."""
        errors = self.errors_of(self.expectations(np.asarray(draws)[None]))
        return float(np.median(next(iter(errors.values()))))

    def errors_of(self, found: Arrays) -> dict[str, np.ndarray]:
        """Relative errors of all test functions, in classes."""
        return {
            name: np.abs(found[MEAN + name] - exact) / np.abs(exact)
            for name, exact in self.reference.items()
        }

    def floor(self) -> list[dict[str, np.ndarray]]:
        """Relative errors of serial chains that are not part of the reference."""
        first = self.size.num_reference
        chains = [
            self.serial_folder.load(f"serial-{first + index}")
            for index in range(self.size.num_floor)
        ]
        return [self.errors_of(chain) for chain in chains]

    def floor_medians(self) -> dict[str, float]:
        """The median error of a serial chain, in classes."""
        floors = self.floor()
        return {
            name: float(np.mean([np.median(each[name]) for each in floors])) for name in floors[0]
        }

    def serial_settings(self) -> dict[str, Any]:
        """How good the serial chains are, and how long one takes."""
        count = self.size.num_reference + self.size.num_floor
        chains = [self.serial_folder.load(f"serial-{index}") for index in range(count)]
        followed = np.stack([chain["followed"] for chain in chains])
        settings: dict[str, Any] = {
            "num_chains": count,
            "largest_rhat": round(float(np.nanmax(rhat(followed[None]))), 4),
            "seconds_of_a_chain": round(
                float(np.median([chain["seconds"] for chain in chains])), 2
            ),
        }
        if self.problem.truth is not None:
            above = [round(float(chain["above_truth"]), 2) for chain in chains]
            settings["log_density_above_that_of_the_truth"] = above
        return settings


def thinning(sampler: AbstractSampler, size: Size) -> int:
    """One draw of how many is kept: Gibbs sampling needs it, draws of the others are next to independent."""
    return size.thin if isinstance(sampler, ProbitGibbs | MixtureGibbs) else 1


def shards_name(num_shards: int, as_paper: bool) -> str:
    """What the file of the shards' draws is called."""
    return f"shards-{num_shards}" + ("-as-paper" if as_paper else "")


@lru_cache(maxsize=2)  # the figures about one problem share its rows
def trial_of(name: str, make: Callable[[Size, int], Problem], size: Size, job: Job) -> Trial:
    """A problem at one size: the same object for the same arguments."""
    return Trial(name, make, size, job)


@lru_cache(maxsize=1)
def _target(trial: Trial, num_shards: int) -> Target:
    return Target.fitted(trial.problem.model, trial.partition(num_shards), Local())
