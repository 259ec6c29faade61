import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.models.frontends.checks import (
    check_prior,
    example_params,
    first_line,
    first_rows,
    neutral_rows,
    other_rows,
    row_axis,
    same_for_all_rows,
    sum_per_row,
    warn_of_omitted,
)

ROWS = {"y": np.arange(20.0)}
EXAMPLES = example_params({"mean": vcmc.Real()})


@pytest.mark.parametrize(
    ("few", "more", "axis"),
    [
        ((5,), (7,), 0),
        ((3, 5), (3, 7), 1),
        ((5, 5), (7, 7), None),  # twice
        ((5,), (5,), None),  # never
        ((5,), (7, 1), None),
        ((10,), (14,), None),  # two values a row
    ],
)
def test_the_row_axis_is_the_one_that_follows_the_rows(few, more, axis):
    assert row_axis(few, more) == axis


def test_sums_are_over_the_other_axes():
    values = jnp.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_allclose(sum_per_row(values, 1), values.sum(axis=(0, 2)))


def test_other_rows_differ_in_number_and_mean():
    first = first_rows(ROWS)["y"]
    for rows in other_rows(ROWS):
        assert len(rows["y"]) != len(first)
        assert rows["y"].mean() != first.mean()


def test_a_prior_that_uses_the_rows_is_refused():
    check_prior(lambda params, rows: -(params["mean"] ** 2), EXAMPLES, ROWS, "pass it")
    with pytest.raises(ValueError, match=r"the prior depends on the rows: .* and pass it\."):
        check_prior(
            lambda params, rows: -(params["mean"] ** 2) / rows["y"].mean(),
            EXAMPLES,
            ROWS,
            "pass it",
        )


def test_rows_that_are_constants_of_programs_are_not_the_users():
    def of_positive(params, rows):
        if not isinstance(rows["y"], jnp.ndarray) and (np.asarray(rows["y"]) <= 0).any():
            raise ValueError("must be positive")
        return -(params["mean"] ** 2)

    def of_these(params, rows):
        return of_positive(params, {"y": rows["y"] - 2})

    rows = {"y": np.arange(3.0, 23.0)}
    anything = neutral_rows(lambda params, rows: -(params["mean"] ** 2), EXAMPLES[0], rows)
    np.testing.assert_array_equal(anything["y"], np.zeros(5))
    np.testing.assert_array_equal(neutral_rows(of_positive, EXAMPLES[0], rows)["y"], np.ones(5))
    np.testing.assert_array_equal(neutral_rows(of_these, EXAMPLES[0], rows)["y"], rows["y"][:5])


def test_values_that_follow_the_rows_are_told_from_those_that_do_not():
    def values(params, rows):
        return {
            "square": params["mean"] ** 2,
            "total": params["mean"] * rows["y"].sum(),
            "shifted": params["mean"] + rows["y"],
        }

    assert same_for_all_rows(values, ["square", "total", "shifted"], EXAMPLES, ROWS) == ["square"]


def test_omitted_values_are_named():
    with pytest.warns(UserWarning, match="deterministic 'a', 'b' depend on the rows"):
        warn_of_omitted(["a", "b"])
    warn_of_omitted([])


def test_the_first_line_of_an_error_is_its_summary():
    assert first_line(ValueError("\none\ntwo")) == "one"
