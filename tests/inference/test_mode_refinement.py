"""Chains that jump between modes, against mixtures of normals."""

import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.mode_regions import ModeRegions
from vcmc.inference.ensemble import Goal
from vcmc.inference.mode_refinement import jumping_chains, visited_modes, visits


def test_chains_mix_between_modes(two_normals):
    regions = ModeRegions(two_normals.means, np.linalg.inv(two_normals.covariances), np.zeros(2))
    run = jumping_chains(regions, two_normals.target(3), Goal(), 0, lambda: None)
    assert run.has_converged
    modes = visited_modes(run.draws, regions, seed=0)
    assert (modes.standard_errors < 0.04).all()
    assert (np.abs(modes.weights - two_normals.weights) < 4 * modes.standard_errors).all()
    assert "mode 1 by 32 of 32 chains" in visits(run.draws, modes)


def test_refine_makes_up_for_a_mode_that_draws_miss(two_normals):
    noise = np.random.default_rng(0).normal(size=(3, 300, 2))
    draws = {"theta": np.sqrt(3) * noise + two_normals.means[0]}
    options = {"model": two_normals.model, "rows": two_normals.rows, "progress": False}
    with pytest.warns(vcmc.DoubtfulWarning, match="another mode"):
        one = vcmc.combine(draws, combiner=vcmc.combiners.Variational(), **options)
    tree = vcmc.refine(one, two_normals.model, two_normals.rows, progress=False)
    assert tree.attrs["verdict"] == "good"
    assert "have visited mode 0" in tree.attrs["refined_modes"]
    assert len(tree["mode_weights"]["weight"]) == 2
    mean, sd = two_normals.moments
    theta = tree["posterior"]["theta"].to_numpy().reshape(-1, 2)
    bound = 4 / np.sqrt(tree.attrs["refined_ess"])
    assert (np.abs(theta.mean(axis=0) - mean) < bound * sd).all()
