"""Searches side by side: each has its own results, and their points are evaluated together."""

import numpy as np
import pytest

from vcmc.samplers.lockstep import search_together


class Counter:
    """A density that records the number of points of each call."""

    def __init__(self):
        self.sizes = []

    def __call__(self, points):
        self.sizes.append(len(points))
        return points[:, 0] ** 2, 2 * points


def climb(density, length):
    """Evaluate `length` points, one after the other; return what the density says."""
    return [float(density(np.full((1, 1), length + step))[0][0]) for step in range(length)]


def test_searches_share_calls_until_they_end():
    density = Counter()
    results = search_together(density, climb, [1, 4, 2])
    assert results == [[1.0], [16.0, 25.0, 36.0, 49.0], [4.0, 9.0]]
    assert density.sizes == [3, 2, 1, 1]


def test_a_single_search_and_one_without_evaluations_end():
    assert search_together(Counter(), climb, [2]) == [[4.0, 9.0]]
    assert search_together(Counter(), climb, [0, 1]) == [[], [1.0]]


def test_an_error_of_the_density_reaches_the_caller():
    def broken(points):
        raise FloatingPointError("no density here")

    with pytest.raises(FloatingPointError, match="no density here"):
        search_together(broken, climb, [1, 2, 3])


def test_an_error_of_one_search_leaves_no_other_waiting():
    ended = []

    def search(density, length):
        if length == 0:
            raise ValueError("bad start")
        ended.append(climb(density, length))

    with pytest.raises(ValueError, match="bad start"):
        search_together(Counter(), search, [0, 3, 3])
