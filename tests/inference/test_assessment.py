"""The last stage: errors, verdict and warnings of posterior draws."""

import warnings

import numpy as np
import pytest

import vcmc
from vcmc.errors import warn_doubtful
from vcmc.inference.assessment import Assessment, assess, result_tree, stored_diagnosis
from vcmc.inference.preparation import result_target


@pytest.fixture(scope="module")
def target(conjugate):
    return result_target(conjugate.model, conjugate.rows, 2, None, 0)


def exact_draws(conjugate, shift=0.0):
    mean, covariance = conjugate.posterior()
    mean = mean + shift * np.sqrt(np.diag(covariance))
    return np.random.default_rng(0).multivariate_normal(mean, covariance, size=1000)[None]


def test_exact_draws_are_good_and_shifted_ones_are_not(conjugate, target):
    assert assess(exact_draws(conjugate), target, [], 0).diagnosis.verdict == "good"
    shifted = assess(exact_draws(conjugate, shift=1.0), target, [], 0).diagnosis
    assert shifted.verdict == "poor"
    np.testing.assert_allclose(shifted.errors["beta"].mean, 1.0, atol=4 / np.sqrt(1000))


def test_without_a_target_the_verdict_is_unknown_and_notes_are_warnings():
    assessment = assess(np.zeros((1, 10, 2)), None, ["a note."], 0)
    assert assessment.diagnosis.verdict == "unknown"
    assert assessment.warnings == ["A note."]  # a sentence
    assert assessment.groups == {}


def test_refined_draws_are_not_advised_to_be_refined(conjugate, target):
    draws = exact_draws(conjugate, shift=1.0)
    assert assess(draws, target, [], 0).diagnosis.can_be_refined
    assert not assess(draws, target, [], 0, is_refined=True).diagnosis.can_be_refined


def test_a_tree_holds_its_assessment(conjugate, target):
    assessment = assess(exact_draws(conjugate), target, [], 0)
    tree = result_tree({}, {"num_shards": 2}, assessment)
    stored = stored_diagnosis(tree)
    assert stored.verdict == assessment.diagnosis.verdict
    np.testing.assert_array_equal(
        stored.errors["beta"].mean_se, assessment.diagnosis.errors["beta"].mean_se
    )


def test_a_warning_points_at_the_line_of_the_user(conjugate):
    strong = {"beta": np.random.default_rng(0).normal(5.0, 0.1, size=(3, 500, 3))}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        vcmc.combine(strong, model=conjugate.model, rows=conjugate.rows, progress=False)
        warn_doubtful(["from here"])
    doubtful = [w for w in caught if issubclass(w.category, vcmc.DoubtfulWarning)]
    assert len(doubtful) >= 2
    assert {w.filename for w in doubtful} == {__file__}


def test_a_diagnosis_that_fails_numerically_is_a_verdict(conjugate, target, monkeypatch):
    def fail(*args, **options):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr("vcmc.inference.assessment.self_check", fail)
    diagnosis = assess(exact_draws(conjugate), target, ["a note."], 0).diagnosis
    assert diagnosis.verdict == "doubtful"
    assert "the diagnosis failed (LinAlgError: singular)" in diagnosis.text
    assert "A note." in diagnosis.text


def test_an_error_of_the_diagnosis_is_not_called_one_of_combining(conjugate, monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("a worker is gone")

    monkeypatch.setattr("vcmc.inference.assessment.self_check", fail)
    sampler = vcmc.samplers.NUTS(num_warmup=100)
    with pytest.raises(
        vcmc.AssessmentError,
        match=r"combined, but diagnosing them failed.*RuntimeError: a worker is gone",
    ) as caught:
        vcmc.infer(conjugate.model, conjugate.rows, num_shards=2, num_draws=100, sampler=sampler)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.tree["posterior"].sizes["draw"] == 100
    assert caught.value.tree["subposterior"].sizes["shard"] == 2
    assert "verdict" not in caught.value.tree.attrs


def test_an_error_of_the_refinement_keeps_the_combined_draws(conjugate, monkeypatch):
    def fail(*args, **options):
        raise ValueError("no proposals")

    monkeypatch.setattr("vcmc.inference.pipeline.refine_draws", fail)
    sampler = vcmc.samplers.NUTS(num_warmup=100)
    with pytest.raises(vcmc.AssessmentError, match="combined, but refining them failed") as caught:
        vcmc.infer(
            conjugate.model,
            conjugate.rows,
            num_shards=2,
            num_draws=100,
            sampler=sampler,
            refine=True,
        )
    assert "posterior" in caught.value.tree.children


def test_warnings_are_the_verdict_where_it_is_not_good(conjugate, target):
    assessment = assess(exact_draws(conjugate, shift=1.0), target, ["a note."], 0)
    assert isinstance(assessment, Assessment)
    assert assessment.warnings == [assessment.diagnosis.text]
    assert "A note." in assessment.attributes["shard_warnings"]
