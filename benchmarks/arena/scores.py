"""Score the stored answers against the reference of their problem."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from answer import path_of

from vcmc.diagnostics import convergence

GOAL_SD = 0.1  # median error of means, in posterior sds, that a method is timed to


@dataclass(frozen=True)
class Score:
    """Errors and times of one answer.

    Attributes:
        about: the record that the child process wrote.
        mean, sd, quantile: median errors over all parameters; of means and quantiles in
            posterior sds, of sds relative.
        worst: the largest error of a mean, in posterior sds.
        to_goal: seconds until the median error of means stays below the goal.
        ess: smallest effective sample size over the parameters (of a reference: the median);
            NaN for approximations.
    """

    about: dict[str, Any]
    mean: float = np.nan
    worst: float = np.nan
    sd: float = np.nan
    quantile: float = np.nan
    to_goal: float = np.nan
    ess: float = np.nan

    @property
    def seconds(self) -> float:
        """Total seconds."""
        return float(self.about.get("seconds", np.nan))


Scores = dict[str, dict[str, Score]]


def _load(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return draws (draw, parameter), and the seconds at which each was ready, if stored."""
    with np.load(path) as stored:
        names = sorted(name for name in stored.files if not name.endswith("!"))
        arrays = [stored[name].reshape(len(stored[name]), -1) for name in names]
        ready = stored["ready!"] if "ready!" in stored.files else None
        return np.concatenate(arrays, axis=1), ready


def scores_of(folder: Path) -> Scores:
    """Score all answers of a folder, by problem and method."""
    scores: Scores = {}
    for path in sorted(folder.glob("*.json")):
        about = json.loads(path.read_text())
        scores.setdefault(about["problem"], {})[about["method"]] = Score(about)
    for problem, of_problem in scores.items():
        if "reference" not in of_problem or not _draws_file(folder, problem, "reference").exists():
            continue
        exact, _ = _load(_draws_file(folder, problem, "reference"))
        for method, score in of_problem.items():
            path = _draws_file(folder, problem, method)
            if path.exists():
                of_problem[method] = _score(score.about, *_load(path), exact)
    return scores


def _draws_file(folder: Path, problem: str, method: str) -> Path:
    return path_of(folder, problem, method).with_suffix(".npz")


def _score(
    about: dict[str, Any], draws: np.ndarray, ready: np.ndarray | None, exact: np.ndarray
) -> Score:
    sds = exact.std(axis=0)
    mean_errors = np.abs(draws.mean(axis=0) - exact.mean(axis=0)) / sds
    levels = [0.05, 0.95]
    quantiles, exact_quantiles = (np.quantile(each, levels, axis=0) for each in (draws, exact))
    to_goal = about["seconds"] if np.median(mean_errors) <= GOAL_SD else np.nan
    if ready is not None:
        to_goal = _time_to_goal(draws, ready, exact)
    return Score(
        about,
        mean=float(np.median(mean_errors)),
        worst=float(mean_errors.max()),
        sd=float(np.median(np.abs(draws.std(axis=0) / sds - 1))),
        quantile=float(np.median(np.abs(quantiles - exact_quantiles) / sds)),
        to_goal=float(to_goal),
        ess=_effective_draws(about, draws),
    )


def _time_to_goal(draws: np.ndarray, ready: np.ndarray, exact: np.ndarray) -> float:
    """Return the seconds after which the running means stay below the goal."""
    running = np.cumsum(draws, axis=0) / np.arange(1, len(draws) + 1)[:, None]
    errors = np.abs(running - exact.mean(axis=0)) / exact.std(axis=0)
    above = np.flatnonzero(np.median(errors, axis=1) > GOAL_SD)
    first = above[-1] + 1 if len(above) else 0
    return float(ready[first]) if first < len(ready) else np.nan


def _effective_draws(about: dict[str, Any], draws: np.ndarray) -> float:
    method = about["method"]
    if method == "reference":
        num_chains = int(about["remark"].split()[0])
        chains = draws.reshape(1, num_chains, -1, draws.shape[1])
        return float(np.nanmedian(convergence.ess(chains)))
    if method.startswith("vcmc"):
        return float(np.nanmin(convergence.ess(draws[None, None])))
    if method.startswith(("NumPyro NUTS", "PyMC", "Stan")):
        return float(np.nanmin(convergence.ess(_by_chain(draws, 2)[None])))
    return np.nan


def _by_chain(draws: np.ndarray, num_chains: int) -> np.ndarray:
    """Separate interleaved draws into (chain, draw, parameter)."""
    length = len(draws) // num_chains
    interleaved = draws[: length * num_chains].reshape(length, num_chains, draws.shape[1])
    return np.swapaxes(interleaved, 0, 1)
