"""Errors of arguments say what was expected, what was got, and what to try."""

import pytest

import vcmc
from vcmc.inference.arguments import (
    check_combiner,
    check_instance,
    check_integer,
    check_model_with_rows,
    resolve_prior,
)


def test_the_error_of_a_wrong_type_shows_an_example():
    with pytest.raises(
        TypeError,
        match=r"combiner must be a Combiner instance, e\.g\. "
        r"vcmc\.combiners\.Consensus\(\); got 'x'\.",
    ):
        check_combiner("x")
    with pytest.raises(TypeError, match=r"executor must be an Executor instance, e\.g\. Local\(\)"):
        check_instance("executor", 3, vcmc.executors.AbstractExecutor, "Local()")


@pytest.mark.parametrize("value", [1, 2.0, "3", None])
def test_integers_below_the_minimum_are_refused(value):
    with pytest.raises(ValueError, match=r"thin must be an integer of at least 2; got"):
        check_integer("thin", value, 2)
    check_integer("thin", 2, 2)


@pytest.mark.parametrize(
    ("model", "rows", "got"),
    [("model", None, "a model without rows"), (None, "rows", "rows without a model")],
)
def test_a_model_and_its_rows_belong_together(model, rows, got):
    with pytest.raises(ValueError, match=f"combine takes a model and its rows together.*{got}"):
        check_model_with_rows("combine", model, rows)
    check_model_with_rows("combine", None, None)


def test_the_prior_is_what_the_combiner_needs_unless_the_user_says():
    assert resolve_prior(vcmc.combiners.Swiss(), None) == "powered"
    assert resolve_prior(vcmc.combiners.Consensus(), None) == "subposterior"
    assert resolve_prior(vcmc.combiners.Variational(), "powered") == "powered"  # it has scores
