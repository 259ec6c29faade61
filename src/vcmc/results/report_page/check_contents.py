"""The data of the report page's sections on posterior checks and on cross-validation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..posterior_checks import EXTREME_P, LEVELS, PosteriorCheck

if TYPE_CHECKING:
    from arviz_stats import ELPDData

MAX_LINES = 300  # statistics of a check; the data frame has all
MAX_WORST = 30  # rows with the largest Pareto k, and as many with the lowest elpd
DEFAULT_GOOD_K = 0.7


def check_contents(checks: Any) -> list[dict[str, Any]]:
    """Return the tables of posterior checks, ready for JSON."""
    checks = [checks] if isinstance(checks, PosteriorCheck) else list(checks)
    for check in checks:
        if not isinstance(check, PosteriorCheck):
            raise TypeError(
                "checks must be results of vcmc.posterior_check, e.g. checks=[check]; got "
                f"{type(check).__name__}."
            )
    return [_check(check) for check in checks]


def _check(check: PosteriorCheck) -> dict[str, Any]:
    columns = check.columns()
    order = np.arange(len(check.lines))
    if len(order) > MAX_LINES:  # the smallest p-values, in the order of the table
        order = np.sort(np.argsort(check.two_sided, kind="stable")[:MAX_LINES])
    low, middle, high = np.quantile(check.replicated, [LEVELS[0], 0.5, LEVELS[1]], axis=1)
    return {
        "response": check.response,
        "by": check.by,
        "sentence": check.sentence(),
        "isExtreme": bool(check.extreme),
        "extremeP": EXTREME_P,
        "numReplicates": check.num_replicates,
        "numLines": len(check.lines),
        "lines": [
            {
                "label": check.lines[i].label,
                "observed": as_number(check.observed[i]),
                "mean": as_number(columns["mean"][i]),
                "sd": as_number(columns["sd"][i]),
                "low": as_number(low[i]),
                "median": as_number(middle[i]),
                "high": as_number(high[i]),
                "smallest": as_number(check.replicated[i].min()),
                "largest": as_number(check.replicated[i].max()),
                "pValue": as_number(columns["p_value"][i]),
                "twoSided": as_number(columns["two_sided"][i]),
            }
            for i in order.tolist()
        ],
    }


def loo_contents(loo: "ELPDData | None") -> dict[str, Any] | None:
    """Return the numbers of a cross-validation and its worst rows, ready for JSON."""
    if loo is None:
        return None
    if getattr(loo, "elpd_i", None) is None or not hasattr(loo, "n_data_points"):
        raise TypeError(
            f"loo must be a result of vcmc.loo, with one value per row; got {type(loo).__name__}."
        )
    elpd = np.asarray(loo.elpd_i, float)
    has_k = loo.pareto_k is not None
    pareto_k = np.asarray(loo.pareto_k, float) if has_k else np.full(len(elpd), np.nan)
    good_k = float(loo.good_k or DEFAULT_GOOD_K)
    dim = str(loo.elpd_i.dims[0])
    labels = loo.elpd_i[dim].to_numpy()
    return {
        "kind": str(loo.kind),
        "unit": dim,
        "elpd": as_number(loo.elpd),
        "se": as_number(loo.se),
        "p": as_number(loo.p),
        "numRows": int(loo.n_data_points),
        "numDraws": int(loo.n_samples),
        "goodK": as_number(good_k) if has_k else None,
        "numBad": int(np.sum(pareto_k > good_k)),
        "worst": [
            {"label": str(labels[i]), "k": as_number(pareto_k[i]), "elpd": as_number(elpd[i])}
            for i in _worst(pareto_k, elpd)
        ],
    }


def _worst(pareto_k: Float[np.ndarray, " row"], elpd: Float[np.ndarray, " row"]) -> Sequence[int]:
    """Return the rows with the largest Pareto k, and then those with the lowest elpd."""
    by_k = np.argsort(-np.nan_to_num(pareto_k, nan=-np.inf), kind="stable")[:MAX_WORST]
    by_elpd = np.argsort(elpd, kind="stable")[:MAX_WORST]
    return list(dict.fromkeys([*by_k.tolist(), *by_elpd.tolist()]))


def as_number(value: Any, digits: int = 5) -> float | int | None:
    """Round to significant digits; return None for NaN and infinity, which JSON does not have."""
    value = float(value)
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
