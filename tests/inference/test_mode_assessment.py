"""Draws of several modes: those that are wrong in one of them are not good."""

import numpy as np
import pytest

import vcmc
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
