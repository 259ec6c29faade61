"""Whether a surrogate is trusted where new rows lead: moves, weighted draws, disagreement."""

import numpy as np
import pytest

from vcmc.diagnostics.surrogate_trust import (
    Update,
    WeightedDraws,
    contradiction,
    disagreement,
    extrapolation,
    weighted_draws,
)

NUM_DRAWS = 5000
NAMES = ("a", "b", "c")


def some_update(move, generator, dim=3, sd=0.7):
    """Return an update of a standard normal, in which the first coordinates move."""
    old = generator.normal(size=(NUM_DRAWS, dim))
    new = sd * generator.normal(size=(NUM_DRAWS, dim)) + np.pad(move, (0, dim - len(move)))
    names = [f"u[{number}]" for number in range(dim)]
    return Update(old, new, old, new, float(NUM_DRAWS), names)


@pytest.mark.parametrize(("move", "is_far"), [(1.0, False), (2.5, False), (3.6, True), (5.0, True)])
def test_a_mean_beyond_the_old_draws_is_a_guess(move, is_far):
    text = extrapolation(some_update([move], np.random.default_rng(0)))
    assert bool(text) == is_far
    if is_far:
        assert f"u[0] by {move:.1f} sd" in text
        assert "rows=old_rows" in text


def test_a_move_along_no_single_coordinate_is_seen():
    generator = np.random.default_rng(1)
    assert "3 coordinates" in extrapolation(some_update([2.4, 2.4, 2.4], generator))
    # twenty coordinates that move by 0.7 sd, as rows of the same number do
    assert not extrapolation(some_update([0.7] * 20, generator, dim=20))


def test_constants_cannot_move():
    update = some_update([0.5], np.random.default_rng(2))
    update.old[:, 2] = update.new[:, 2] = 1.0
    assert not extrapolation(update)


def test_the_draws_that_count_are_effective_ones():
    update = some_update([2.6], np.random.default_rng(3))
    assert not extrapolation(update)
    assert extrapolation(update._replace(num_effective=200.0))


def likelihood(draws):
    return -0.5 * (draws[:, 0] - 0.5) ** 2


def test_weighted_old_draws_agree_with_the_right_result():
    generator = np.random.default_rng(4)
    alarms = 0
    for _ in range(50):
        old = generator.normal(size=(2000, 3))
        new = generator.normal(size=(NUM_DRAWS, 3))
        new[:, 0] = 0.25 + new[:, 0] / 2**0.5
        weighted = weighted_draws(likelihood(old), old, new, 2000.0)
        assert weighted.pareto_k < 0.5
        alarms += bool(contradiction(weighted, NAMES))
    assert alarms <= 1  # of 600 comparisons at four standard errors


def test_weighted_old_draws_contradict_a_wrong_result():
    generator = np.random.default_rng(5)
    old = generator.normal(size=(2000, 3))
    new = generator.normal(size=(NUM_DRAWS, 3))
    new[:, 0] = 0.6 + new[:, 0] / 2**0.5  # by 0.35, half an sd
    weighted = weighted_draws(likelihood(old), old, new, 2000.0)
    text = contradiction(weighted, NAMES)
    assert "of a is off by +0." in text
    assert "rows=old_rows" in text


def test_correlated_old_draws_count_for_fewer():
    generator = np.random.default_rng(10)
    old, new = generator.normal(size=(2000, 1)), generator.normal(size=(NUM_DRAWS, 1))
    all_of_them, fewer = (
        weighted_draws(likelihood(old), old, new, count) for count in (5000.0, 500.0)
    )
    np.testing.assert_allclose(fewer.effective, all_of_them.effective / 4)
    np.testing.assert_allclose(fewer.standard_errors, 2 * all_of_them.standard_errors)


def test_uneven_weights_say_nothing():
    generator = np.random.default_rng(6)
    old = generator.normal(size=(2000, 1))
    weighted = weighted_draws(-50 * (old[:, 0] - 4) ** 2, old, old, 2000.0)
    assert weighted.differences is None
    assert contradiction(weighted, NAMES) == ""
    nowhere = weighted_draws(np.full(2000, -np.inf), old, old, 2000.0)
    assert nowhere == WeightedDraws(0.0, np.inf)


def test_rows_of_the_same_parameters_agree():
    generator = np.random.default_rng(7)
    alarms = 0
    for _ in range(300):
        # a variance of one half remains: the mean moves by a normal variable of variance one half
        move = generator.normal(size=3) / 2**0.5
        alarms += bool(disagreement(some_update(move, generator, sd=2**-0.5)))
    assert alarms <= 2  # the rate is one in ten thousand; the sample adds little to it


def test_rows_of_other_parameters_disagree():
    text = disagreement(some_update([4.0], np.random.default_rng(8)))
    assert "most of all on u[0], 5.6 standard errors" in text or "on u[0], 5.5" in text
    # what the rows say nothing about cannot disagree
    assert not disagreement(some_update([0.0], np.random.default_rng(9), sd=1.0))
