"""What a search has found: shares, which modes matter, and sentences."""

import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.mode_shape import Mode
from vcmc.diagnostics.modes import ModeSearch, location
from vcmc.space import Product


def mode(point, mass):
    return Mode(np.array([point]), np.eye(1), np.log(mass))


def test_shares_are_those_of_the_masses():
    search = ModeSearch((mode(1.0, 6.0), mode(5.0, 2.0)), own=1)
    np.testing.assert_allclose(search.shares, [0.75, 0.25])
    assert search.other.share == pytest.approx(0.75)
    assert search.other.mode.point == [1.0]


def test_a_mode_without_mass_does_not_matter():
    search = ModeSearch((mode(1.0, 1.0), mode(5.0, 0.005)))
    assert not search.is_several
    assert search.other is None


def test_a_mode_whose_mass_may_matter_is_combined_and_is_no_fault_of_draws_without_it():
    """Its Gaussian's share is rough: a mode of weight 0.01 is combined if its share is 0.0099."""
    search = ModeSearch((mode(1.0, 1.0), mode(5.0, 0.0099)))
    assert (search.is_several, search.other) == (True, None)


def test_draws_in_a_mode_without_mass_have_another_that_matters():
    assert ModeSearch((mode(1.0, 1.0), mode(5.0, 0.005)), own=1).is_several


def test_one_hill_is_not_several():
    assert not ModeSearch().is_several
    assert ModeSearch().notes == []


def test_a_search_that_was_ended_says_so():
    (note,) = ModeSearch(is_complete=False).notes
    assert "may have more modes" in note


def test_locations_are_in_the_parameters_units():
    space = Product({"scale": vcmc.Positive()})
    assert location(np.array([0.0]), space) == "scale = 1.0"


def test_a_small_mode_that_is_far_away_is_noted():
    """It adds nothing to quantiles, and much to the variance."""
    (note,) = ModeSearch((mode(0.0, 1.0),), left_out=(mode(100.0, 1e-4),)).notes
    assert "larger than that of the draws by a factor of 1.4." in note
    assert ModeSearch((mode(0.0, 1.0), mode(100.0, 1e-4))).notes == [note]
    assert ModeSearch((mode(0.0, 1.0),), left_out=(mode(10.0, 1e-4),)).notes == []


def test_a_small_mode_is_as_far_as_the_others_are_wide():
    small = mode(100.0, 1e-4)
    alone = ModeSearch((mode(0.0, 1.0),), left_out=(small,))
    among = ModeSearch((mode(0.0, 1.0), mode(150.0, 1.0)), left_out=(small,))
    assert (len(alone.notes), len(among.notes)) == (1, 0)


def test_modes_that_are_combined_are_not_noted():
    assert ModeSearch((mode(0.0, 1.0), mode(100.0, 0.02))).notes == []


@pytest.mark.parametrize("is_left_out", [False, True])
def test_draws_near_a_mode_without_mass_are_told_from_those_of_the_posterior(is_left_out):
    large, small = mode(0.0, 1.0), mode(8.0, 1e-3)
    search = ModeSearch(
        (large,) if is_left_out else (large, small), left_out=(small,) * is_left_out
    )
    noise = np.random.default_rng(0).normal(size=(1000, 1))
    found = search.around(8.0 + noise)
    assert (found.own, found.is_several) == (1, True)
    assert search.around(noise) is search
    half = np.where(np.arange(1000)[:, None] % 2, 8.0, 0.0) + noise
    assert search.around(half).is_several


def test_draws_of_one_hill_are_around_it():
    search = ModeSearch()
    assert search.around(np.zeros((5, 1))) is search
