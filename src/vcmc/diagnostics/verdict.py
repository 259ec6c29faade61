"""The verdict on a result: good, doubtful, poor or unknown, with reasons.

*Good*: no error of a mean or an sd that matters, and no warning on the way. *Doubtful*: no such
error, but there are warnings, or the errors are not known well enough. *Poor*: errors were found.
*Unknown*: there was no full-data log density to assess the draws with.

Errors come from scores at the draws (`selfcheck.py`). Where the posterior is too far from Gaussian
for that, they come from importance weights (`reweighting.py`). Where these are too uneven, they
cannot be estimated, and a result is at most doubtful, unless its draws are exact: chains on all
rows, or resampled by trustworthy weights.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from ..data.labels import NO_LABELS, Labels
from .html_table import html_note, html_table
from .selfcheck import MAX_GAUSSIAN_SHARE, MAX_NONLINEAR_SHARE, Errors, SelfCheck

# Errors of means are in posterior sds, errors of sds are relative.
MAX_ERROR = 0.1  # errors below do not matter in practice
# Above, an estimated error says little. Quantiles are what few draws of shards make uncertain.
MAX_STANDARD_ERROR, MAX_QUANTILE_STANDARD_ERROR = 0.2, 0.1
NUM_MONTE_CARLO_ERRORS = 4.0  # errors that chance explains, in Monte Carlo standard errors …
MAX_CHANCE_ERROR = 0.2  # … but none above this
MAX_TABLE_ROWS = 30  # of a printed diagnosis
MIN_LABEL_WIDTH = 14  # characters of its first column
MAX_TEXT_WIDTH = 100  # characters of its lines
TABLE_HEADS = ("", "mean off by (sd)", "sd off by (%)", "5 %, 95 % quantiles off by (sd)")

Level = Literal["good", "doubtful", "poor", "unknown"]
Statistic = Literal["mean", "sd", "q05", "q95"]
STATISTICS: Mapping[Statistic, str] = {
    "mean": "mean",
    "sd": "sd",
    "q05": "5 % quantile",
    "q95": "95 % quantile",
}

UNKNOWN = "The quality of the result is unknown: assessing it requires the model and its rows."
ADVICE = (
    "Try vcmc.refine(tree, model, rows) or infer(..., refine=True), fewer shards, or the full "
    'prior for every shard (prior="partial", with the default combiner).'
)

# of statistics of one Gaussian draw, in sds
STANDARD_ERRORS: Mapping[Statistic, float] = {"mean": 1.0, "sd": 0.71, "q05": 2.1, "q95": 2.1}


@dataclass(frozen=True)
class Diagnosis:
    """The quality of combined draws.

    Attributes:
        verdict: "good", "doubtful", "poor" or "unknown".
        reasons: sentences that say why the verdict is not good.
        can_be_refined: whether more evaluations of the full-data log density would help.
        errors: estimated errors of every parameter's mean, sd, and 5 % and 95 % quantile, with
            standard errors.
        pareto_k: tail shape of the importance ratios of the posterior to a Gaussian with the
            draws' moments. For information: in many dimensions it is large for good draws, too.
        ksd: kernel Stein discrepancy of the draws, in coordinates that whiten them.
        ksd_p_value: p-value of the discrepancy. For information: given enough points, it is small
            for any draws.
        not_linear: the largest share of the scores that is not linear in the draws: zero for a
            Gaussian posterior.
        basis: what a good verdict rests on if the errors cannot be estimated.
        labels: dims and coords of parameters, by which their elements are named.
        modes: a line on every mode, if draws are from several.
    """

    verdict: Level
    reasons: list[str] = field(default_factory=list)
    can_be_refined: bool = False
    errors: Mapping[str, Errors] = field(default_factory=dict)
    pareto_k: float = np.nan
    ksd: float = np.nan
    ksd_p_value: float = np.nan
    not_linear: float = np.nan
    basis: str = ""
    labels: Labels = NO_LABELS
    modes: tuple[str, ...] = ()

    @property
    def unrefinable(self) -> "Diagnosis":
        """The same, of draws that are refined already."""
        return replace(self, can_be_refined=False)

    @property
    def text(self) -> str:
        """The verdict in a few sentences."""
        sentences = [UNKNOWN if self.verdict == "unknown" else f"The result is {self.verdict}."]
        if self.errors:
            sentences.append(f"Largest estimated errors: {_largest(self.errors, self.labels)}.")
        sentences += [self.basis] if self.basis else []
        sentences += self.reasons
        if self.can_be_refined:
            sentences.append(ADVICE)
        return " ".join(sentences)

    def __str__(self) -> str:
        cells = [TABLE_HEADS, *self._cells()]
        width = max(MIN_LABEL_WIDTH, *(len(label) for label, *_ in cells[: MAX_TABLE_ROWS + 1]))
        rows = [
            f"{label:{width}s} {mean:>16s} {sd:>15s} {quantiles:>33s}"
            for label, mean, sd, quantiles in cells
        ]
        if len(rows) > MAX_TABLE_ROWS + 1:
            rows[MAX_TABLE_ROWS:] = [f"… and {len(rows) - MAX_TABLE_ROWS} more"]
        text = textwrap.fill(self.text, MAX_TEXT_WIDTH, break_on_hyphens=False)
        lines = [*(rows if self.errors else []), *self.modes, self._numbers, text]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cells = self._cells()
        table = html_table(TABLE_HEADS, cells[:MAX_TABLE_ROWS]) if cells else ""
        rest = len(cells) - MAX_TABLE_ROWS
        notes = [f"… and {rest} more"] if rest > 0 else []
        return table + "".join(map(html_note, [*notes, *self.modes, self._numbers, self.text]))

    @property
    def _numbers(self) -> str:
        p_value = "" if np.isnan(self.ksd_p_value) else f" (p = {self.ksd_p_value:.2f})"
        return f"Pareto k {self.pareto_k:.2f}, kernel Stein discrepancy {self.ksd:.3g}{p_value}"

    def _cells(self) -> list[tuple[str, str, str, str]]:
        """Return the table of errors as text."""
        cells = []
        for name, label, index in _entries(self.errors, self.labels):
            mean, mean_se, sd, sd_se, *tails = (values[index] for values in self.errors[name])
            low, low_se, high, high_se = tails
            columns = f"{mean:+8.3f} ± {mean_se:.3f}", f"{100 * sd:+7.1f} ± {100 * sd_se:.1f}"
            quantiles = f"{low:+.2f} ± {low_se:.2f}, {high:+.2f} ± {high_se:.2f}"
            cells.append((label, *columns, quantiles))
        return cells


class Evidence(NamedTuple):
    """What else is known about draws.

    Attributes:
        ess: effective number of draws.
        faults: sentences on errors that were found otherwise: another mode, a drift.
        doubts: sentences on what the draws may miss: tails, steps.
        remarks: sentences on few shards, which do not matter where the posterior is close to
            Gaussian and scores show that means and sds are right.
        exact: how the draws were made, if they are exact up to Monte Carlo error.
        reweighted: whether the errors were estimated by importance sampling.
        labels: dims and coords of parameters.
        weighted: whether draws of a known density were weighted by the target's, so that they are
            right where scores do not tell how right they are.
    """

    ess: float
    faults: Sequence[str] = ()
    doubts: Sequence[str] = ()
    remarks: Sequence[str] = ()
    exact: str = ""
    reweighted: bool = False
    labels: Labels = NO_LABELS
    weighted: bool = False


def judge(
    check: SelfCheck | None,
    errors: Mapping[str, Errors],
    notes: list[str],
    evidence: Evidence,
) -> Diagnosis:
    """Return the verdict on combined draws.

    Args:
        check: the self-check of the draws; without one, the verdict is "unknown".
        errors: estimated errors of every parameter; empty if they cannot be estimated.
        notes: warnings of the earlier stages.
        evidence: what else is known.
    """
    if check is None:
        return Diagnosis("unknown", notes)
    faults = [*_faults(check, errors, evidence), *evidence.faults]
    basis = "" if errors or evidence.weighted else _unknown_errors(check)
    uncertainties: list[str] = []
    if not faults:
        unclear = [] if evidence.weighted else _uncertainties(errors, evidence)
        uncertainties = [*unclear, *evidence.doubts]
        if basis and not evidence.exact:
            uncertainties.insert(0, basis)
    if faults or uncertainties or not check.not_linear <= MAX_GAUSSIAN_SHARE:
        notes = [*notes, *evidence.remarks]
    level: Level = "poor" if faults else "doubtful" if uncertainties or notes else "good"
    numbers = (check.pareto_k, check.ksd, check.ksd_p_value, check.not_linear)
    can_be_refined = bool(faults or uncertainties) and not check.num_not_finite
    if level == "good" and (basis or evidence.weighted):
        basis = f"{basis} {evidence.exact}".strip()
    return Diagnosis(
        level,
        faults + uncertainties + notes,
        can_be_refined,
        errors,
        *numbers,
        basis=basis if level == "good" else "",
        labels=evidence.labels,
    )


def judge_again(
    diagnosis: Diagnosis, errors: Mapping[str, Errors], evidence: Evidence
) -> Diagnosis:
    """Return a diagnosis with other errors and further evidence, which can only lower the verdict.

    Args:
        diagnosis: the diagnosis.
        errors: its errors, with larger standard errors.
        evidence: faults, doubts and remarks that the diagnosis does not have.
    """
    faults = [*evidence.faults]
    doubts = [*evidence.doubts, *evidence.remarks]
    if diagnosis.verdict == "good" and not faults:  # else it says what is wrong already
        faults += _large_errors(errors, evidence)
        doubts += [] if faults else _uncertainties(errors, evidence)
    level = diagnosis.verdict
    if faults:
        level = "poor"
    elif doubts and level == "good":
        level = "doubtful"
    reasons = [*faults, *diagnosis.reasons, *doubts]
    return replace(diagnosis, verdict=level, reasons=reasons, errors=errors)


def _faults(check: SelfCheck, errors: Mapping[str, Errors], evidence: Evidence) -> list[str]:
    """Return a sentence for every kind of error that was found."""
    if check.num_not_finite:
        return [
            f"The full-data log density is not finite at {check.num_not_finite} of "
            f"{check.num_points} combined draws."
        ]
    faults = []
    if not (check.falls_off or evidence.exact or evidence.reweighted):
        faults.append(
            "The posterior does not fall off around the combined draws in some direction: they lie "
            "between modes, or far in the tails."
        )
    return faults + _large_errors(errors, evidence)


def _large_errors(errors: Mapping[str, Errors], evidence: Evidence) -> list[str]:
    """Return a sentence for every statistic with an error that is beyond doubt."""
    faults = []
    for statistic, noun in STATISTICS.items():
        limit = _limit(statistic, evidence.ess)
        found = _of_statistic(errors, statistic, evidence.labels)
        large = [error for error in found if error.lower_bound > limit]
        if large:
            worst = max(large, key=lambda error: abs(error.value))
            faults.append(
                f"The {noun} of {_with_others(worst, large)} is off by {worst.magnitude}."
            )
    return faults


def error_sentences(
    errors: Mapping[str, Errors], evidence: Evidence
) -> tuple[list[str], list[str]]:
    """Return sentences on errors that matter, and, if there are none, on those that may matter."""
    faults = _large_errors(errors, evidence)
    return faults, [] if faults else _uncertainties(errors, evidence)


def _unknown_errors(check: SelfCheck) -> str:
    """Return a sentence that says why the errors cannot be estimated."""
    if check.not_linear > MAX_NONLINEAR_SHARE:
        return (
            "The errors cannot be estimated: the posterior is far from Gaussian at the draws "
            f"(nonlinear share of the scores: {check.not_linear:.2f})."
        )
    return (
        "The errors cannot be estimated: there are too few draws, or the log density is not "
        "finite, or does not fall off, near them."
    )


def _uncertainties(errors: Mapping[str, Errors], evidence: Evidence) -> list[str]:
    """Return a sentence if the errors are not known well enough to call the result good."""
    for statistic, noun in STATISTICS.items():
        limit = _limit(statistic, evidence.ess)
        unclear = [
            error
            for error in _of_statistic(errors, statistic, evidence.labels)
            if error.standard_error > error.max_standard_error or error.likely_size > limit
        ]
        if unclear:
            worst = max(unclear, key=lambda error: abs(error.value) + 2 * error.standard_error)
            return [
                f"The {noun} of {_with_others(worst, unclear)} may be off: its estimated error "
                f"is {worst}."
            ]
    return []


class EstimatedError(NamedTuple):
    """The estimated error of a mean or a quantile, in posterior sds, or of an sd, relative."""

    label: str
    statistic: Statistic
    value: float
    standard_error: float

    @property
    def is_of_quantile(self) -> bool:
        """Whether it is the error of a quantile."""
        return self.statistic in ("q05", "q95")

    @property
    def max_standard_error(self) -> float:
        """The largest standard error with which the estimate is of use."""
        return MAX_QUANTILE_STANDARD_ERROR if self.is_of_quantile else MAX_STANDARD_ERROR

    @property
    def likely_size(self) -> float:
        """The absolute error, of quantiles less one standard error: they are known less well."""
        return abs(self.value) - (self.standard_error if self.is_of_quantile else 0.0)

    @property
    def noun(self) -> str:
        """The statistic in words."""
        return STATISTICS[self.statistic]

    def __str__(self) -> str:
        if self.statistic != "sd":
            return f"{self.value:+.3f} ± {self.standard_error:.3f} sd"
        return f"{100 * self.value:+.1f} ± {100 * self.standard_error:.1f} %"

    @property
    def magnitude(self) -> str:
        """The error without its sign, and its direction in words."""
        if self.statistic != "sd":
            size = f"{abs(self.value):.2f} ± {self.standard_error:.2f} posterior sd"
            return f"{size} (too {'high' if self.value > 0 else 'low'})"
        size = f"{100 * abs(self.value):.0f} ± {100 * self.standard_error:.0f} %"
        return f"{size} (too {'large' if self.value > 0 else 'small'})"

    @property
    def lower_bound(self) -> float:
        """The absolute error less two standard errors."""
        return abs(self.value) - 2 * self.standard_error


def estimated_errors(diagnosis: Diagnosis) -> list[EstimatedError]:
    """Return all estimated errors of a diagnosis."""
    return [
        error
        for statistic in STATISTICS
        for error in _of_statistic(diagnosis.errors, statistic, diagnosis.labels)
    ]


def _with_others(worst: EstimatedError, errors: list[EstimatedError]) -> str:
    return worst.label + ("" if len(errors) == 1 else f" (and {len(errors) - 1} more)")


def _of_statistic(
    errors: Mapping[str, Errors], statistic: Statistic, labels: Labels
) -> list[EstimatedError]:
    """Return the errors of all means, of all sds, or of all quantiles at a level."""
    return [
        EstimatedError(
            label,
            statistic,
            float(getattr(errors[name], statistic)[index]),
            float(getattr(errors[name], statistic + "_se")[index]),
        )
        for name, label, index in _entries(errors, labels)
    ]


def _limit(statistic: Statistic, ess: float) -> float:
    """Return the error that a statistic may have, given the number of effective draws."""
    effective = ess if np.isfinite(ess) else 1.0
    standard_error = STANDARD_ERRORS[statistic] / np.sqrt(effective)
    return float(np.clip(NUM_MONTE_CARLO_ERRORS * standard_error, MAX_ERROR, MAX_CHANCE_ERROR))


def _largest(errors: Mapping[str, Errors], labels: Labels) -> str:
    """Return the largest error of a mean, of an sd and of a quantile, in words."""
    kinds: tuple[tuple[Statistic, ...], ...] = ("mean",), ("sd",), ("q05", "q95")
    largest = [
        max(
            (error for statistic in kind for error in _of_statistic(errors, statistic, labels)),
            key=lambda error: abs(error.value),
            default=None,
        )
        for kind in kinds
    ]
    return "; ".join(f"{error.noun} of {error.label} {error}" for error in largest if error)


def _entries(
    errors: Mapping[str, Errors], labels: Labels
) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return parameter, label and index of every scalar that has errors: constants have none."""
    return [
        (name, label, index)
        for name, parameter in errors.items()
        for index, label in labels.elements(name, np.shape(parameter.mean)).items()
        if all(np.isfinite(values[index]) for values in parameter)
    ]
