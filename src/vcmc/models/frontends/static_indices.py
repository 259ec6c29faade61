"""Replace gathers at known indices by slices.

A model with groups is traced on one row of one group, whose number is zero. So `alpha[county]` is a
gather at a known index, which XLA does not see through: under `vmap` over rows, gathers took longer
than the rest of a logistic likelihood. Here a trace is evaluated with small constants folded, so
that the indices are known, and such a gather becomes a slice.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

MAX_FOLDED_SIZE = 64  # of a constant: indices are small, and data that a model closes over are not


def _broadcast(params: Any, value: np.ndarray) -> np.ndarray:
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], value.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(value.reshape(shape), params["shape"])


# What JAX does to indices. In NumPy, as JAX would compile a program for each.
FOLDS: dict[str, Callable[..., Any]] = {
    "lt": lambda _, left, right: left < right,
    "ge": lambda _, left, right: left >= right,
    "add": lambda _, left, right: left + right,
    "sub": lambda _, left, right: left - right,
    "select_n": lambda _, which, *cases: np.choose(which.astype(int), cases),
    "convert_element_type": lambda _, value: value,
    "reshape": lambda _, value: value,
    "squeeze": lambda _, value: value,
    "copy": lambda _, value: value,
    "concatenate": lambda params, *parts: np.concatenate(parts, params["dimension"]),
    "broadcast_in_dim": _broadcast,
}


def with_static_indices(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function of arrays, traced with slices in place of gathers at known indices.

    >>> sliced = with_static_indices(lambda x: x[jnp.zeros(1, int)])
    >>> "gather" in str(jax.make_jaxpr(sliced)(jnp.zeros(3)))
    False
    """

    def sliced(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        results = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return sliced


def _evaluate(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Evaluate a trace; small constants are NumPy arrays."""
    values: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        is_literal = isinstance(atom, Literal)
        return np.asarray(atom.val, atom.aval.dtype) if is_literal else values[atom]

    for variables, inputs in ((jaxpr.constvars, consts), (jaxpr.invars, arguments)):
        values.update(zip(variables, map(_folded, inputs), strict=True))
    for equation in jaxpr.eqns:
        outputs = _apply(equation, [read(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: Any, inputs: list[Any]) -> list[Any]:
    """Return the results of one equation of a trace."""
    if equation.primitive.name in ("jit", "pjit"):
        inner = equation.params["jaxpr"]
        return _evaluate(inner.jaxpr, inner.consts, inputs)
    if equation.primitive.name == "gather" and _is_known(inputs[1]):
        sliced = _slice(equation, *inputs)
        if sliced is not None:
            return [sliced]
    fold = FOLDS.get(equation.primitive.name)
    if fold is not None and all(map(_is_known, inputs)):
        (result,) = equation.outvars
        folded = fold(equation.params, *inputs)
        return [np.asarray(folded, result.aval.dtype).reshape(result.aval.shape)]
    return _bind(equation, inputs)


def _bind(equation: Any, inputs: list[Any]) -> list[Any]:
    """Apply the primitive of an equation."""
    params = equation.primitive.get_bind_params(equation.params)
    if isinstance(params, tuple):  # before JAX 0.10: functions apart
        functions, params = params
        inputs = [*functions, *inputs]
    results = equation.primitive.bind(*inputs, **params)
    return list(results) if equation.primitive.multiple_results else [results]


def _folded(value: Any) -> Any:
    """Return a small constant as a NumPy array, anything else as it is."""
    if isinstance(value, jax.core.Tracer) or np.size(value) > MAX_FOLDED_SIZE:
        return value
    is_key = jnp.issubdtype(getattr(value, "dtype", float), jax.dtypes.prng_key)
    return value if is_key else np.asarray(value)


def _is_known(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _slice(equation: Any, operand: Any, indices: np.ndarray) -> Any:
    """Return a gather of one slice within bounds; None if it is another gather."""
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    if numbers.operand_batching_dims or indices.size != len(numbers.start_index_map):
        return None
    starts = np.zeros(len(sizes), int)
    starts[list(numbers.start_index_map)] = indices.ravel()
    limits = starts + np.asarray(sizes)
    if (starts < 0).any() or (limits > np.shape(operand)).any():
        return None
    sliced = jax.lax.slice(operand, starts.tolist(), limits.tolist())
    return sliced.reshape(equation.outvars[0].aval.shape)
