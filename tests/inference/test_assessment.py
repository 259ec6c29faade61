"""The last stage: errors, verdict and warnings of posterior draws."""

import warnings
from pathlib import Path

import numpy as np
import numpyro
import numpyro.distributions as dist
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
        options = {"combiner": vcmc.combiners.Consensus(), "progress": False}
        vcmc.combine(strong, model=conjugate.model, rows=conjugate.rows, **options)
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
        vcmc.infer(conjugate.model, conjugate.rows, num_shards=2, shard_draws=100, sampler=sampler)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert caught.value.tree["posterior"].sizes["draw"] == 1250
    assert caught.value.tree["subposterior"].sizes["shard"] == 2
    assert "verdict" not in caught.value.tree.attrs


def test_an_error_of_the_refinement_keeps_the_combined_draws(conjugate, monkeypatch):
    def fail(*args, **options):
        raise ValueError("no proposals")

    monkeypatch.setattr("vcmc.inference.stages.refine_draws", fail)
    sampler = vcmc.samplers.NUTS(num_warmup=100)
    with pytest.raises(vcmc.AssessmentError, match="combined, but refining them failed") as caught:
        vcmc.infer(
            conjugate.model,
            conjugate.rows,
            num_shards=2,
            shard_draws=100,
            sampler=sampler,
            refine=True,
        )
    assert "posterior" in caught.value.tree.children


def test_warnings_are_the_verdict_where_it_is_not_good(conjugate, target):
    assessment = assess(exact_draws(conjugate, shift=1.0), target, ["a note."], 0)
    assert isinstance(assessment, Assessment)
    assert assessment.warnings == [assessment.diagnosis.text]
    assert "A note." in assessment.attributes["shard_warnings"]


def intercepts(county, x, y=None):
    """Random intercepts of 80 counties, not centred: a funnel, if counties hardly differ."""
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    slope = numpyro.sample("slope", dist.Normal(0, 10))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([80]).to_event(1))
    numpyro.sample("y", dist.Normal(mu + tau * z[county] + slope * x, 1.0), obs=y)


@pytest.mark.slow
def test_a_funnel_that_was_sampled_as_one_shard_is_good_and_has_no_false_numbers():
    """It was called poor: "mean of z[22] off by -1.473 ± 0.547 sd", where the truth was -0.007."""
    generator = np.random.default_rng(0)
    county, x = generator.integers(0, 80, 800), generator.normal(size=800)
    y = 1 + 0.3 * generator.normal(size=80)[county] - 0.5 * x + generator.normal(size=800)
    rows = {"county": county, "x": x, "y": y}
    with pytest.warns(UserWarning, match="hierarchical"):
        model = vcmc.from_numpyro(intercepts, rows)
    tree = vcmc.infer(model, rows, num_shards=1)
    assert tree.attrs["verdict"] == "good", tree.attrs["verdict_text"]
    if "cannot be estimated" in tree.attrs["verdict_text"]:
        assert "chains on all rows" in tree.attrs["verdict_text"]
        assert "mean_error" not in tree.children
    assert vcmc.diagnose(tree, model, rows).verdict == "good"


def counties(county, floor, log_radon=None):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    slope = numpyro.sample("slope", dist.Normal(0, 10))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    alpha = numpyro.sample("alpha", dist.Normal(mu, tau).expand([85]).to_event(1))
    numpyro.sample("y", dist.Normal(alpha[county] + slope * floor, sigma), obs=log_radon)


@pytest.mark.slow
def test_county_effects_as_global_parameters_are_not_called_good():
    path = Path(__file__).parents[3] / "shared" / "data" / "radon_mn.npz"
    if not path.exists():
        pytest.skip("the radon data are not beside this repository")
    data = np.load(path)
    rows = {name: data[name] for name in ("county", "floor", "log_radon")}
    with pytest.warns(UserWarning, match="hierarchical"):
        model = vcmc.from_numpyro(counties, rows)
    with pytest.warns(vcmc.DoubtfulWarning) as caught:
        tree = vcmc.infer(model, rows, num_shards=4)
    assert tree.attrs["verdict"] in ("doubtful", "poor")
    assert max(len(str(warning.message)) for warning in caught) < 3000  # not one sentence a county
