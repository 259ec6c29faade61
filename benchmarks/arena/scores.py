"""The arena's answers, each measured against the reference of its contest."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from answer import path_of

from vcmc.diagnostics import convergence

GOAL = 0.1  # of an sd: the error of means that is waited for


@dataclass(frozen=True)
class Score:
    """What is said of one answer.

    Attributes:
        about: what the child process wrote down.
        mean, sd, quantile: median errors over all numbers: of means and quantiles in sds, of sds relative.
        worst: the largest error of a mean.
        to_goal: seconds until the median error of means stayed below the goal.
        ess: effective draws of the number that has fewest, where draws are exact or combined.
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
        """Seconds in all."""
        return float(self.about.get("seconds", np.nan))


Scores = dict[str, dict[str, Score]]


def _flat(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """All numbers of all draws, and when each was there."""
    with np.load(path) as kept:
        names = sorted(name for name in kept.files if not name.endswith("!"))
        arrays = [kept[name].reshape(len(kept[name]), -1) for name in names]
        return np.concatenate(arrays, axis=1), kept["ready!"] if "ready!" in kept.files else None


def scores_of(folder: Path) -> Scores:
    """All answers, scored against the reference of their contest."""
    found: Scores = {}
    for path in sorted(folder.glob("*.json")):
        about = json.loads(path.read_text())
        found.setdefault(about["contest"], {})[about["contestant"]] = Score(about)
    for contest, scores in found.items():
        if "reference" not in scores or not _draws_file(folder, contest, "reference").exists():
            continue
        exact, _ = _flat(_draws_file(folder, contest, "reference"))
        for name, score in scores.items():
            path = _draws_file(folder, contest, name)
            if path.exists():
                scores[name] = _scored(score.about, *_flat(path), exact)
    return found


def _draws_file(folder: Path, contest: str, contestant: str) -> Path:
    return path_of(folder, contest, contestant).with_suffix(".npz")


def _scored(
    about: dict[str, Any], draws: np.ndarray, ready: np.ndarray | None, exact: np.ndarray
) -> Score:
    unit = exact.std(axis=0)
    mean = np.abs(draws.mean(axis=0) - exact.mean(axis=0)) / unit
    levels = [0.05, 0.95]
    off = np.abs(np.quantile(draws, levels, axis=0) - np.quantile(exact, levels, axis=0)) / unit
    to_goal = about["seconds"] if np.median(mean) <= GOAL else np.nan
    if ready is not None:
        running = np.cumsum(draws, axis=0) / np.arange(1, len(draws) + 1)[:, None]
        above = np.flatnonzero(
            np.median(np.abs(running - exact.mean(axis=0)) / unit, axis=1) > GOAL
        )
        place = above[-1] + 1 if len(above) else 0
        to_goal = float(ready[place]) if place < len(ready) else np.nan
    ess = np.nan
    if about["contestant"] == "reference":
        num_chains = int(about["remark"].split()[0])
        ess = float(np.nanmedian(convergence.ess(draws.reshape(1, num_chains, -1, draws.shape[1]))))
    elif about["contestant"].startswith(("vcmc", "NumPyro NUTS", "PyMC", "Stan")):
        chains = (
            draws[None, None]
            if about["contestant"].startswith("vcmc")
            else _in_chains(draws, 2)[None]
        )
        ess = float(np.nanmin(convergence.ess(chains)))
    return Score(
        about,
        float(np.median(mean)),
        float(mean.max()),
        float(np.median(np.abs(draws.std(axis=0) / unit - 1))),
        float(np.median(off)),
        float(to_goal),
        ess,
    )


def _in_chains(draws: np.ndarray, count: int) -> np.ndarray:
    """Draws of chains in turns, as (chain, draw, number)."""
    return np.swapaxes(
        draws[: len(draws) // count * count].reshape(-1, count, draws.shape[1]), 0, 1
    )
