"""Draws that lie in a constrained space are recognised."""

import numpy as np
import pytest

from vcmc.results.draw_supports import DrawSupports


@pytest.mark.parametrize(
    ("parts", "shape", "expected"),
    [
        ([[1.0, 2.0], [0.5, 3.0]], (), "Positive()"),
        ([[0.2, 0.3], [0.5, 0.9]], (), "Interval(0, 1)"),
        ([[0.2, 0.3], [0.5, 1.5]], (), "Positive()"),  # the narrowest that holds all of them
        ([[[0.2, 0.8]], [[1.0, 0.0]]], (2,), "Simplex(2)"),
        ([[[0.2, 0.8]], [[0.5, 0.6]]], (2,), "Interval(0, 1, 2)"),
        ([[1.0, 2.0], [0.0, 3.0]], (), None),
        ([[1.0, 2.0], [-1.0, 3.0]], (), None),
        ([[[1.0]], [[1.0]]], (1,), "Positive(1)"),
    ],
)
def test_the_narrowest_space_of_all_draws_is_found(parts, shape, expected):
    supports = DrawSupports()
    for part in parts:
        supports.add("a", np.array(part), shape)
    warnings = supports.warning([])
    assert len(warnings) == (expected is not None)
    if expected:
        assert f"space={{'a': vcmc.{expected}}}" in warnings[0]
    assert supports.warning(["a"]) == []


def test_many_parameters_are_one_warning():
    supports = DrawSupports()
    for index in range(20):
        supports.add(f"a{index}", np.ones(3), ())
    (warning,) = supports.warning(["a1"])
    assert "a0, a2, a3, a4, a5, …" in warning
    assert len(warning) < 600
