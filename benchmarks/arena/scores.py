"""Score the stored answers against the reference of their problem."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from answer import Answer, path_of
from records import GOAL_SD, MIN_SETTLED_DRAWS, SETTLED_SD, Score, Scores
from truth import summary_of

from vcmc.diagnostics import convergence


class Stored(NamedTuple):
    """Draws (draw, …) and statistics (4, …) by name, and the seconds at which draws were ready."""

    draws: dict[str, np.ndarray]
    summary: dict[str, np.ndarray]
    ready: np.ndarray | None


def _load(path: Path) -> Stored:
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    ready = arrays.pop("ready!", None)
    summary = {name[:-1]: arrays.pop(name) for name in list(arrays) if name.endswith("=")}
    return Stored(arrays, summary, ready)


class Reference(NamedTuple):
    """Mean, sd and quantiles (4, …) of every parameter, and which parameters are local."""

    summary: dict[str, np.ndarray]
    local: frozenset[str]

    @property
    def parts(self) -> list[list[str]]:
        """Names of global parameters, and of local ones if there are any."""
        names = sorted(self.summary)
        parts = [[name for name in names if (name in self.local) == flag] for flag in (False, True)]
        return [part for part in parts if part]

    def flat(self, part: list[str]) -> np.ndarray:
        return _flat(self.summary, part)


def _flat(arrays: Mapping[str, np.ndarray], names: list[str]) -> np.ndarray:
    """Return arrays (draw, …) by name as one (draw, parameter)."""
    return np.concatenate([arrays[name].reshape(len(arrays[name]), -1) for name in names], axis=1)


def scores_of(folder: Path) -> Scores:
    """Score all answers of a folder, by problem and method."""
    scores: Scores = {}
    for path in sorted(folder.glob("*.json")):
        about = json.loads(path.read_text())
        scores.setdefault(about["problem"], {})[about["method"]] = Score(about)
    for problem, of_problem in scores.items():
        exact = load_reference(folder, problem)
        if exact is None:
            continue
        for method, score in of_problem.items():
            path = _draws_file(folder, problem, method)
            if path.exists() and method != "reference":
                of_problem[method] = _score(score.about, _load(path), exact)
    return scores


def _draws_file(folder: Path, problem: str, method: str) -> Path:
    return path_of(folder, problem, method).with_suffix(".npz")


def load_reference(folder: Path, problem: str) -> Reference | None:
    """Return the reference of a problem, if there is one."""
    path = _draws_file(folder, problem, "reference")
    if not path.exists():
        return None
    about = json.loads(path.with_suffix(".json").read_text())
    return Reference(_load(path).draws, frozenset(about.get("local", ())))


def _score(about: dict[str, Any], stored: Stored, exact: Reference) -> Score:
    summary = {name: summary_of(draws) for name, draws in stored.draws.items()} | stored.summary
    errors = [_errors(_flat(summary, part), exact.flat(part)) for part in exact.parts]
    to_goal = about["seconds"] if max(each["mean"] for each in errors) <= GOAL_SD else np.nan
    if stored.ready is not None:
        to_goal = _time_to_goal(stored.draws, stored.ready, exact)
    local = {f"local_{name}": value for each in errors[1:] for name, value in each.items()}
    return Score(
        about, **errors[0], **local, to_goal=float(to_goal), ess=_effective_draws(about, stored)
    )


def _errors(summary: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """Return errors of means, sds and quantiles; those that a method does not give are left out."""
    mean, sd, *quantiles = np.abs(summary - exact) / exact[1]
    return {
        "mean": float(np.median(mean)),
        "worst": float(mean.max()),
        "sd": float(np.nanmedian(sd)),
        "worst_sd": float(np.nanmax(sd)),
        "quantile": float(np.nanmedian(quantiles)),
    }


def _running_errors(draws: Mapping[str, np.ndarray], exact: Reference) -> np.ndarray:
    """Return the error of the means of the first draw, of the first two, and so on.

    It is the median over all parameters, or the larger one of those over globals and over locals.
    """
    errors = []
    for part in exact.parts:
        flat, (mean, sd, *_) = _flat(draws, part), exact.flat(part)
        running = np.cumsum(flat, axis=0) / np.arange(1, len(flat) + 1)[:, None]
        errors.append(np.median(np.abs(running - mean) / sd, axis=1))
    return np.max(errors, axis=0)


def _time_to_goal(draws: Mapping[str, np.ndarray], ready: np.ndarray, exact: Reference) -> float:
    """Return the seconds after which the running means stay below the goal."""
    above = np.flatnonzero(_running_errors(draws, exact) > GOAL_SD)
    first = above[-1] + 1 if len(above) else 0
    return float(ready[first]) if first < len(ready) else np.nan


def is_settled(answer: Answer, exact: Reference) -> bool:
    """Return whether more draws of a chain would show nothing."""
    if answer.ready is None or len(answer.ready) < MIN_SETTLED_DRAWS:
        return False
    return bool(
        _running_errors(answer.draws, exact)[-1] < SETTLED_SD
        and 2 * _time_to_goal(answer.draws, answer.ready, exact) <= answer.seconds
    )


def _effective_draws(about: dict[str, Any], stored: Stored) -> float:
    num_chains = about.get("num_chains", 0)
    if not num_chains:
        return np.nan
    draws = _flat(stored.draws, sorted(stored.draws))
    return float(np.nanmin(convergence.ess(_by_chain(draws, num_chains)[None])))


def _by_chain(draws: np.ndarray, num_chains: int) -> np.ndarray:
    """Separate interleaved draws into (chain, draw, parameter)."""
    length = len(draws) // num_chains
    interleaved = draws[: length * num_chains].reshape(length, num_chains, draws.shape[1])
    return np.swapaxes(interleaved, 0, 1)
