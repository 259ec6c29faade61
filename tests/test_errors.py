import inspect

import pytest

import vcmc
from vcmc import errors


def test_errors_with_draws_keep_them():
    error = errors.CombineError("combining failed", tree := object())
    assert error.tree is tree
    assert str(error) == "combining failed"


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.ModelError, ValueError),
        (errors.StoreError, RuntimeError),
        (errors.SlotLost, RuntimeError),
        (errors.ShardError, RuntimeError),
        (errors.CombineError, errors.ShardError),
        (errors.DoubtfulWarning, UserWarning),
    ],
)
def test_errors_can_be_caught_by_the_standard_classes(kind, base):
    assert issubclass(kind, base)


def test_an_interruption_is_not_caught_as_a_runtime_error():
    assert not issubclass(errors.Interrupted, RuntimeError | ValueError)


def test_errors_that_users_catch_are_public():
    for name in (
        "AssessmentError",
        "CombineError",
        "DoubtfulWarning",
        "ShardError",
        "StoreError",
        "StoreWarning",
    ):
        assert getattr(vcmc, name) is getattr(errors, name)
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    kinds = [kind for kind in classes if kind.__module__ == errors.__name__]
    assert len(kinds) > 6
    assert all(kind.__doc__ for kind in kinds)
