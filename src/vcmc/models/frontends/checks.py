"""Checks common to all front ends: one value per row, and a prior that ignores the rows.

A dependence on the number of rows is detected by comparing two numbers of rows.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data.rows import Rows, native
from ...errors import warn_user
from ...space import Params, Product, Scalar, Space

# Numbers of rows on which models are compared: small, different, and unlikely as other sizes.
FEW_ROWS, MORE_ROWS = 5, 7


def first_rows(arrays: Rows) -> dict[str, Any]:
    """Return the first few rows."""
    return {name: native(array[:FEW_ROWS]) for name, array in arrays.items()}


def other_rows(arrays: Rows) -> list[dict[str, Any]]:
    """Return rows that differ from the first few in number and in every statistic.

    They are the last rows, and the first row repeated.
    """
    return [
        {name: native(array[-MORE_ROWS:]) for name, array in arrays.items()},
        {name: np.repeat(native(array[:1]), MORE_ROWS, axis=0) for name, array in arrays.items()},
    ]


def example_params(
    spaces: Mapping[str, Space], count: int = 3, spread: float = 1.0
) -> list[dict[str, Array]]:
    """Return params at a few random points."""
    product = Product(spaces)
    constrain = jax.jit(product.constrain)
    points = np.random.default_rng(3).normal(size=(count, product.dim))
    return [constrain(spread * point) for point in points]


def row_axis(few: tuple[int, ...], more: tuple[int, ...]) -> int | None:
    """Return the row axis, given the shapes for few and for more rows; None if it is not unique.

    >>> row_axis((2, 5), (2, 7))
    1
    """
    if len(few) != len(more):
        return None
    differing = [axis for axis, (a, b) in enumerate(zip(few, more, strict=True)) if a != b]
    if len(differing) == 1 and few[differing[0]] == FEW_ROWS and more[differing[0]] == MORE_ROWS:
        return differing[0]
    return None


def sum_per_row(values: Array, axis: int) -> Float[Array, " row"]:
    """Sum over all axes but that of the rows."""
    return jnp.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).sum(axis=1)


def check_prior(
    prior: Callable[[Params, Rows], Scalar],
    examples: list[dict[str, Array]],
    arrays: Rows,
    remedy: str,
) -> None:
    """Raise an error if other rows, or another number of rows, change the log prior.

    Args:
        prior: the log prior, given params and rows.
        examples: params to compare at.
        arrays: rows.
        remedy: how to pass a number to the model, for the message.
    """
    prior = jax.jit(prior)  # without it, every operation would be compiled by itself
    for params in examples:
        expected = float(prior(params, first_rows(arrays)))
        for rows in other_rows(arrays):
            value = float(prior(params, rows))
            if not np.isclose(expected, value, rtol=1e-10, atol=1e-10, equal_nan=True):
                raise ValueError(
                    "the prior depends on the rows: at the same params its log density is "
                    f"{expected:.6g} for some rows and {value:.6g} for others, so that shards "
                    "would have different priors. Compute what the prior needs from the rows "
                    f"beforehand, e.g. their standard deviation, and {remedy}."
                )


def neutral_rows(
    prior: Callable[[Params, Rows], Any], params: dict[str, Array], arrays: Rows
) -> dict[str, Any]:
    """Return rows at which to evaluate what does not depend on the rows: of zeros, or of ones.

    They are constants of compiled programs. Rows of the user's would be copied into the cache of
    programs, and a model that was made of other rows could not use these. Where neither zeros nor
    ones are valid, the first rows are returned.
    """
    first = first_rows(arrays)
    for value in (0, 1):
        rows = {name: np.full_like(array, value) for name, array in first.items()}
        with warnings.catch_warnings(), suppress(Exception):
            warnings.simplefilter("error")  # e.g. that a value is out of the support
            jax.eval_shape(lambda params, rows=rows: prior(params, rows), params)
            return rows
    return first


def same_for_all_rows(
    function: Callable[[Params, Rows], Mapping[str, Any]],
    names: Iterable[str],
    examples: list[dict[str, Array]],
    arrays: Rows,
) -> list[str]:
    """Return the names of those outputs of a function that do not depend on the rows."""
    constant = list(names)
    for params in examples:
        expected = function(params, first_rows(arrays))
        for rows in other_rows(arrays):
            values = function(params, rows)
            constant = [name for name in constant if _equal(expected[name], values[name])]
    return constant


def _equal(first: Any, second: Any) -> bool:
    return np.shape(first) == np.shape(second) and np.allclose(
        first, second, rtol=1e-10, atol=1e-12, equal_nan=True
    )


def warn_of_omitted(names: Iterable[str]) -> None:
    """Warn that deterministic values are omitted, and say how to compute them."""
    if omitted := list(names):
        warn_user(
            f"deterministic {', '.join(map(repr, omitted))} depend on the rows, of which no shard "
            "has all, and are omitted from the result. Compute them from its draws, as in "
            "docs/back.md.",
            UserWarning,
        )


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n")[0]
