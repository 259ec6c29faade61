"""Checks of the arguments that the verbs share."""

from typing import Any, get_args

import numpy as np

from ..combiners import AbstractCombiner, Prior
from ..model import Model

# Draws of the posterior. The 5 % and 95 % quantiles of T draws whose mean and sd are right have a
# standard error of sqrt(2.1 / T) sd: 0.02 sd.
DEFAULT_DRAWS = 5000
MIN_DRAWS = 4


def check_instance(argument: str, value: Any, kind: type, example: str) -> None:
    """Raise a `TypeError` that shows a valid value, unless `value` is an instance of `kind`."""
    if isinstance(value, kind):
        return
    name = kind.__name__.removeprefix("Abstract")
    article = "an" if name[0] in "AEIOU" else "a"
    raise TypeError(f"{argument} must be {article} {name} instance, e.g. {example}; got {value!r}.")


def check_model(model: Any) -> None:
    """Raise a `TypeError` unless `model` is a `Model`."""
    example = "vcmc.Model(...), vcmc.from_numpyro(...) or vcmc.from_pymc(...)"
    check_instance("model", model, Model, example)


def check_result(tree: Any) -> None:
    """Raise a `TypeError` unless `tree` has draws of a posterior."""
    if "posterior" not in getattr(tree, "children", {}):
        raise TypeError(
            "tree must be a result of infer or combine, with a group 'posterior'; got "
            f"{type(tree).__name__} with the groups {list(getattr(tree, 'children', {}))}."
        )


def check_combiner(combiner: Any, argument: str = "combiner") -> None:
    """Raise a `TypeError` unless `combiner` is a combiner."""
    check_instance(argument, combiner, AbstractCombiner, "vcmc.combiners.Consensus()")


def check_integer(argument: str, value: Any, minimum: int) -> None:
    """Raise a `ValueError` unless `value` is an integer of at least `minimum`."""
    if not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{argument} must be an integer of at least {minimum}; got {value!r}.")


def check_model_with_rows(verb: str, model: Any, rows: Any) -> None:
    """Raise a `ValueError` if there is a model without rows, or the other way round."""
    if (model is None) != (rows is None):
        got = "a model without rows" if rows is None else "rows without a model"
        raise ValueError(f"{verb} takes a model and its rows together, or neither; got {got}.")


def resolve_prior(combiner: AbstractCombiner, prior: Any) -> Prior:
    """Return which prior the shards have: the user's choice, or the combiner's."""
    needed = combiner.needs.prior
    if prior is None:
        return needed
    if prior not in get_args(Prior):
        raise ValueError(f"prior must be one of {get_args(Prior)}; got {prior!r}.")
    if "powered" in (prior, needed) and prior != needed and not combiner.needs.scores:
        raise ValueError(
            f"{type(combiner).__name__} needs shards with prior={needed!r}; got prior={prior!r}. "
            f"Sample the shards with vcmc.infer(..., prior={needed!r}), or choose another "
            "combiner: docs/combiners.md lists what each needs."
        )
    return prior
