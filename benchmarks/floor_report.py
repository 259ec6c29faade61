"""The table of `floor.py` and its remarks; not a benchmark itself."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr
from timing import say


class Errors(NamedTuple):
    """Errors over all test functions; `mean` and `tail` in posterior sds, the others relative."""

    mean_relative: float
    mean: float
    mean_worst: float
    sd: float
    sd_worst: float
    tail: float
    tail_worst: float


class Estimate(NamedTuple):
    """An estimated error and the true one, in posterior sds (means) or relative (sds)."""

    problem: str
    num_shards: int
    method: str
    verdict: str
    parameter: str
    mean: float
    mean_se: float
    mean_true: float
    sd: float
    sd_se: float
    sd_true: float
    noise: float  # Monte Carlo error of the reference


class Entry(NamedTuple):
    """A row of the table."""

    problem: str
    num_shards: str
    method: str
    errors: Errors | None
    seconds: float


@dataclass
class Report:
    """A table with remarks, written to its file after every addition."""

    output: Path | None
    entries: list[Entry] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    estimates: list[Estimate] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Add a row."""
        self.entries.append(entry)
        say(_line(entry))
        self._write()

    def remark(self, text: str) -> None:
        """Add a remark below the table."""
        self.remarks.append(text)
        say(f"  {text}")
        self._write()

    def __str__(self) -> str:
        head = (
            "| problem | K | method | mean, relative | mean, sds | largest | sd, relative "
            "| largest | 5 % and 95 %, sds | largest | seconds |\n"
            "|---|---|---|---|---|---|---|---|---|---|---|\n"
        )
        rows = "\n".join(_line(entry) for entry in self.entries)
        remarks = "\n".join(f"- {remark}" for remark in self.remarks)
        return f"{head}{rows}\n\n{self.calibration()}\n\n{remarks}\n"

    def calibration(self) -> str:
        """Compare the estimated errors of means and sds with the true ones, over all results."""
        sound = [estimate for estimate in self.estimates if estimate.verdict != "poor"]
        lines = []
        for kind in ("mean", "sd"):
            true, estimated = (
                np.array([getattr(e, kind + end) for e in self.estimates]) for end in ("_true", "")
            )
            covered = [
                abs(getattr(e, kind) - getattr(e, kind + "_true"))
                < 2 * np.hypot(getattr(e, kind + "_se"), e.noise)
                for e in sound
            ]
            noise = np.array([estimate.noise for estimate in self.estimates])
            # other numbers are as close to the truth as the reference
            clear = np.fmax(np.abs(true), np.abs(estimated)) > 3 * noise
            if len(covered) > 2:
                ranks = [
                    spearmanr(np.abs(true[part]), np.abs(estimated[part])).statistic
                    for part in (clear, noise > 0)
                ]
                lines.append(
                    f"Estimated errors of {kind}s: rank correlation with the true ones "
                    f"{ranks[0]:.3f} over {clear.sum()} numbers that differ from the reference by "
                    f"three of its Monte Carlo errors ({ranks[1]:.3f} over all {len(true)}); of "
                    f"{len(covered)} in results whose verdict is not poor, {np.mean(covered):.1%} "
                    "lie within two standard errors."
                )
        return " ".join(lines)

    def _write(self) -> None:
        if self.output:
            self.output.write_text(str(self))


def _line(entry: Entry) -> str:
    numbers = (
        [f"{value:.3g}" for value in entry.errors] if entry.errors else ["–"] * len(Errors._fields)
    )
    cells = [entry.problem, entry.num_shards, entry.method, *numbers, f"{entry.seconds:.2f}"]
    return f"| {' | '.join(cells)} |"
