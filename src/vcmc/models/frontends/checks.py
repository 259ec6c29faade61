"""What every front end asks of a model: one value per row, a prior that does not see the rows.

What depends on the number of rows is found by looking at the model on two numbers of them.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...data.rows import Rows
from ...space import Params, Product, Scalar, Space

FEW, MORE = 5, 7  # numbers of rows on which models are looked at


def first_rows(arrays: Rows) -> dict[str, Any]:
    """The first few rows."""
    return {name: array[:FEW] for name, array in arrays.items()}


def other_rows(arrays: Rows) -> list[dict[str, Any]]:
    """Rows that differ from the first few in number and in every statistic: the last, and the first again and again."""
    return [
        {name: array[-MORE:] for name, array in arrays.items()},
        {name: np.repeat(array[:1], MORE, axis=0) for name, array in arrays.items()},
    ]


def example_params(
    spaces: Mapping[str, Space], count: int = 3, spread: float = 1.0
) -> list[dict[str, Array]]:
    """Params at a few random points."""
    product = Product(spaces)
    constrain = jax.jit(product.constrain)
    points = np.asarray(jax.random.normal(jax.random.key(3), (count, product.dim)))
    return [constrain(spread * point) for point in points]


def row_axis(few: tuple[int, ...], more: tuple[int, ...]) -> int | None:
    """Which axis is the rows', given the shapes for few rows and for more; nothing if no single one is."""
    if len(few) != len(more):
        return None
    differing = [axis for axis, (a, b) in enumerate(zip(few, more, strict=True)) if a != b]
    if len(differing) == 1 and few[differing[0]] == FEW and more[differing[0]] == MORE:
        return differing[0]
    return None


def sum_per_row(values: Array, axis: int) -> Float[Array, " row"]:
    """Sums over all axes but the rows'."""
    return jnp.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).sum(axis=1)


def check_prior(
    prior: Callable[[Params, Rows], Scalar],
    examples: list[dict[str, Array]],
    arrays: Rows,
    remedy: str,
) -> None:
    """The prior must not see the rows: other rows, and another number of them, must not change it."""
    prior = jax.jit(prior)  # or each of its operations is compiled by itself
    for params in examples:
        here = float(prior(params, first_rows(arrays)))
        for other in other_rows(arrays):
            there = float(prior(params, other))
            if not np.isclose(here, there, rtol=1e-10, atol=1e-10, equal_nan=True):
                raise ValueError(
                    f"the prior depends on the rows: at the same params its log density is {here:.6g} for some "
                    f"rows and {there:.6g} for others, so shards would have different priors. Compute what the prior "
                    f"needs from the rows beforehand (such as their standard deviation), and {remedy}."
                )


def same_for_all_rows(
    values: Callable[[Params, Rows], Mapping[str, Any]],
    names: Iterable[str],
    examples: list[dict[str, Array]],
    arrays: Rows,
) -> list[str]:
    """Those of the named values that do not change with the rows."""
    steady = list(names)
    for params in examples:
        here = values(params, first_rows(arrays))
        for other in other_rows(arrays):
            there = values(params, other)
            steady = [name for name in steady if _same(here[name], there[name])]
    return steady


def _same(here: Any, there: Any) -> bool:
    return np.shape(here) == np.shape(there) and np.allclose(
        here, there, rtol=1e-10, atol=1e-12, equal_nan=True
    )


def warn_of_left_out(names: Iterable[str]) -> None:
    """Say which deterministic values are not reported, and how to have them."""
    if left_out := list(names):
        warnings.warn(
            f"deterministic {', '.join(map(repr, left_out))} depend on the rows, which no shard has all of, and are left "
            "out of the result. Compute them from its draws, as in docs/back.md.",
            UserWarning,
            stacklevel=4,
        )
