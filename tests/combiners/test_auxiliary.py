from dataclasses import replace

import numpy as np
import pytest

from vcmc.combiners.auxiliary import check_partition, refine
from vcmc.combiners.gaussians import Gaussians


def test_gaussian_shards_are_refined_to_their_product(gaussian_shards, errors):
    """From draws that are off by one sd."""
    shards = gaussian_shards(3, 2)
    mean, covariance = shards.product()
    generator = np.random.default_rng(0)
    sds = np.sqrt(np.diag(covariance))
    start = generator.multivariate_normal(mean + sds, covariance, size=2000)
    known = shards.subposteriors(2000)
    draws = refine(start, known, Gaussians.of(known), 30, 0.5, generator)
    of_mean, of_sds = errors(draws, mean, covariance)
    assert of_mean < 4 / np.sqrt(2000) + 0.02
    assert of_sds < 4 / np.sqrt(2 * 2000) + 0.02


def test_another_partition_is_refused(gaussian_shards):
    shards = gaussian_shards(3, 2).subposteriors(10)
    check_partition(shards)
    with pytest.raises(ValueError, match="draws of 2 shards and rows of 3"):
        check_partition(replace(shards, draws=shards.draws[:2]))
