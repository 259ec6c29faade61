"""Comparisons of a law: what passes, and what the message says."""

import numpy as np
import pytest

from vcmc.testing.law import Law, LawError, name_of

LAW = Law("Part", "numbers agree", "look again.")


def test_a_message_names_the_worst_element():
    expected = np.zeros((2, 2))
    actual = np.array([[0.0, 0.1], [-0.5, 0.2]])
    message = r"^Part breaks a law: numbers agree\. Expected 0 at \(1, 0\), within 0.15; "
    message += r"got -0.5; 2 of 4 numbers are off\. Try this: look again\.$"
    with pytest.raises(LawError, match=message):
        LAW.close(actual, expected, atol=0.15)
    LAW.close(actual, expected, atol=0.5)


def test_tolerances_are_relative_and_absolute():
    LAW.close(10.9, 10.0, rtol=0.1)
    with pytest.raises(LawError, match=r"within 1; got 11\.1"):
        LAW.close(11.1, 10.0, rtol=0.1)
    with pytest.raises(LawError, match="to the last bit"):
        LAW.close(np.nextafter(1.0, 2.0), 1.0)


def test_infinities_may_be_equal_and_nan_never_is():
    LAW.close([np.inf, -np.inf], [np.inf, -np.inf])
    with pytest.raises(LawError):
        LAW.close([np.nan], [np.nan], atol=1.0)


def test_shapes_and_finite_numbers_are_required():
    with pytest.raises(LawError, match=r"Expected draws of shape \(3,\); got shape \(2,\)"):
        LAW.has_shape(np.zeros(2), (3,), "draws")
    with pytest.raises(LawError, match=r"Expected draws that are finite; got 1 of 2 that are not"):
        LAW.has_shape([0.0, np.nan], (2,), "draws")
    with pytest.raises(LawError, match=r"Expected an array of shape \(1,\); got shape \(2,\)"):
        LAW.close(np.zeros(2), np.zeros(1))


def test_parts_are_named_by_class_or_function():
    assert name_of(LAW) == "Law"
    assert name_of(name_of) == "name_of"
