"""Tests of the disagreement of batches: false alarms, planted changes, and its words."""

import numpy as np
import pytest

from vcmc.diagnostics.batch_drift import PooledBatches, batch_drift

BATCHES = [0] * 8 + [1] * 2 + [2] * 2 + [3]
NAMES = ("a", "b", "c", "d")
SDS = np.array([1.0, 0.1, 3.0, 0.5])


def gaussian_draws(generator: np.random.Generator, changes: np.ndarray) -> np.ndarray:
    """Return draws of shards whose posteriors are Gaussian, with unequal numbers of rows."""
    sizes = generator.uniform(0.5, 2.0, len(BATCHES))
    sds = SDS / np.sqrt(sizes)[:, None]
    means = generator.normal(size=sds.shape) * sds + changes[np.array(BATCHES)] * SDS
    return means[:, None, None] + sds[:, None, None] * generator.normal(size=(len(sds), 1, 100, 4))


def log_gamma_draws(generator: np.random.Generator) -> np.ndarray:
    """Return draws of log rates of which a shard has five or twenty events: skewed posteriors."""
    expected = np.where(np.array(BATCHES) > 0, 20.0, 5.0)[:, None] * np.ones(4)
    shapes = generator.poisson(expected) + 1 / len(BATCHES)
    draws = generator.gamma(shapes[:, None, None], size=(len(shapes), 1, 100, 4))
    return np.log(draws / expected[:, None, None])


def test_pooled_batches_weigh_shards_by_their_precision() -> None:
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(3, 2, 2000, 1)) * np.array([1.0, 2.0, 1.0])[:, None, None, None]
    draws += np.array([0.0, 5.0, 2.0])[:, None, None, None]
    pooled = PooledBatches.of(draws, [4, 4, 7])
    assert pooled.numbers.tolist() == [4, 7]
    np.testing.assert_allclose(pooled.means[:, 0], [1.0, 2.0], atol=0.1)  # (0 + 5 / 4) / (1 + 1/4)
    # shards 0 and 1 are √5 sds apart, so that variances are larger by the square of that
    np.testing.assert_allclose(pooled.variances[:, 0], [0.8 * 5.0, 5.0], rtol=0.1)


def test_stationary_batches_raise_few_alarms() -> None:
    generator = np.random.default_rng(1)
    none = np.zeros((4, 4))
    alarms = sum(
        bool(batch_drift(gaussian_draws(generator, none), BATCHES, NAMES)) for _ in range(2000)
    )
    assert alarms <= 8  # at a rate of 0.1 %, more than 8 have a probability of 2e-4


def test_skewed_posteriors_raise_no_more_than_one_alarm_in_a_hundred() -> None:
    generator = np.random.default_rng(2)
    alarms = sum(bool(batch_drift(log_gamma_draws(generator), BATCHES, NAMES)) for _ in range(1000))
    assert alarms <= 10


def test_a_planted_change_is_found_and_named() -> None:
    generator = np.random.default_rng(3)
    changes = np.zeros((4, 4))
    changes[2, 1] = 8.0  # sds of a shard of mean size, so that its two shards are ten errors off
    for _ in range(20):
        text = batch_drift(gaussian_draws(generator, changes), BATCHES, NAMES, {2: "march"})
        assert text.startswith("The batches of rows disagree on b (")
        assert "march by +" in text
        assert "a (" not in text


def test_two_batches_are_named_together() -> None:
    generator = np.random.default_rng(4)
    draws = generator.normal(size=(2, 1, 500, 2))
    draws[1, ..., 0] += 20
    text = batch_drift(draws, [0, 1], ("a", "b"))
    assert "a (batch 0 and batch 1 are 14" in text or "a (batch 0 and batch 1 are 13" in text


@pytest.mark.parametrize("batches", [[0, 0, 0], [5, 5, 5]])
def test_a_single_batch_cannot_disagree(batches: list[int]) -> None:
    draws = np.random.default_rng(5).normal(size=(3, 1, 50, 1))
    assert batch_drift(draws, batches, ("a",)) == ""


def test_many_batches_are_counted_after_the_distances() -> None:
    generator = np.random.default_rng(7)
    draws = (
        generator.normal(size=(12, 1, 200, 1)) + np.arange(6).repeat(2)[:, None, None, None] * 30
    )
    text = batch_drift(draws, np.arange(6).repeat(2), ("a",))
    assert " standard errors, and 3 more batches)" in text


def test_many_coordinates_are_counted() -> None:
    generator = np.random.default_rng(6)
    draws = generator.normal(size=(6, 1, 200, 5))
    draws[3:] += 30
    text = batch_drift(draws, [0, 0, 0, 1, 1, 1], tuple("abcde"))
    assert "and 2 more" in text
