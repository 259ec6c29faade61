from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.combiners import AbstractCombiner, Combined, Consensus, Subposteriors
from vcmc.combiners.importance import ImportanceResample
from vcmc.combiners.swiss import Swiss
from vcmc.samplers.proposals import systematic_resample
from vcmc.target import Target


class Off(AbstractCombiner):
    """Consensus, off by some sds."""

    sds: float

    def combine(self, shards: Subposteriors) -> Combined:
        draws = Consensus()(shards).draws
        return Combined(draws + self.sds * jnp.std(draws, axis=0), notes=["a note of the start"])


@pytest.fixture(scope="module")
def shards(gaussian_shards):
    return gaussian_shards(4, 2)


@pytest.mark.parametrize(("sds", "share"), [(0.0, 0.8), (1.0, 0.1)])
def test_a_start_that_is_off_is_put_right(sds, share, shards):
    num_draws = 5000
    mean, covariance = shards.product()
    combined = ImportanceResample(Off(sds))(shards.subposteriors(num_draws))
    merged = np.asarray(combined.draws)
    assert merged.shape == (num_draws, 2)
    expected = np.sqrt(np.diag(covariance))
    num_effective = 1 / (
        1 / num_draws + 1 / (2 * num_draws * share)
    )  # points' errors, and resampling's
    assert (np.abs(merged.mean(axis=0) - mean) < 4 * expected / np.sqrt(num_effective)).all()
    relative = (np.cov(merged.T) - covariance) / np.outer(expected, expected)
    assert np.abs(relative).max() < 4 * np.sqrt(2 / num_effective)
    assert not combined.notes


def test_a_start_that_is_far_off_is_said_to_be(shards):
    combined = ImportanceResample(Off(8.0))(shards.subposteriors(1000))
    first, second = combined.notes
    assert first == "a note of the start"
    assert "cannot be trusted: their Pareto k is" in second
    assert "2000 points are worth" in second


class Nowhere(Target):
    """A target that is finite nowhere."""

    def __init__(self) -> None:
        pass

    def __call__(self, points, only=None):
        return jnp.full(len(points), jnp.nan), jnp.zeros_like(points)


def test_draws_are_left_alone_where_the_target_is_finite_nowhere(shards):
    given = replace(shards.subposteriors(200), target=Nowhere())
    combined = ImportanceResample()(given)
    np.testing.assert_array_equal(combined.draws, Consensus()(given).draws)
    assert "not finite at any of 400 points near the draws of Consensus" in combined.notes[0]


def test_the_number_of_proposals_can_be_chosen(shards):
    merged = ImportanceResample(num_proposals=700)(shards.subposteriors(300)).draws
    assert merged.shape == (300, 2)
    few = ImportanceResample(num_proposals=50)(shards.subposteriors(300)).draws
    assert len(np.unique(few, axis=0)) <= 50


def test_it_needs_what_its_start_needs():
    assert ImportanceResample.needs == ImportanceResample().needs
    assert ImportanceResample().needs.target
    assert ImportanceResample().needs.streams
    assert ImportanceResample(Swiss()).needs.prior == "powered"


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"num_proposals": 0}, ValueError, "num_proposals must be a positive integer; got 0"),
    ],
)
def test_bad_settings_are_refused(settings, kind, message):
    with pytest.raises(kind, match=message):
        ImportanceResample(**settings)


def test_no_rows_no_weights(shards):
    with pytest.raises(ValueError, match="ImportanceResample needs the full-data log density"):
        ImportanceResample()(replace(shards.subposteriors(100), target=None))


def test_unequal_counts_one_shard_at_a_time(shards, lazy):
    draws = [
        draws[:count]
        for draws, count in zip(np.asarray(shards.draws(400)), (400, 100, 250, 399), strict=True)
    ]
    loaded = lazy(draws)
    merged = ImportanceResample()(replace(shards.subposteriors(10), draws=loaded)).draws
    assert merged.shape == (400, 2)
    assert loaded.most <= 2  # the next is loaded before the last is let go


def test_many_shards_of_few_draws(gaussian_shards):
    many = gaussian_shards(1000, 2)
    mean, covariance = many.product()
    merged = np.asarray(ImportanceResample(num_proposals=1000)(many.subposteriors(40)).draws)
    assert (
        np.abs(merged.mean(axis=0) - mean) < 4 * np.sqrt(np.diag(covariance)) / np.sqrt(40 / 2)
    ).all()


def test_resampling_is_systematic():
    weights = np.array([0.5, 0.25, 0.0, 0.25])
    chosen = systematic_resample(weights, 8, np.random.default_rng(0))
    assert np.bincount(chosen, minlength=4).tolist() == [4, 2, 0, 2]
