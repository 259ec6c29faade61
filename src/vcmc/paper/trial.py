"""A problem at one size: serial chains, draws of shards, and their combinations."""

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

MEAN = "mean of "  # prefix of the arrays of means; the name of a class of test functions follows
FLOOR, REFINED = "floor", "refined"
NUM_RHAT_FUNCTIONS = 200  # test functions whose R-hat is computed
NUM_TRUTH_DRAWS = 100  # draws of a serial chain whose log density is compared with the truth's
MAX_DIAGNOSIS_DIM = 1000  # above, a diagnosis takes minutes


@dataclass(frozen=True)
class Trial:
    """A problem at one size.

    Attributes:
        name: name of the problem.
        make: returns the problem of a size and a seed.
        size: its size.
        job: options of the run.
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
        """Folder of draws and expectations, shared by all figures about this problem and size."""
        return self.job.folder(self.name, self._settings("shards", "refined"))

    def folder_for(self, figure: str, **more: Any) -> Folder:
        """Return the folder of another figure about this problem and size, by further settings."""
        return self.job.folder(f"{figure}-{self.name}", self._settings("shards", "refined") | more)

    def _settings(self, *excluded: str) -> dict[str, Any]:
        settings = {**self.size.settings(), **self.problem.settings()}
        return {name: value for name, value in settings.items() if name not in excluded}

    @cached_property
    def serial_folder(self) -> Folder:
        """Folder of serial chains, shared by all problems that differ only in their shards."""
        of_size = ("shards", "iterations", "refined")
        of_problem = ("prior", "family", "shard_sampler", "paper_sampler")
        return self.job.folder("serial", self._settings(*of_size, *of_problem))

    @cached_property
    def methods(self) -> Mapping[str, Method]:
        """Methods by name."""
        return methods_of(self.problem, self.size)

    def steps(self) -> list[Step]:
        """Return serial chains, then shards and every method for every number of shards."""
        steps = self.serial_steps()
        for num_shards in self.size.shards:
            steps += self.shard_steps(num_shards)
            steps += [
                self._step(f"{name}-{num_shards}", name, self.combine, name, num_shards)
                for name in self.methods
            ]
            if num_shards in self.size.refined:
                steps.append(
                    self._step(f"{REFINED}-{num_shards}", REFINED, self.refine, num_shards)
                )
        return steps

    def serial_steps(self) -> list[Step]:
        """Return the steps of the serial chains."""
        count = self.size.num_reference + self.size.num_floor
        return [
            Step(f"serial-{index}", "serial", partial(self.serial_chain, index), self.serial_folder)
            for index in range(count)
        ]

    def shard_steps(self, num_shards: int) -> list[Step]:
        """Return steps of the shards' draws for our methods and, if they differ, the paper's."""
        kinds = (False, True) if self.problem.paper_sampler else (False,)
        return [
            self._step(
                shards_name(num_shards, as_paper), "shards", self.shard_draws, num_shards, as_paper
            )
            for as_paper in kinds
        ]

    def _step(self, name: str, kind: str, make: Callable[..., Arrays], *arguments: Any) -> Step:
        return Step(name, kind, partial(make, *arguments), self.folder)

    def sample(self, rows: Any, num_shards: int | None, sampler: AbstractSampler, seed: int) -> Any:
        """Return a tree of draws, without warnings: doubtful shards show in the errors."""
        problem, size = self.problem, self.size
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DoubtfulWarning)
            return infer(
                problem.model,
                rows,
                num_shards=num_shards,
                shard_draws=size.num_draws,
                thin=thinning(sampler, size),
                seed=seed,
                sampler=sampler,
                combiner=Average(),
                prior=problem.prior,
                progress=False,
            )

    def serial_chain(self, index: int) -> Arrays:
        """Return expectations of a serial chain, and the inputs of its checks."""
        problem = self.problem
        tree = self.sample(
            problem.rows, 1, problem.sampler, seed=1000 * (1 + index) + self.job.seed
        )
        draws = posterior_draws(tree)
        first = problem.first(draws)
        functions = _spaced(first.shape[1], min(NUM_RHAT_FUNCTIONS, first.shape[1]))
        arrays = {"followed": first[:, functions], "seconds": tree.attrs["seconds_sample"]}
        if problem.truth is not None:
            arrays["above_truth"] = self._above_truth(draws)
        return arrays | _prefixed(problem.expectations(draws))

    def _above_truth(self, draws: Mapping[str, np.ndarray]) -> float:
        """Return a chain's mean log density less that of the params that generated the rows."""
        space, truth = self.problem.model.space, self.problem.truth or {}
        indices = _spaced(len(draws[next(iter(space))]), NUM_TRUTH_DRAWS)
        params = {
            name: np.concatenate([np.asarray(truth[name])[None], draws[name][indices]])
            for name in space
        }
        log_densities, _ = self.target(self.size.shards[0])(to_points(space, params))
        return float(jnp.mean(log_densities[1:]) - log_densities[0])

    def partition(self, num_shards: int) -> AbstractPartition:
        """Return the rows, split into shards."""
        return split(dict(self.problem.rows), num_shards, seed=self.job.seed)

    def target(self, num_shards: int) -> Target:
        """Return the full-data target, its rows split into shards; the last one is cached."""
        return _target(self, num_shards)

    def shard_draws(self, num_shards: int, as_paper: bool) -> Arrays:
        """Return draws (shard, draw, dim) as points, and the largest R-hat of each shard.

        Exchangeable components have the same labels in all shards.
        """
        problem = self.problem
        sampler = (problem.paper_sampler if as_paper else problem.shard_sampler) or problem.sampler
        tree = self.sample(self.partition(num_shards), None, sampler, seed=self.job.seed)
        space, num_draws = problem.model.space, self.size.num_draws
        draws = {name: tree["subposterior"][name].to_numpy()[:, 0] for name in space}
        flat = {
            name: array.reshape(num_shards * num_draws, *array.shape[2:])
            for name, array in draws.items()
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
        """Read the stored draws of all shards."""
        as_paper = as_paper and self.problem.paper_sampler is not None
        return self.folder.load(shards_name(num_shards, as_paper), "draws")["draws"]

    def subposteriors(self, num_shards: int, as_paper: bool) -> Subposteriors:
        """Return the input of a combiner."""
        draws = jnp.asarray(self.load_shards(num_shards, as_paper))
        target = self.target(num_shards)
        return Subposteriors(draws, target.model.space, target, self.job.seed)

    def combine(self, name: str, num_shards: int) -> Arrays:
        """Return a method's expectations, verdict and notes, and the default's draws."""
        method = self.methods[name]
        combined = method.combiner(self.subposteriors(num_shards, method.as_paper))
        draws = np.asarray(combined.draws)
        to_refine = {"draws": draws} if name == "default" else {}
        return to_refine | self._assess(draws[None], combined.notes, num_shards)

    def refine(self, num_shards: int) -> Arrays:
        """Return expectations, verdict and notes of the default's refined draws."""
        draws = self.folder.load(f"default-{num_shards}", "draws")["draws"]
        refined = refine_draws(draws[None], self.target(num_shards), seed=self.job.seed)
        assessment = self._assess(refined.points, refined.notes, num_shards)
        return {"by": refined.settings["refined_by"]} | assessment

    def _assess(
        self, draws: Float[np.ndarray, "chain draw dim"], notes: list[str], num_shards: int
    ) -> dict[str, Any]:
        target = self.target(num_shards)
        verdict = "unknown"
        if draws.shape[2] <= MAX_DIAGNOSIS_DIM and np.isfinite(draws).all():
            verdict = diagnose_draws(draws, target, notes, self.job.seed).verdict
        return {"verdict": verdict, "notes": np.array(notes, str)} | self.expectations(draws)

    def expectations(self, draws: Float[np.ndarray, "chain draw dim"]) -> dict[str, np.ndarray]:
        """Return means of all test functions over points."""
        space = self.problem.model.space
        params = to_params(space, jnp.asarray(draws.reshape(-1, draws.shape[2])))
        return _prefixed(self.problem.expectations(params))

    @cached_property
    def reference(self) -> dict[str, np.ndarray]:
        """Means of all test functions over the reference's serial chains, by class."""
        chains = [
            self.serial_folder.load(f"serial-{index}") for index in range(self.size.num_reference)
        ]
        classes = [name.removeprefix(MEAN) for name in chains[0] if name.startswith(MEAN)]
        return {name: np.mean([chain[MEAN + name] for chain in chains], axis=0) for name in classes}

    def median_error(self, draws: Float[Array, "draw dim"]) -> float:
        """Return the median relative error over the first class of test functions."""
        errors = self.errors_of(self.expectations(np.asarray(draws)[None]))
        return float(np.median(next(iter(errors.values()))))

    def errors_of(self, expectations: Arrays) -> dict[str, np.ndarray]:
        """Return relative errors of all test functions, by class."""
        return {
            name: np.abs(expectations[MEAN + name] - exact) / np.abs(exact)
            for name, exact in self.reference.items()
        }

    def floor(self) -> list[dict[str, np.ndarray]]:
        """Return relative errors of the serial chains outside the reference."""
        first = self.size.num_reference
        chains = [
            self.serial_folder.load(f"serial-{first + index}")
            for index in range(self.size.num_floor)
        ]
        return [self.errors_of(chain) for chain in chains]

    def floor_medians(self) -> dict[str, float]:
        """Return the median error of a serial chain, by class."""
        floors = self.floor()
        return {
            name: float(np.mean([np.median(errors[name]) for errors in floors]))
            for name in floors[0]
        }

    def serial_settings(self) -> dict[str, Any]:
        """Return R-hat, seconds and log densities (less the truth's) of the serial chains."""
        count = self.size.num_reference + self.size.num_floor
        chains = [self.serial_folder.load(f"serial-{index}") for index in range(count)]
        functions = np.stack([chain["followed"] for chain in chains])
        settings: dict[str, Any] = {
            "num_chains": count,
            "largest_rhat": round(float(np.nanmax(rhat(functions[None]))), 4),
            "seconds_of_a_chain": round(
                float(np.median([chain["seconds"] for chain in chains])), 2
            ),
        }
        if self.problem.truth is not None:
            above = [round(float(chain["above_truth"]), 2) for chain in chains]
            settings["log_density_above_that_of_the_truth"] = above
        return settings


def _spaced(count: int, num_indices: int) -> np.ndarray:
    """Return evenly spaced indices below `count`."""
    return np.linspace(0, count - 1, num_indices).round().astype(int)


def _prefixed(means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {MEAN + name: values for name, values in means.items()}


def thinning(sampler: AbstractSampler, size: Size) -> int:
    """Return the thinning interval; draws of other than Gibbs samplers are nearly independent."""
    return size.thin if isinstance(sampler, ProbitGibbs | MixtureGibbs) else 1


def shards_name(num_shards: int, as_paper: bool) -> str:
    """Return the name of the file with the shards' draws."""
    return f"shards-{num_shards}" + ("-as-paper" if as_paper else "")


@lru_cache(maxsize=2)  # the figures about one problem share its rows
def trial_of(name: str, make: Callable[[Size, int], Problem], size: Size, job: Job) -> Trial:
    """Return a problem at one size: the same object for the same arguments."""
    return Trial(name, make, size, job)


@lru_cache(maxsize=1)
def _target(trial: Trial, num_shards: int) -> Target:
    return Target.fitted(trial.problem.model, trial.partition(num_shards), Local())
