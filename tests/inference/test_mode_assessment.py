"""Draws of several modes: those that are wrong in one of them are not good."""

import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.mode_regions import ModeDraws, ModeRegions
from vcmc.diagnostics.sampling_error import DrawSource
from vcmc.inference.mode_assessment import assess_modes
from vcmc.results.tree import add_groups


@pytest.fixture(scope="module")
def tree(two_normals):
    return vcmc.infer(two_normals.model, two_normals.rows, num_shards=4, progress=False)


def test_the_errors_of_a_mixture_are_known(tree, two_normals):
    mean, sd = two_normals.moments
    theta = tree["posterior"]["theta"].to_numpy().reshape(-1, 2)
    errors = tree["mean_error_se"]["theta"].to_numpy()
    assert tree.attrs["verdict"] == "good"
    assert (np.abs(theta.mean(axis=0) - mean) / sd < 4 * errors).all()
    assert (errors < 0.03).all()


def test_diagnose_agrees_with_the_run(tree, two_normals):
    stored, again = vcmc.diagnose(tree), vcmc.diagnose(tree, two_normals.model, two_normals.rows)
    assert stored.verdict == again.verdict == "good"
    assert stored.modes == again.modes
    np.testing.assert_allclose(stored.errors["theta"].mean, again.errors["theta"].mean, atol=0.01)


@pytest.mark.parametrize("change", ["moved", "too narrow"])
def test_draws_that_are_wrong_in_one_mode_are_poor(tree, two_normals, change):
    theta, labels = (
        tree[group][name].to_numpy().copy()
        for group, name in (("posterior", "theta"), ("draw_modes", "mode"))
    )
    part = theta[labels == 1]  # of weight 0.3
    centre = part.mean(axis=0)
    theta[labels == 1] = part + 0.5 if change == "moved" else centre + 0.7 * (part - centre)
    wrong = add_groups(tree, {"posterior": {"theta": theta}}, {})
    diagnosis = vcmc.diagnose(wrong, two_normals.model, two_normals.rows)
    assert diagnosis.verdict == "poor"
    assert "Mode 1: The" in diagnosis.text


def test_summary_and_report_take_several_modes(tree, tmp_path):
    summary = vcmc.summary(tree)
    assert "theta[1]" in str(summary)
    for mode in (0, 1):
        assert f"mode {mode}: weight" in str(summary)
        assert f"mode {mode}: weight" in summary._repr_html_()
    text = vcmc.report(tree, tmp_path / "report.html").read_text()
    assert f"{tree['mode_weights']['weight'].to_numpy()[0]:.3f} ± " in text


@pytest.mark.parametrize("by_visits", [False, True])
def test_a_small_mode_far_away_without_a_draw_is_not_called_good(by_visits, normal_mixture):
    """It holds 10⁻⁴ of the mass, 200 sds away. The share of visits of chains is zero."""
    means = [[0.0], [6.0], [200.0]]
    mixture = normal_mixture([0.49, 0.5099, 1e-4], means, [np.eye(1)] * 3)
    draws = mixture.draws(2000)
    draws = draws[draws[:, 0] < 100]
    labels = (draws[:, 0] > 3).astype(int)
    sources = tuple(DrawSource(float(count)) for count in (*np.bincount(labels), 1))
    regions = ModeRegions(mixture.means, np.ones((3, 1, 1)), np.log(mixture.weights))
    zeros, no_text = np.zeros(3), ("",) * 3
    weights = np.append(np.bincount(labels) / len(labels), 0) if by_visits else mixture.weights
    modes = ModeDraws(labels, regions, weights, zeros, zeros, sources, no_text)
    assessment = assess_modes(draws[None], modes, mixture.target(2), [], seed=0)
    assert assessment.diagnosis.verdict == "doubtful"
    sd = mixture.moments[1][0] / draws.std()
    assert f"larger than that of the draws by a factor of {sd:.2g}" in assessment.diagnosis.text
