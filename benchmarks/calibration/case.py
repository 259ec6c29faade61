"""One run of the calibration: rows with a known posterior, the result, and how wrong it is."""

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import vcmc

# A result is right within the first limits (sds of the posterior; relative errors of sds), and
# wrong beyond the second. Between them chance decides: a result has about a thousand draws.
RIGHT_MEAN, RIGHT_SD = 0.1, 0.10
WRONG_MEAN, WRONG_SD = 0.2, 0.15
MAX_REASON_CHARACTERS = 300

Moments = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Mean and sd of the posterior of every parameter."""


@dataclass(frozen=True, eq=False)
class Case:
    """Rows, a model and the truth; for `combine`, draws of the shards, too.

    Attributes:
        model: the model; cases of one kind share it, so that programs are compiled once.
        rows: rows, or a partition of them.
        truth: moments of the posterior of all rows.
        num_shards: number of shards, unless `rows` is a partition.
        draws: draws of the shards by parameter, to be combined; without them `infer` is called.
        combiner: the combiner of given draws.
        sorted_parameter: a parameter whose components are exchangeable: they are sorted.
    """

    model: vcmc.Model
    rows: Any
    truth: Moments
    num_shards: int | None = None
    draws: Mapping[str, np.ndarray] | None = None
    combiner: Any = None
    sorted_parameter: str = ""

    def run(self, seed: int, refine: bool) -> Any:
        """Return the result of vcmc."""
        if self.draws is None:
            return vcmc.infer(
                self.model,
                self.rows,
                num_shards=self.num_shards,
                seed=seed,
                refine=refine,
                progress=False,
            )
        tree = vcmc.combine(
            self.draws,
            model=self.model,
            rows=self.rows,
            combiner=self.combiner,
            seed=seed,
            progress=False,
        )
        return vcmc.refine(tree, self.model, self.rows, progress=False) if refine else tree

    def errors(self, tree: Any) -> tuple[float, float]:
        """Return the largest error of a mean (in posterior sds) and of an sd (relative)."""
        draws = vcmc.posterior_draws(tree)
        mean_errors, sd_errors = [], []
        for name, (mean, sd) in self.truth.items():
            values = np.asarray(draws[name])
            if name == self.sorted_parameter:
                values = np.sort(values, axis=1)
            mean_errors.append(np.max(np.abs(values.mean(axis=0) - mean) / sd))
            sd_errors.append(np.max(np.abs(values.std(axis=0) / sd - 1)))
        return float(max(mean_errors)), float(max(sd_errors))


@dataclass(frozen=True)
class Run:
    """What a run gave.

    Attributes:
        group: "sound" or "fault".
        kind: the model, or the kind of fault.
        seed: seed of the rows and of the run.
        verdict: "good", "doubtful", "poor" or "unknown"; "error" if an exception was raised.
        mean_error: largest true error of a mean, in posterior sds.
        sd_error: largest true relative error of an sd.
        seconds: seconds of the run, with compilation.
        reason: the verdict's reasons, or the exception.
    """

    group: str
    kind: str
    seed: int
    verdict: str
    mean_error: float = field(default=np.nan)
    sd_error: float = field(default=np.nan)
    seconds: float = 0.0
    reason: str = ""

    @property
    def is_right(self) -> bool:
        return self.mean_error <= RIGHT_MEAN and self.sd_error <= RIGHT_SD

    @property
    def is_wrong(self) -> bool:
        """Whether the result is wrong; draws that are not finite are."""
        return self.verdict != "error" and not (
            self.mean_error <= WRONG_MEAN and self.sd_error <= WRONG_SD
        )


def run_case(case: Case, group: str, kind: str, seed: int, refine: bool) -> Run:
    """Run a case and compare the result with the truth."""
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
            tree = case.run(seed, refine)
        verdict, reason = tree.attrs["verdict"], _reasons(tree.attrs["verdict_text"])
        mean_error, sd_error = case.errors(tree)
    except Exception as error:  # any exception is an outcome, to be counted
        verdict, reason = "error", f"{type(error).__name__}: {error}"
        mean_error = sd_error = np.nan
    reason = " ".join(reason.split())[:MAX_REASON_CHARACTERS]
    seconds = time.perf_counter() - begin
    return Run(group, kind, seed, verdict, mean_error, sd_error, seconds, reason)


def _reasons(text: str) -> str:
    """Return the sentences of a verdict without its level and the estimated errors."""
    _, _, reasons = text.partition("Largest estimated errors: ")
    return (reasons.partition(". ")[2] if reasons else text.partition(". ")[2]).strip()
