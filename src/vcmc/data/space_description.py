"""Describe a space as JSON text, and rebuild it, so that a file of draws remembers its space.

The description holds plain data only: names of spaces and of NumPyro's constraints, sizes, numbers
and arrays. Rebuilding looks names up in a fixed table and in `numpyro.distributions.constraints`,
and runs no other code. Numbers survive to the last bit.
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.constraints import Constraint

from ..space import (
    Correlation,
    Dependent,
    Exchangeable,
    Interval,
    Ordered,
    Positive,
    PositiveDefinite,
    Product,
    Real,
    Simplex,
    Space,
)
from .rows import NUMBER_KINDS

VERSION = 1  # of the format

Description = dict[str, Any]


class NotDescribed(Exception):
    """A space has no description; the message says why."""


def describe_space(space: Product) -> str:
    """Return JSON text from which `space_from_description` rebuilds the space.

    A parameter that cannot be described, e.g. one whose bounds depend on other parameters, is
    marked as such with the reason.

    >>> describe_space(Product({"mean": Real(2)}))
    '{"version": 1, "parameters": {"mean": {"kind": "Real", "shape": [2]}}}'
    """
    return json.dumps(
        {
            "version": VERSION,
            "parameters": {name: _describe_or_mark(part) for name, part in space.items()},
        }
    )


def described_names(text: str) -> list[str]:
    """Return the names of the parameters that `describe_space` described.

    >>> described_names(describe_space(Product({"mean": Real(2)})))
    ['mean']
    """
    return list(_read(text)[1])


def _read(text: str) -> tuple[Any, Any]:
    """Return the version of a description, and its parameters."""
    try:
        description = json.loads(text)
        return description["version"], description["parameters"]
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(
            "a space must be described by text from describe_space; "
            f"got {type(error).__name__}: {error}."
        ) from None


def space_from_description(
    text: str, replace: Mapping[str, Space] = MappingProxyType({})
) -> Product:
    """Rebuild the space that `describe_space` described.

    Args:
        text: the description.
        replace: spaces of some parameters that are used in place of those described.

    Raises:
        ValueError: the text is no such description, or a parameter was not described.
    """
    version, parameters = _read(text)
    if version != VERSION or not isinstance(parameters, Mapping):
        raise ValueError(
            f"a description of a space must have version {VERSION}; got {version!r}. It may come "
            "from a newer vcmc: pass model=... or space=model.space."
        )
    described = {
        name: _rebuild_parameter(name, part)
        for name, part in parameters.items()
        if name not in replace
    }
    return Product({name: replace.get(name) or described[name] for name in parameters})


def _describe_or_mark(space: Space) -> Description:
    try:
        return _describe(space)
    except NotDescribed as reason:
        return {"kind": None, "reason": str(reason)}


def _describe(space: Space) -> Description:
    kind = type(space)
    if kind is Dependent:
        raise NotDescribed("its support depends on other parameters")
    if kind is Exchangeable and isinstance(space, Exchangeable):
        component = _describe(space.component)
        return {"kind": "Exchangeable", "count": int(space.count), "component": component}
    description = {"kind": kind.__name__, "shape": list(space.shape)}
    if kind is Space:
        return {**description, "constraint": _encode(space.constraint({}))}
    if kind is Interval:
        interval = space.constraint({})
        bounds = {"low": interval.lower_bound, "high": interval.upper_bound}
        return {**description, **{name: _encode(bound) for name, bound in bounds.items()}}
    if kind is Simplex and isinstance(space, Simplex):
        return {**description, "exchangeable": bool(space.exchangeable)}
    if kind.__name__ in REBUILD and kind.__module__ == Space.__module__:
        return description
    raise NotDescribed(f"its space is a {kind.__name__}, which is not one of vcmc's own")


def _rebuild_parameter(name: str, description: Any) -> Space:
    if isinstance(description, Mapping) and description.get("kind", "") is None:
        raise ValueError(
            f"the space of the parameter {name!r} is not stored, as "
            f"{description.get('reason', 'it could not be described')}: pass model=... or "
            "space=model.space."
        )
    try:
        return _rebuild(description)
    except (AssertionError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"the description of the parameter {name!r} cannot be read "
            f"({type(error).__name__}: {error}): pass model=... or space=model.space."
        ) from error


def _rebuild(description: Description) -> Space:
    return REBUILD[description["kind"]](description)


REBUILD: dict[str, Callable[[Description], Space]] = {
    "Real": lambda about: Real(*about["shape"]),
    "Positive": lambda about: Positive(*about["shape"]),
    "Interval": lambda about: Interval(
        _decode(about["low"]), _decode(about["high"]), *about["shape"]
    ),
    "Simplex": lambda about: Simplex(*about["shape"], exchangeable=about["exchangeable"]),
    "Ordered": lambda about: Ordered(*about["shape"]),
    "PositiveDefinite": lambda about: PositiveDefinite(
        about["shape"][-1], batch=tuple(about["shape"][:-2])
    ),
    "Correlation": lambda about: Correlation(about["shape"][-1], batch=tuple(about["shape"][:-2])),
    "Exchangeable": lambda about: Exchangeable(about["count"], _rebuild(about["component"])),
    "Space": lambda about: Space(_decode_constraint(about["constraint"]), *about["shape"]),
}


def _encode(value: Any) -> Any:
    """Return a constraint, an array, a number, or a sequence of these as plain data."""
    if isinstance(value, Constraint):
        return _encode_constraint(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.dtype.kind not in NUMBER_KINDS:
            raise NotDescribed(f"its support has a parameter of type {array.dtype}")
        return {
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "values": array.ravel().tolist(),
        }
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    raise NotDescribed(f"its support has a parameter of type {type(value).__name__}")


def _encode_constraint(constraint: Constraint) -> Description:
    name = type(constraint).__name__
    if _constraint_class(name) is not type(constraint):
        raise NotDescribed(f"its support, {constraint!r}, is not one of NumPyro's constraints")
    if _is_singleton(type(constraint)):
        return {"constraint": name, "arguments": {}}
    values, (names, static) = constraint.tree_flatten()
    fields = {**dict(zip(names, values, strict=True)), **static}
    # constructors take their fields by name; a private field, `_event_dim`, without its underscore
    arguments = {field.lstrip("_"): _encode(value) for field, value in fields.items()}
    return {"constraint": name, "arguments": arguments}


def _decode(value: Any) -> Any:
    """Invert `_encode`."""
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if not isinstance(value, Mapping):
        return value
    if "constraint" in value:
        return _decode_constraint(value)
    if np.dtype(value["dtype"]).kind not in NUMBER_KINDS:
        raise ValueError(f"an array must hold numbers; got the type {value['dtype']!r}")
    return np.array(value["values"], value["dtype"]).reshape(value["shape"])


def _decode_constraint(description: Mapping[str, Any]) -> Constraint:
    kind = _constraint_class(description["constraint"])
    if kind is None:
        raise ValueError(f"{description['constraint']!r} is not one of NumPyro's constraints")
    return kind(**{name: _decode(value) for name, value in description["arguments"].items()})


def _constraint_class(name: Any) -> type[Constraint] | None:
    """Return the class of this name that NumPyro's module of constraints defines, if it does."""
    kind = vars(constraints).get(name) if isinstance(name, str) else None
    is_constraint = isinstance(kind, type) and issubclass(kind, Constraint)
    return kind if is_constraint and kind.__module__ == constraints.__name__ else None


def _is_singleton(kind: type[Constraint]) -> bool:
    return issubclass(kind, constraints._SingletonConstraint)
