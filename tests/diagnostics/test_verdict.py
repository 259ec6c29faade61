"""Verdicts, from estimated errors."""

from html import escape

import numpy as np
import pytest

from vcmc.diagnostics.selfcheck import Errors, SelfCheck
from vcmc.diagnostics.verdict import Diagnosis, Evidence, judge, judge_again


def check(errors, **others):
    numbers = {"not_linear": 0.0, "falls_off": True, "num_not_finite": 0} | others
    return SelfCheck(errors, pareto_k=0.1, ksd=0.0, ksd_p_value=0.5, num_points=400, **numbers)


def verdict(
    mean=0.0,
    mean_se=0.01,
    sd=0.0,
    sd_se=0.01,
    q95=0.0,
    q95_se=0.02,
    notes=(),
    ess=1000.0,
    evidence=None,
    **others,
):
    values = mean, mean_se, sd, sd_se, 0.0, 0.02, q95, q95_se
    errors = Errors(*(np.array([0.0, value]) for value in values))
    evidence = Evidence(ess, **(evidence or {}))
    return judge(check(errors, **others), {"beta": errors}, list(notes), evidence)


def verdict_without_errors(**evidence):
    """The verdict on draws of a posterior that is too far from Gaussian for its scores."""
    return judge(check(None, not_linear=0.5), {}, [], Evidence(1000.0, **evidence))


@pytest.mark.parametrize(
    ("settings", "level", "words"),
    [
        ({}, "good", "The result is good."),
        ({"mean": 0.09}, "good", "mean of beta[1] +0.090 ± 0.010 sd"),
        (
            {"mean": -0.3},
            "poor",
            "The mean of beta[1] is off by 0.30 ± 0.01 posterior sd (too low).",
        ),
        (
            {"mean": 0.3, "mean_se": 0.11},
            "doubtful",
            "The mean of beta[1] may be off: its estimated error is +0.300 ± 0.110 sd.",
        ),
        ({"mean_se": 0.3}, "doubtful", "may be off: its estimated error is +0.000 ± 0.300 sd"),
        ({"sd": 0.5}, "poor", "The sd of beta[1] is off by 50 ± 1 % (too large)."),
        (
            {"sd": 0.5, "ess": 5.0},
            "poor",
            "The sd of beta[1] is off",
        ),  # chance does not explain everything
        (
            {"q95": 0.3},
            "poor",
            "The 95 % quantile of beta[1] is off by 0.30 ± 0.02 posterior sd (too high).",
        ),
        (
            {"q95": 0.23},
            "doubtful",
            "The 95 % quantile of beta[1] may be off: its estimated error is +0.230 ± 0.020 sd.",
        ),
        ({"q95": 0.21}, "good", "95 % quantile of beta[1] +0.210"),
        (
            {"q95_se": 0.11},
            "doubtful",
            "The 95 % quantile of beta[1] may be off: its estimated error is +0.000 ± 0.110 sd.",
        ),
        ({"mean": 0.15, "ess": 500.0}, "good", "+0.150"),  # a Monte Carlo error that may happen
        ({"mean": 0.5, "ess": np.nan}, "poor", "is off by"),
        ({"falls_off": False}, "poor", "does not fall off around the combined draws"),
        ({"num_not_finite": 3}, "poor", "not finite at 3 of 400 combined draws"),
        ({"notes": ["shards 3 disagree."]}, "doubtful", "shards 3 disagree."),
        ({"evidence": {"faults": ["Another mode."]}}, "poor", "Another mode."),
        ({"evidence": {"doubts": ["A heavy tail."]}}, "doubtful", "A heavy tail."),
    ],
)
def test_verdicts(settings, level, words):
    found = verdict(**settings)
    assert found.verdict == level
    assert words in found.text
    assert f"<p>{escape(found.text)}</p>" in found._repr_html_()


def test_no_estimate_is_not_good():
    """Too few draws, or a log density that is not finite near them."""
    unknown = check(None, not_linear=np.nan, falls_off=True)
    found = judge(unknown, {}, [], Evidence(100.0))
    assert found.verdict == "doubtful"
    assert "cannot be estimated" in found.text


def test_errors_that_cannot_be_estimated_are_not_given():
    found = verdict_without_errors()
    assert found.verdict == "doubtful"
    assert "cannot be estimated: the posterior is far from Gaussian" in found.text
    assert "±" not in found.text


def test_exact_draws_are_good_though_scores_do_not_tell_their_errors():
    found = verdict_without_errors(exact="The draws are those of chains on all rows.")
    assert found.verdict == "good"
    assert "cannot be estimated" in found.text
    assert "chains on all rows" in found.text
    assert verdict_without_errors(exact="Chains.", doubts=["A tail."]).verdict == "doubtful"


def test_advice_is_given_where_it_helps():
    assert "vcmc.refine(tree, model, rows)" in verdict(mean=0.5).text
    assert "vcmc.refine" not in verdict(notes=["shards 3 disagree."]).text
    assert "vcmc.refine" not in verdict(num_not_finite=3).text


def test_larger_standard_errors_and_further_doubts_lower_a_verdict():
    def errors(mean, mean_se):
        zero = np.zeros(1)
        return {"a": Errors(zero + mean, zero + mean_se, *[zero] * 6)}

    good = Diagnosis("good", errors=errors(0.0, 0.01))
    same = judge_again(good, errors(0.0, 0.05), Evidence(5000.0))
    assert same.verdict == "good"
    assert float(same.errors["a"].mean_se[0]) == 0.05
    uncertain = judge_again(good, errors(0.0, 0.3), Evidence(5000.0))
    assert uncertain.verdict == "doubtful"
    assert "may be off" in uncertain.text
    wrong = judge_again(good, errors(0.5, 0.05), Evidence(5000.0, doubts=["A doubt."]))
    assert wrong.verdict == "poor"
    assert "A doubt." in wrong.reasons
    assert judge_again(good, errors(0.0, 0.01), Evidence(5000.0, ["A fault."])).verdict == "poor"
    poor = Diagnosis("poor", ["The mean of a is off."])
    assert judge_again(poor, {}, Evidence(5000.0, remarks=["A remark."])).verdict == "poor"
