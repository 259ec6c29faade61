r"""The verdict on a mixture of draws from several modes.

A quantity has the mean $\mu = \sum_j w_j \mu_j$. If that of mode $j$ is off by $a_j$, then $\mu$ is
off by $\sum_j w_j a_j$; and if masses, of which weights are the shares, have the relative standard
errors $e_j$, by the root of $\sum_j w_j^2 e_j^2 (\mu_j - \mu)^2$ by chance. Variances and
distribution functions are mixtures, too, so the errors of sds and of quantiles follow in the same
way; a quantile is off by as much as its distribution function, divided by the density there.

A result is as good as the worst of its modes that matter, and not good if the weights are not known
well enough.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..data.labels import Labels
from ..linalg.shrinkage import TINY
from .modes import MIN_MASS_SHARE
from .sampling_error import DENSITY_LEVELS
from .selfcheck import Errors
from .verdict import Diagnosis, Evidence, Level, error_sentences

MAX_WEIGHT_ERROR = 0.02  # standard error of a weight: a mean of modes 10 sds apart moves by 0.2 sd
MIN_SURE_WEIGHT = 0.05  # of a mode whose draws are enough to know their own errors
MAX_PARETO_K = 0.7  # of the ratios that weights come from
MAX_LISTED = 6  # modes whose weights the text names
LEVELS_WORST_FIRST: tuple[Level, ...] = ("poor", "doubtful", "unknown", "good")


class AssessedMode(NamedTuple):
    """A mode with its draws and their diagnosis.

    Attributes:
        weight, standard_error: its share of the mass.
        pareto_k: that of the ratios that the weight comes from.
        diagnosis: of its draws, as if it were the posterior.
        values: its draws, by parameter.
    """

    weight: float
    standard_error: float
    pareto_k: float
    diagnosis: Diagnosis
    values: Mapping[str, np.ndarray]

    @property
    def matters(self) -> bool:
        """Whether it has mass that matters."""
        return self.weight + self.standard_error >= MIN_MASS_SHARE

    @property
    def verdict(self) -> Level:
        """The verdict on its draws; a small mode has too few for small standard errors.

        What these mean for the mixture is in its own errors.
        """
        level = self.diagnosis.verdict
        return "good" if level == "doubtful" and self.weight < MIN_SURE_WEIGHT else level


def judge_modes(
    modes: Sequence[AssessedMode],
    notes: list[str],
    ess: float,
    labels: Labels,
    exact: str = "",
) -> Diagnosis:
    """Return the verdict on draws from several modes.

    Args:
        modes: the modes.
        notes: warnings of earlier stages.
        ess: effective number of draws of the mixture.
        labels: dims and coords of the parameters.
        exact: how the draws were made, if they are exact up to Monte Carlo error.
    """
    matter = [mode for mode in modes if mode.matters]
    found = [mode.verdict for mode in matter]
    level = next(level for level in LEVELS_WORST_FIRST if level in found)
    reasons = [
        f"Mode {number}: {' '.join(mode.diagnosis.reasons)}"
        for number, mode in enumerate(modes)
        if mode.matters and mode.verdict != "good" and mode.diagnosis.reasons
    ]
    errors = mixture_errors(modes)
    faults, uncertainties = error_sentences(errors, Evidence(ess, labels=labels))
    doubts = uncertainties + _weight_doubts(matter)
    if faults:
        level = "poor"
    elif (doubts or notes) and level == "good":
        level = "doubtful"
    numbers = [
        np.array([getattr(mode.diagnosis, name) for mode in matter])
        for name in ("ksd", "not_linear")
    ]
    ksd, not_linear = (float(np.nanmax(np.append(values, -np.inf))) for values in numbers)
    can_be_refined = level in ("poor", "doubtful") and not exact
    return Diagnosis(
        level,
        [*faults, *doubts, *reasons, *notes],
        can_be_refined,
        errors,
        pareto_k=max(mode.pareto_k for mode in matter),
        ksd=ksd if np.isfinite(ksd) else np.nan,
        not_linear=not_linear if np.isfinite(not_linear) else np.nan,
        basis=" ".join([_sentence(modes), exact]).strip(),
        labels=labels,
        modes=tuple(_line(number, mode) for number, mode in enumerate(modes)),
    )


def _sentence(modes: Sequence[AssessedMode]) -> str:
    listed = ", ".join(
        f"{mode.weight:.3f} ± {mode.standard_error:.3f}" for mode in modes[:MAX_LISTED]
    )
    rest = f" and {len(modes) - MAX_LISTED} more" if len(modes) > MAX_LISTED else ""
    return (
        f"The posterior has {len(modes)} modes, of weights {listed}{rest}; each was combined and "
        "assessed by itself."
    )


def _line(number: int, mode: AssessedMode) -> str:
    return f"mode {number}: weight {mode.weight:.3f} ± {mode.standard_error:.3f}, {mode.verdict}"


def _weight_doubts(modes: Sequence[AssessedMode]) -> list[str]:
    """Return sentences on weights that are not known well enough."""
    doubts = []
    worst = max(modes, key=lambda mode: mode.standard_error)
    if not worst.standard_error <= MAX_WEIGHT_ERROR:
        doubts.append(
            f"The weights of the modes are uncertain: one is {worst.weight:.2f} ± "
            f"{worst.standard_error:.2f}."
        )
    uneven = max(modes, key=lambda mode: mode.pareto_k)
    if not uneven.pareto_k <= MAX_PARETO_K:
        doubts.append(
            "The weights of the modes may be off by more than their standard errors: the "
            f"importance ratios of one are uneven (Pareto k {uneven.pareto_k:.2f})."
        )
    return doubts


def mixture_errors(modes: Sequence[AssessedMode]) -> dict[str, Errors]:
    """Return the errors of the mixture; empty if those of a mode that matters are not known."""
    matter = [mode for mode in modes if mode.matters]
    if not all(mode.diagnosis.errors for mode in matter):
        return {}
    return {name: _of_parameter(matter, name) for name in matter[0].diagnosis.errors}


def _of_parameter(modes: Sequence[AssessedMode], name: str) -> Errors:
    weights = np.array([mode.weight for mode in modes])
    weights = weights / weights.sum()
    errors = mass_errors(weights, np.array([mode.standard_error for mode in modes]))
    parts = [np.stack([mode.diagnosis.errors[name][k] for mode in modes]) for k in range(8)]
    values = [np.asarray(mode.values[name], float) for mode in modes]
    means, sds = (
        np.stack([part.mean(axis=0) for part in values]),
        np.stack([part.std(axis=0) for part in values]),
    )
    columns = [
        _of_scalar(
            weights,
            errors,
            means[:, *index],
            sds[:, *index],
            [part[:, *index] for part in parts],
            [np.sort(part[:, *index]) for part in values],
        )
        for index in np.ndindex(means.shape[1:])
    ]
    return Errors(
        *(np.array(column).reshape(means.shape[1:]) for column in zip(*columns, strict=True))
    )


def _of_scalar(
    weights: Float[np.ndarray, " mode"],
    mass_errors: Float[np.ndarray, " mode"],
    means: Float[np.ndarray, " mode"],
    sds: Float[np.ndarray, " mode"],
    parts: list[Float[np.ndarray, " mode"]],
    values: list[Float[np.ndarray, " draw"]],
) -> tuple[float, ...]:
    """Return the errors of one quantity, in the order of `Errors`."""
    mean = weights @ means
    steps = means - mean
    squares = sds**2 + steps**2
    sd = np.sqrt(max(weights @ squares, TINY))
    mean_errors, sd_errors = parts[0] * sds, parts[2] * sds
    result = [
        weights @ mean_errors / sd,
        np.hypot(_root_sum(weights * parts[1] * sds), _by_weights(weights, mass_errors, steps))
        / sd,
        weights @ (sds * sd_errors + steps * mean_errors) / sd**2,
        np.hypot(
            _root_sum(weights * np.hypot(sds**2 * parts[3], steps * parts[1] * sds)),
            _by_weights(weights, mass_errors, squares) / 2,
        )
        / sd**2,
    ]
    for level in (0.05, 0.95):
        result += _of_quantile(level, weights, mass_errors, sds, parts, values, sd)
    return tuple(result)


def _of_quantile(
    level: float,
    weights: Float[np.ndarray, " mode"],
    mass_errors: Float[np.ndarray, " mode"],
    sds: Float[np.ndarray, " mode"],
    parts: list[Float[np.ndarray, " mode"]],
    values: list[Float[np.ndarray, " draw"]],
    sd: float,
) -> list[float]:
    """Return the error of a quantile of the mixture, and its standard error."""
    low, quantile, high = (
        _mixture_quantile(values, weights, at)
        for at in (level - DENSITY_LEVELS, level, level + DENSITY_LEVELS)
    )
    density = 2 * DENSITY_LEVELS / max(high - low, TINY)
    shares = np.array([np.searchsorted(part, quantile) / len(part) for part in values])
    # the share of the density that each mode has there
    width = (high - low) / 2
    local = weights * np.array(
        [
            np.searchsorted(part, quantile + width) - np.searchsorted(part, quantile - width)
            for part in values
        ]
    )
    local = local / np.array([len(part) for part in values])
    local = local / max(local.sum(), TINY)
    nodes = np.array([0.05, 0.5, 0.95])
    moved, error = np.zeros(len(weights)), np.zeros(len(weights))
    for mode, share in enumerate(shares):
        moved[mode] = np.interp(share, nodes, [parts[4][mode], parts[0][mode], parts[6][mode]])
        error[mode] = np.interp(share, nodes, [parts[5][mode], parts[1][mode], parts[7][mode]])
    by_weights = _by_weights(weights, mass_errors, shares) / density
    return [
        float(local @ (moved * sds) / sd),
        float(np.hypot(_root_sum(local * error * sds), by_weights) / sd),
    ]


def _mixture_quantile(
    values: list[Float[np.ndarray, " draw"]], weights: Float[np.ndarray, " mode"], level: float
) -> float:
    """Return a quantile of sorted values of modes with their weights."""
    together = np.concatenate(values)
    shares = np.concatenate(
        [
            np.full(len(part), weight / len(part))
            for part, weight in zip(values, weights, strict=True)
        ]
    )
    order = np.argsort(together)
    return float(np.interp(level, np.cumsum(shares[order]), together[order]))


def mass_errors(
    weights: Float[np.ndarray, " mode"], errors: Float[np.ndarray, " mode"]
) -> Float[np.ndarray, " mode"]:
    r"""Return relative standard errors of independent masses, given those of their shares.

    A share has the variance $s_j^2 = w_j^2 [(1 - 2 w_j) v_j + \sum_l w_l^2 v_l]$, with the relative
    variances $v_l$ of the masses.
    """
    from scipy.optimize import nnls  # here, as it adds to the time of `import vcmc`

    matrix = np.diag(1 - 2 * weights) + weights**2
    scaled = np.minimum(errors, 1.0) / np.maximum(weights, TINY)
    return np.sqrt(nnls(matrix, scaled**2)[0])


def _by_weights(weights: np.ndarray, errors: np.ndarray, values: np.ndarray) -> float:
    """Return the standard error of a weighted mean of values that errors of masses cause."""
    return _root_sum(weights * errors * (values - weights @ values))


def _root_sum(values: np.ndarray) -> float:
    return float(np.sqrt(np.sum(np.square(values))))
