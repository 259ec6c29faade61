"""The last stage of a run: estimate the errors of the posterior draws, and give a verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Array, Float

from ..data.params import to_params
from ..diagnostics import convergence
from ..diagnostics.integrals import check_integrals, integral_sentences
from ..diagnostics.mode_search import find_modes
from ..diagnostics.modes import ModeSearch
from ..diagnostics.profiles import profile, profile_doubts
from ..diagnostics.reweighting import THOROUGH, reweighted_errors
from ..diagnostics.sampling_error import DrawSource
from ..diagnostics.selfcheck import MAX_GAUSSIAN_SHARE, Errors, self_check
from ..diagnostics.verdict import Diagnosis, Evidence, Level, judge
from ..errors import warn_doubtful
from ..linalg.whitening import Whitening
from ..results.tree import make_tree, text_list, tree_labels
from ..target import Target
from .drift import drift

if TYPE_CHECKING:
    from xarray import DataTree

ERROR_GROUPS = {
    "mean": "mean_error",
    "mean_se": "mean_error_se",
    "sd": "sd_error",
    "sd_se": "sd_error_se",
    "q05": "q05_error",
    "q05_se": "q05_error_se",
    "q95": "q95_error",
    "q95_se": "q95_error_se",
}
DIAGNOSIS_NUMBERS = ("pareto_k", "ksd", "ksd_p_value", "not_linear")

ROW_WEIGHTS = "row_weights"  # the attribute of a tree with the column of the rows' weights

ONE_SHARD = "The draws are those of chains on all rows, which have converged."

Points = Float[np.ndarray, "chain draw dim"]


class Assessment(NamedTuple):
    """A diagnosis, and the warnings of earlier stages: `notes`, and `remarks` on few shards.

    `mode_verdicts` are those on the draws of every mode, if there are several.
    """

    diagnosis: Diagnosis
    notes: list[str]
    remarks: Sequence[str] = ()
    mode_verdicts: tuple[Level, ...] = ()

    def with_doubt(self, reason: str) -> "Assessment":
        """Return the same with another reason why the result is not good."""
        diagnosis = self.diagnosis
        verdict: Level = "doubtful" if diagnosis.verdict == "good" else diagnosis.verdict
        reasons = [reason, *diagnosis.reasons]
        return self._replace(diagnosis=replace(diagnosis, verdict=verdict, reasons=reasons))

    @property
    def groups(self) -> dict[str, dict[str, np.ndarray]]:
        """The estimated errors as groups of a tree."""
        errors = self.diagnosis.errors
        groups = {
            group: {name: np.asarray(getattr(error, part)) for name, error in errors.items()}
            for part, group in ERROR_GROUPS.items()
        }
        return {name: group for name, group in groups.items() if group}

    @property
    def warnings(self) -> list[str]:
        """Texts of warnings to the user: the verdict if it is not good, notes if it is unknown."""
        if self.diagnosis.verdict == "good":
            return []
        if self.diagnosis.verdict == "unknown":
            return [*self.notes, *self.remarks]
        return [self.diagnosis.text]

    @property
    def attributes(self) -> dict[str, Any]:
        """The verdict as attributes of a tree."""
        diagnosis = self.diagnosis
        return {
            "verdict": diagnosis.verdict,
            "verdict_text": diagnosis.text,
            "verdict_reasons": diagnosis.reasons,
            "verdict_basis": diagnosis.basis,
            "can_be_refined": int(diagnosis.can_be_refined),
            **{name: getattr(diagnosis, name) for name in DIAGNOSIS_NUMBERS},
            "shard_warnings": self.notes,
            "shard_remarks": list(self.remarks),
            "warnings": self.warnings,
            **self._of_modes,
        }

    @property
    def _of_modes(self) -> dict[str, list[str]]:
        if not self.mode_verdicts:
            return {}
        lines = list(self.diagnosis.modes)
        return {"mode_verdicts": list(self.mode_verdicts), "mode_lines": lines}


def assess(
    points: Points,
    target: Target | None,
    notes: list[str],
    seed: int,
    *,
    remarks: Sequence[str] = (),
    exact: str = "",
    is_refined: bool = False,
    is_weighted: bool = False,
    source: DrawSource | None = None,
    search: ModeSearch | None = None,
) -> Assessment:
    """Estimate the errors of posterior draws; without a target they are unknown.

    Args:
        points: the draws.
        target: the full-data target.
        notes: warnings of earlier stages.
        seed: seed of the choice of draws at which the target is evaluated.
        remarks: warnings about few shards, which do not matter if scores say that all is well.
        exact: how the draws were made, if they are exact up to Monte Carlo error.
        is_refined: whether the draws are refined already, so that refining is not advised.
        is_weighted: whether draws of a known density were weighted by the target's.
        source: where the draws come from, if they are paired draws of shards.
        search: a search for modes, if there was one.
    """
    notes, remarks = sentences(notes), sentences(remarks)
    if target is None:
        return Assessment(judge(None, {}, notes, Evidence(np.nan)), notes, remarks)
    diagnosis = diagnose_draws(
        points,
        target,
        notes,
        seed,
        remarks=remarks,
        exact=exact,
        is_weighted=is_weighted,
        source=source,
        search=search,
    )
    if is_refined:
        diagnosis = diagnosis.unrefinable
    return Assessment(diagnosis, notes, remarks)


def sentences(notes: Sequence[str]) -> list[str]:
    """Return notes as sentences of the verdict."""
    return [note[:1].upper() + note[1:] for note in notes]


def diagnose_draws(
    points: Points,
    target: Target,
    notes: list[str],
    seed: int,
    *,
    remarks: Sequence[str] = (),
    exact: str = "",
    is_weighted: bool = False,
    source: DrawSource | None = None,
    search: ModeSearch | None = None,
    reweighs: bool = False,
) -> Diagnosis:
    """Judge draws by full-data scores at some of them, and by what lies around them.

    Args:
        points: the draws.
        target: the full-data target.
        notes: warnings of earlier stages.
        seed: seed of the choice of draws at which the target is evaluated.
        remarks: warnings about few shards.
        exact: how the draws were made, if they are exact up to Monte Carlo error.
        is_weighted: whether draws of a known density were weighted by the target's, which was
            compared with it around them, too.
        source: where the draws come from, if they are paired draws of shards.
        search: a search for modes, if there was one; else one is made.
        reweighs: whether errors come from importance weights rather than from scores wherever
            scores are not linear, or lines show steps: of draws that importance weights have made,
            or have been compared with.
    """
    try:
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if search is None:
                flat = points.reshape(-1, points.shape[2])
                search = find_modes(target, Whitening.from_draws(flat), flat, seed)
            evidence = Evidence(np.nan, (), (), remarks, exact, weighted=is_weighted)
            return _diagnose_draws(points, target, notes, seed, evidence, source, search, reweighs)
    except (np.linalg.LinAlgError, ArithmeticError) as error:  # a verdict, too
        reason = (
            f"The errors cannot be estimated: the diagnosis failed ({type(error).__name__}: "
            f"{error}), as the draws are degenerate or on very different scales."
        )
        return Diagnosis("doubtful", [reason, *notes, *remarks], can_be_refined=not exact)


def _diagnose_draws(
    points: Points,
    target: Target,
    notes: list[str],
    seed: int,
    evidence: Evidence,
    source: DrawSource | None,
    search: ModeSearch,
    reweighs: bool,
) -> Diagnosis:
    model, exact = target.model, evidence.exact
    flat = points.reshape(-1, points.shape[2])
    names = model.space.coordinates

    def params_at(points: Float[Array | np.ndarray, "draw dim"]) -> dict[str, np.ndarray]:
        return to_params(model.space, points, model.derived)

    def quantities(points: Float[Array, "draw dim"]) -> Float[np.ndarray, "draw quantity"]:
        columns = [values.reshape(len(values), -1) for values in params_at(points).values()]
        return np.concatenate(columns, axis=1)

    ess = float(np.nanmin(convergence.ess(points[None])))
    source = source or DrawSource(None)
    if source.num_independent is None:
        source = source._replace(num_independent=max(1.0, ess))
    if source.moment_draws is not None:
        ess = min(ess, source.moment_draws)
    check = self_check(flat, target, quantities, seed, source)
    mode = search.other
    faults = [mode.sentence(model.space)] if mode else []
    known, reweighted, is_covered = check.errors, None, evidence.weighted
    if reweighs and not check.not_linear <= MAX_GAUSSIAN_SHARE:
        reweighted = reweighted_errors(flat, target, quantities, seed, THOROUGH)
    if reweighted is not None:  # wide proposals have seen what lies beyond the draws, steps too
        known, is_covered = reweighted, True
    elif not check.is_reliable:
        known = None
        if not exact and not check.num_not_finite:
            known = reweighted = reweighted_errors(flat, target, quantities, seed)
        if not exact and known is None and (sentence := drift(flat, target, names, seed)):
            faults.append(sentence)
    doubts = [] if is_covered else profile_doubts(profile(flat, target, seed), names)
    if doubts and reweighs and reweighted is None:  # proposals everywhere know more than lines
        reweighted = reweighted_errors(flat, target, quantities, seed, THOROUGH)
        if reweighted is not None:
            known, doubts = reweighted, []
    if model.local is not None:
        integral_faults, integral_doubts = integral_sentences(check_integrals(flat, target, seed))
        faults, doubts = faults + integral_faults, doubts + integral_doubts
    errors = {}
    if known is not None:
        shapes = {name: values.shape[1:] for name, values in params_at(flat).items()}
        errors = _by_parameter(known, shapes)
    evidence = evidence._replace(
        ess=ess,
        faults=faults,
        doubts=doubts,
        reweighted=reweighted is not None,
        labels=model.labels,
    )
    return judge(check, errors, notes, evidence)


def _by_parameter(errors: Errors, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Errors]:
    """Split the errors of all quantities into those of each parameter."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    parts = [np.split(error, ends[:-1]) for error in errors]
    return {
        name: Errors(*(part[index].reshape(shape) for part in parts))
        for index, (name, shape) in enumerate(shapes.items())
    }


def result_tree(
    groups: Mapping[str, Any], settings: Mapping[str, Any], assessment: Assessment
) -> "DataTree":
    """Return the tree of a result, and issue its warnings."""
    warn_doubtful(assessment.warnings)
    return make_tree({**groups, **assessment.groups}, {**settings, **assessment.attributes})


def stored_diagnosis(tree: "DataTree") -> Diagnosis:
    """Return the diagnosis that a tree holds."""
    if "verdict" not in tree.attrs:
        raise ValueError(
            "this tree holds no diagnosis. Pass the model and its rows: "
            "vcmc.diagnose(tree, model, rows)."
        )
    errors = {}
    if "mean_error" in tree.children:
        for name in tree["mean_error"].data_vars:
            parts = (tree[group][name].to_numpy() for group in ERROR_GROUPS.values())
            errors[str(name)] = Errors(*parts)
    numbers = {name: float(tree.attrs[name]) for name in DIAGNOSIS_NUMBERS}
    reasons = text_list(tree, "verdict_reasons")
    can_be_refined = bool(tree.attrs["can_be_refined"])
    basis = tree.attrs.get("verdict_basis", "")
    verdict = tree.attrs["verdict"]
    labels = tree_labels(tree)
    return Diagnosis(
        verdict,
        reasons,
        can_be_refined,
        errors,
        **numbers,
        basis=basis,
        labels=labels,
        modes=tuple(text_list(tree, "mode_lines")),
    )


def weights_attribute(weights: str | None) -> dict[str, str]:
    """Return the attribute of a tree that records the column with the weights of rows, if any."""
    return {} if weights is None else {ROW_WEIGHTS: weights}


def weights_of(tree: Any, weights: str | None) -> str | None:
    """Return the column with the weights of rows: the user's choice, or that of a result."""
    stored = getattr(tree, "attrs", {}).get(ROW_WEIGHTS)
    return weights if weights is not None or stored is None else str(stored)
