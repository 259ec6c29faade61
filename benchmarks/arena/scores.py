"""Score the stored answers against the reference of their problem."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from answer import Answer, path_of
from records import GOAL_SD, MIN_SETTLED_DRAWS, SETTLED_SD, Score, Scores
from truth import summary_of

from vcmc.diagnostics import convergence


def _load(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return draws (draw, parameter), and the seconds at which each was ready, if stored."""
    with np.load(path) as stored:
        draws = {name: stored[name] for name in stored.files if not name.endswith("!")}
        ready = stored["ready!"] if "ready!" in stored.files else None
        return _flat(draws), ready


def _flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return arrays (draw, …) by name as one (draw, parameter)."""
    return np.concatenate(
        [arrays[name].reshape(len(arrays[name]), -1) for name in sorted(arrays)], axis=1
    )


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
                of_problem[method] = _score(score.about, *_load(path), exact)
    return scores


def _draws_file(folder: Path, problem: str, method: str) -> Path:
    return path_of(folder, problem, method).with_suffix(".npz")


def load_reference(folder: Path, problem: str) -> np.ndarray | None:
    """Return mean, sd and quantiles (4, parameter) of a problem's reference, if there is one."""
    path = _draws_file(folder, problem, "reference")
    return _load(path)[0] if path.exists() else None


def _score(
    about: dict[str, Any], draws: np.ndarray, ready: np.ndarray | None, exact: np.ndarray
) -> Score:
    mean, sd, *quantiles = np.abs(summary_of(draws) - exact) / exact[1]
    to_goal = about["seconds"] if np.median(mean) <= GOAL_SD else np.nan
    if ready is not None:
        to_goal = _time_to_goal(draws, ready, exact)
    return Score(
        about,
        mean=float(np.median(mean)),
        worst=float(mean.max()),
        sd=float(np.median(sd)),
        quantile=float(np.median(quantiles)),
        to_goal=float(to_goal),
        ess=_effective_draws(about, draws),
        worst_sd=float(sd.max()),
    )


def _running_errors(draws: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Return the median error of the means of the first draw, of the first two, and so on."""
    running = np.cumsum(draws, axis=0) / np.arange(1, len(draws) + 1)[:, None]
    return np.median(np.abs(running - exact[0]) / exact[1], axis=1)


def _time_to_goal(draws: np.ndarray, ready: np.ndarray, exact: np.ndarray) -> float:
    """Return the seconds after which the running means stay below the goal."""
    above = np.flatnonzero(_running_errors(draws, exact) > GOAL_SD)
    first = above[-1] + 1 if len(above) else 0
    return float(ready[first]) if first < len(ready) else np.nan


def is_settled(answer: Answer, exact: np.ndarray) -> bool:
    """Return whether more draws of a chain would show nothing."""
    if answer.ready is None or len(answer.ready) < MIN_SETTLED_DRAWS:
        return False
    draws = _flat(answer.draws)
    return bool(
        _running_errors(draws, exact)[-1] < SETTLED_SD
        and 2 * _time_to_goal(draws, answer.ready, exact) <= answer.seconds
    )


def _effective_draws(about: dict[str, Any], draws: np.ndarray) -> float:
    num_chains = about.get("num_chains", 0)
    if not num_chains:
        return np.nan
    return float(np.nanmin(convergence.ess(_by_chain(draws, num_chains)[None])))


def _by_chain(draws: np.ndarray, num_chains: int) -> np.ndarray:
    """Separate interleaved draws into (chain, draw, parameter)."""
    length = len(draws) // num_chains
    interleaved = draws[: length * num_chains].reshape(length, num_chains, draws.shape[1])
    return np.swapaxes(interleaved, 0, 1)
