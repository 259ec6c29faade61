"""A posterior is assessed as one hill unless it has modes."""

import numpy as np

from vcmc.diagnostics.mode_regions import ModeDraws, ModeRegions
from vcmc.diagnostics.sampling_error import DrawSource
from vcmc.inference.posterior import Posterior, assess_posterior


def posterior(mixture, **fields):
    return Posterior(mixture.draws(2000)[None], {}, [], {}, **fields)


def test_draws_of_two_modes_are_not_one_hill(two_normals):
    assessment = assess_posterior(posterior(two_normals), two_normals.target(2), seed=0)
    assert assessment.diagnosis.verdict != "good"
    assert assessment.mode_verdicts == ()


def test_modes_are_assessed_one_by_one(two_normals):
    weights = two_normals.weights
    precisions = np.linalg.inv(two_normals.covariances)
    regions = ModeRegions(two_normals.means, precisions, np.log(weights))
    labels = regions.log_shares(two_normals.draws(2000)).argmax(axis=1)
    sources = tuple(DrawSource(float(count)) for count in np.bincount(labels))
    errors = np.full(2, 0.005)
    modes = ModeDraws(labels, regions, weights, errors, np.zeros(2), sources, ("", ""))
    found = assess_posterior(posterior(two_normals, modes=modes), two_normals.target(2), seed=0)
    assert found.diagnosis.verdict == "good"
    assert found.mode_verdicts == ("good", "good")
