"""What to think of a result, in words: good, doubtful or poor, and why.

*Good*: no error of a mean or an sd is found that matters, and nothing was doubtful on the way. *Doubtful*: no such error
is found, but there is reason not to be sure. *Poor*: errors were found. *Unknown*: there was no full-data log density to judge by.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from ..linalg.stein import MIN_CURVATURE
from .selfcheck import Errors, SelfCheck

TOLERATED = 0.1  # of an sd, or as a share of the sd
UNSURE = 0.2  # the standard error of an error, above which it says little
CROOKED = 0.3  # share of the scores that is not linear, above which an affine correction is a guess
CHANCE, MOST = 4.0, 0.2  # Monte Carlo errors that may happen, but to no more than this

Level = Literal["good", "doubtful", "poor", "unknown"]

ADVICE = (
    "Refine it (vcmc.refine(tree, model, rows), or infer(..., refine=True)), use fewer shards, "
    'or give every shard the full prior (prior="partial", with the default combiner).'
)


@dataclass(frozen=True)
class Diagnosis:
    """How good combined draws are.

    Attributes:
        verdict: "good", "doubtful", "poor" or "unknown".
        reasons: why it is not good, in words.
        can_be_refined: whether more evaluations of the full-data log density would help.
        errors: estimated errors of every parameter's mean and sd, with standard errors.
        pareto_k: shape of the tail of the ratios of the posterior and a Gaussian with the draws' moments. For information, as
            in many dimensions it is large for good draws, too.
        ksd: kernel Stein discrepancy of the draws, in coordinates that they whiten.
        ksd_p_value: the share of sound draws that would have a larger one. For information: with enough points any draws have
            a small one.
        not_linear: the largest share of the scores that is not linear in the draws: zero for a Gaussian posterior.
    """

    verdict: Level
    reasons: list[str] = field(default_factory=list)
    can_be_refined: bool = False
    errors: Mapping[str, Errors] = field(default_factory=dict)
    pareto_k: float = np.nan
    ksd: float = np.nan
    ksd_p_value: float = np.nan
    not_linear: float = np.nan

    @property
    def text(self) -> str:
        """The verdict in a few sentences."""
        said = [f"The result is {self.verdict}."] if self.verdict != "unknown" else [UNKNOWN]
        if self.errors:
            said.append(f"Largest estimated errors: {_worst(self.errors)}.")
        said += self.reasons
        if self.can_be_refined:
            said.append(ADVICE)
        return " ".join(said)

    def __str__(self) -> str:
        rows = [f"{'':20s} {'mean off by (sd)':>20s} {'sd off by (%)':>18s}"]
        for name, label, index in _entries(self.errors):
            mean, mean_se, sd, sd_se = (each[index] for each in self.errors[name])
            rows.append(
                f"{label:20s} {mean:+11.3f} ± {mean_se:.3f} {100 * sd:+13.1f} ± {100 * sd_se:.1f}"
            )
        if len(rows) > MAX_ROWS + 1:
            rows[MAX_ROWS:] = [f"… and {len(rows) - MAX_ROWS} more"]
        numbers = f"Pareto k {self.pareto_k:.2f}, kernel Stein discrepancy {self.ksd:.3g} (p = {self.ksd_p_value:.2f})"
        return "\n".join([*(rows if self.errors else []), numbers, self.text])


MAX_ROWS = 30
UNKNOWN = "How good the result is, is not known: that takes a model and its rows."


def judge(
    check: SelfCheck | None,
    errors: Mapping[str, Errors],
    notes: list[str],
    ess: float,
    elsewhere: str = "",
) -> Diagnosis:
    """The verdict on draws of so many effective ones, given what their scores say, what was doubtful before, and what lies elsewhere."""
    if check is None:
        return Diagnosis("unknown", notes)
    found = _faults(check, errors, ess) + ([elsewhere] if elsewhere else [])
    doubtful = [] if found else _unsure(check, errors, ess)
    level: Level = "poor" if found else "doubtful" if doubtful or notes else "good"
    numbers = (check.pareto_k, check.ksd, check.ksd_p_value, check.not_linear)
    can_be_refined = bool(found or doubtful) and not (elsewhere or check.num_not_finite)
    return Diagnosis(level, found + doubtful + notes, can_be_refined, errors, *numbers)


def _faults(check: SelfCheck, errors: Mapping[str, Errors], ess: float) -> list[str]:
    if check.num_not_finite:
        return [
            f"The full-data log density is not finite at {check.num_not_finite} of {check.num_points} combined draws."
        ]
    found = []
    if check.least_curvature < MIN_CURVATURE:
        found.append(
            "The posterior does not fall off around the combined draws in some direction: they lie between modes, or far out."
        )
    for what in ("mean", "sd"):
        off = [
            one for one in _sizes(errors, what) if abs(one.size) - 2 * one.error > _limit(what, ess)
        ]
        if off:
            worst = max(off, key=lambda one: abs(one.size))
            found.append(f"The {what} of {_among(worst, off)} is off by {worst}.")
    return found


def _unsure(check: SelfCheck, errors: Mapping[str, Errors], ess: float) -> list[str]:
    if not errors:
        return [
            "Its errors could not be estimated: there are too few draws, or the log density is not finite near them."
        ]
    if check.not_linear > CROOKED:
        return [
            f"The posterior is far from Gaussian where the draws are (share of the scores that is not linear: {check.not_linear:.2f}), "
            "and its errors can only be guessed at."
        ]
    for what in ("mean", "sd"):
        limit = _limit(what, ess)
        unsure = [
            one for one in _sizes(errors, what) if one.error > UNSURE or abs(one.size) > limit
        ]
        if unsure:
            worst = max(unsure, key=lambda one: abs(one.size) + 2 * one.error)
            return [
                f"The {what} of {_among(worst, unsure)} may be off: by {worst}, as far as can be told."
            ]
    return []


class Size(NamedTuple):
    """An error of one number, and its standard error."""

    label: str
    what: str
    size: float
    error: float

    def __str__(self) -> str:
        if self.what == "mean":
            return f"{self.size:+.3f} ± {self.error:.3f} sd"
        return f"{100 * self.size:+.1f} ± {100 * self.error:.1f} %"


def _among(worst: Size, every: list[Size]) -> str:
    return worst.label + ("" if len(every) == 1 else f" (and {len(every) - 1} more)")


def _sizes(errors: Mapping[str, Errors], what: str) -> list[Size]:
    return [
        Size(
            label,
            what,
            float(getattr(errors[name], what)[index]),
            float(getattr(errors[name], what + "_se")[index]),
        )
        for name, label, index in _entries(errors)
    ]


def _limit(what: str, ess: float) -> float:
    """The error that a mean or an sd of so many effective draws may have."""
    effective = ess if np.isfinite(ess) else 1.0
    chance = CHANCE / np.sqrt(effective if what == "mean" else 2 * effective)
    return float(np.clip(chance, TOLERATED, MOST))


def _worst(errors: Mapping[str, Errors]) -> str:
    worst = [
        max(_sizes(errors, what), key=lambda one: abs(one.size), default=None)
        for what in ("mean", "sd")
    ]
    return "; ".join(f"{one.what} of {one.label} {one}" for one in worst if one is not None)


def _entries(errors: Mapping[str, Errors]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Every number that has errors: its parameter, its name, and its place. What does not vary has none."""
    return [
        (name, name + (f"[{','.join(map(str, index))}]" if index else ""), index)
        for name, each in errors.items()
        for index in np.ndindex(np.shape(each.mean))
        if all(np.isfinite(part[index]) for part in each)
    ]
