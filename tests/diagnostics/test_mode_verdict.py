"""Errors of mixtures that are known in closed form, and verdicts on them."""

import numpy as np
import pytest

from vcmc.data.labels import NO_LABELS
from vcmc.diagnostics.mode_verdict import AssessedMode, judge_modes, mixture_errors
from vcmc.diagnostics.selfcheck import Errors
from vcmc.diagnostics.verdict import Diagnosis

VALUES = np.random.default_rng(0).normal(size=50_000)


def mode(weight, centre, error=0.0, *, weight_error=0.001, verdict="good", pareto_k=0.1):
    """A normal mode of sd 1 whose draws are off by an error."""
    parts = np.array([error, 0.01, 0.0, 0.01, error, 0.02, error, 0.02])
    diagnosis = Diagnosis(verdict, [], errors={"x": Errors(*parts)}, ksd=0.1, not_linear=0.0)
    return AssessedMode(weight, weight_error, pareto_k, diagnosis, {"x": VALUES + centre + error})


def judged(*modes, notes=()):
    return judge_modes(modes, list(notes), 5000.0, NO_LABELS)


def test_an_error_of_one_mode_is_weighted():
    errors = mixture_errors([mode(0.25, 0.0, 0.4), mode(0.75, 10.0)])["x"]
    sd = np.sqrt(1 + 0.25 * 0.75 * 9.6**2)
    assert errors.mean == pytest.approx(0.25 * 0.4 / sd, abs=0.002)
    # the 5 % quantile is in the mode that is off, the 95 % quantile in the other
    assert errors.q05 == pytest.approx(0.4 / sd, abs=0.01)
    assert errors.q95 == pytest.approx(0.0, abs=0.005)
    # the modes of the draws are nearer to each other than those of the posterior
    assert errors.sd == pytest.approx(1 - np.sqrt(1 + 0.25 * 0.75 * 10**2) / sd, abs=0.005)


def test_errors_of_weights_move_the_mean():
    uncertain = [mode(0.5, centre, weight_error=0.01) for centre in (0.0, 20.0)]
    errors = mixture_errors(uncertain)["x"]
    # the weights of two modes have one error
    assert errors.mean_se == pytest.approx(0.01 * 20 / np.sqrt(101), rel=0.05)


def test_good_modes_with_known_weights_are_good():
    diagnosis = judged(mode(0.3, 0.0), mode(0.7, 10.0))
    assert diagnosis.verdict == "good"
    assert "2 modes, of weights 0.300 ± 0.001, 0.700 ± 0.001" in diagnosis.text
    assert diagnosis.modes[0] == "mode 0: weight 0.300 ± 0.001, good"
    assert "mode 1: weight 0.700" in str(diagnosis)


@pytest.mark.parametrize("verdict", ["poor", "doubtful"])
def test_a_mixture_is_as_good_as_its_worst_mode(verdict):
    assert judged(mode(0.3, 0.0, verdict=verdict), mode(0.7, 10.0)).verdict == verdict


def test_the_draws_of_a_small_mode_are_too_few_to_doubt_them():
    assert judged(mode(0.02, 0.0, verdict="doubtful"), mode(0.98, 10.0)).verdict == "good"
    assert judged(mode(0.02, 0.0, verdict="poor"), mode(0.98, 10.0)).verdict == "poor"


def test_a_mode_without_mass_does_not_count():
    assert judged(mode(0.002, 0.0, verdict="poor"), mode(0.998, 10.0)).verdict == "good"


def test_uncertain_weights_are_doubtful():
    diagnosis = judged(mode(0.3, 0.0, weight_error=0.05), mode(0.7, 1.0, weight_error=0.05))
    assert diagnosis.verdict == "doubtful"
    assert "0.30 ± 0.05" in diagnosis.text


def test_uneven_ratios_are_doubtful():
    assert judged(mode(0.3, 0.0, pareto_k=0.9), mode(0.7, 1.0)).verdict == "doubtful"


def test_notes_are_doubts():
    diagnosis = judged(mode(0.3, 0.0), mode(0.7, 1.0), notes=["There may be more modes."])
    assert (diagnosis.verdict, diagnosis.reasons) == ("doubtful", ["There may be more modes."])
