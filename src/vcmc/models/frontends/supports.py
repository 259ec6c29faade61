"""Spaces of a PyMC model's free random variables, from the transforms that PyMC gives them.

Where there is a space of ours it is taken, so that the same model has the same coordinates in all languages; PyMC's
own transform serves where there is none, as for the packed Cholesky factors of `LKJCholeskyCov`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from ...data.rows import Rows
from ...space import (
    Dependent,
    Interval,
    Ordered,
    Params,
    Positive,
    PositiveDefinite,
    Product,
    Real,
    Scalar,
    Simplex,
    Space,
)
from .graph import Graph, ancestors, jaxified

Shapes = Mapping[str, tuple[int, ...]]


class PyMCSupport(Constraint):
    """Values that a transform of PyMC maps to real coordinates."""

    def __init__(
        self, name: str, shape: tuple[int, ...], functions: tuple[Callable[..., Any], ...]
    ):
        self.name, self.shape, self.functions = name, shape, functions

    def __call__(self, x: Array) -> Array:
        return jnp.all(jnp.isfinite(self.functions[0](x)[0]))

    def __repr__(self) -> str:
        return f"PyMC's {self.name}"

    def tree_flatten(self) -> Any:
        return (), ((), {"name": self.name, "shape": self.shape, "functions": self.functions})


class PyMCTransform(Transform):
    """A transform of PyMC as NumPyro's: from real coordinates to values."""

    def __init__(self, support: PyMCSupport):
        self.support = support

    def __call__(self, x: Array) -> Array:
        return self.support.functions[1](x)[0]

    def _inverse(self, y: Array) -> Array:
        return self.support.functions[0](y)[0]

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Scalar:
        del y, intermediates
        return jnp.sum(self.support.functions[2](x)[0])

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return jax.eval_shape(self, jax.ShapeDtypeStruct(shape, float)).shape

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        del shape
        return self.support.shape

    def tree_flatten(self) -> Any:
        return (), ((), {"support": self.support})


biject_to.register(PyMCSupport, PyMCTransform)


def spaces_of(
    graph: Graph, shapes: Shapes, rows: Rows, given: Mapping[str, Space]
) -> dict[str, Space]:
    """A space for each free random variable: what the user says, or what its transform says."""
    if unknown := set(given) - set(shapes):
        raise ValueError(
            f"space names {sorted(unknown)}, but the free random variables are {list(shapes)}."
        )
    spaces: dict[str, Space] = {}
    for rv in graph.model.free_RVs:
        name, shape = rv.name, shapes[rv.name]
        if name not in given:
            spaces[name] = _space(graph, rv, shape, spaces, rows)
        elif given[name].shape != shape:
            raise ValueError(
                f"space[{name!r}] must have the variable's shape {shape}; got {given[name]}."
            )
        else:
            spaces[name] = given[name]
    return spaces


def _space(
    graph: Graph, rv: Any, shape: tuple[int, ...], earlier: dict[str, Space], rows: Rows
) -> Space:
    from pymc.distributions import transforms
    from pymc.distributions.transforms import _default_transform
    from pymc.logprob.transforms import IntervalTransform

    _check_proper(rv)
    distribution = type(rv.owner.op).__name__
    transform = graph.model.rvs_to_transforms[rv]
    if transform is None:  # perhaps taken away by the user: the support is the same
        transform = _default_transform(rv.owner.op, rv)
    if distribution == "WishartRV" and len(shape) == 2:
        return PositiveDefinite(shape[-1])
    if distribution in ("LogitNormal", "LogitNormalRV"):  # which PyMC 5 gives no transform
        return Interval(0, 1, *shape)
    if transform is None:
        return Real(*shape)
    if isinstance(transform, type(transforms.log) | transforms.LogExpM1):
        return Positive(*shape)
    if isinstance(transform, type(transforms.logodds)):
        return Interval(0, 1, *shape)
    if isinstance(transform, type(transforms.simplex) | transforms.SumTo1):
        return Simplex(*shape)
    if isinstance(transform, transforms.Ordered) and transform.ascending and not transform.positive:
        return Ordered(*shape)
    if isinstance(transform, type(transforms.circular)):
        return Space(constraints.circular, *shape)
    if isinstance(transform, IntervalTransform):
        return _between(graph, rv, transform, shape, earlier, rows)
    return _as_in_pymc(graph, rv, transform, shape)


def _check_proper(rv: Any) -> None:
    distribution = type(rv.owner.op).__name__
    if distribution in ("FlatRV", "HalfFlatRV"):
        raise ValueError(
            f"{rv.name!r} has an improper prior, pm.{distribution[:-2]}: give it a proper one, however wide. A shard that "
            "says little on it would have no posterior otherwise."
        )
    if distribution == "LKJCorrRV" and rv.ndim == 1:
        raise ValueError(
            f"{rv.name!r} is pm.LKJCorr, whose values PyMC 5 keeps in a box that also holds matrices which are no "
            "correlations, so that there is no map from real coordinates: use pm.LKJCholeskyCov, or PyMC 6."
        )


def _between(
    graph: Graph,
    rv: Any,
    transform: Any,
    shape: tuple[int, ...],
    earlier: dict[str, Space],
    rows: Rows,
) -> Space:
    """Numbers between bounds, which may depend on parameters named earlier."""
    import pytensor.tensor as pt

    ends = transform.args_fn(*rv.owner.inputs)
    ends = [
        infinite if end is None else end
        for end, infinite in zip(ends, (-np.inf, np.inf), strict=True)
    ]
    bounds = graph.function([pt.as_tensor(end, dtype="float64") for end in ends])
    if missing := set(bounds.params) - set(earlier):
        raise ValueError(
            f"the bounds of {rv.name!r} depend on {sorted(missing)}, which the model names later: name those first."
        )
    example = Product(earlier).constrain(jnp.zeros(Product(earlier).dim)) if bounds.params else {}
    low, high = (np.asarray(end) for end in bounds(example, rows))
    bounded = [set(np.isfinite(end).ravel().tolist()) for end in (low, high)]
    if any(len(each) > 1 for each in bounded):
        raise ValueError(
            f"some values of {rv.name!r} have bounds and others have none, which PyMC's transform does not tell apart: make "
            "two random variables of them."
        )
    below, above = (each == {True} for each in bounded)
    if not below and not above:
        return Real(*shape)
    if bounds.params:
        template = {name: rows[name] for name in bounds.rows}

        def find(params: Params) -> Constraint:
            low, high = bounds(params, template)
            return _constraint(low, high, below, above)

        return Dependent(find, _constraint(low, high, below, above), *shape)
    low, high = _one(low), _one(high)
    if np.ndim(low) == 0 and np.ndim(high) == 0 and below and above:
        return Interval(float(low), float(high), *shape)
    if below and not above and np.all(low == 0):
        return Positive(*shape)
    return Space(_constraint(low, high, below, above), *shape)


def _one(values: np.ndarray) -> np.ndarray:
    """One number, if all values are the same."""
    return values.ravel()[0] if values.size and np.all(values == values.ravel()[0]) else values


def _constraint(low: Any, high: Any, below: bool, above: bool) -> Constraint:
    if below and above:
        return constraints.interval(low, high)
    return constraints.greater_than(low) if below else constraints.less_than(high)


def _as_in_pymc(graph: Graph, rv: Any, transform: Any, shape: tuple[int, ...]) -> Space:
    inputs = rv.owner.inputs
    value = graph.values[rv].clone()
    forward = transform.forward(value, *inputs)
    point = forward.type("point")
    parts = [forward, transform.backward(point, *inputs), transform.log_jac_det(point, *inputs)]
    needed = {each.name for part in parts for each in ancestors([part]) if each in graph.values}
    if needed:
        raise ValueError(
            f"{rv.name!r} has a transform of PyMC, {type(transform).__name__}, that depends on {sorted(needed)}: say "
            f"where it lives with from_pymc(..., space={{{rv.name!r}: ...}}), or fix what it depends on."
        )
    functions = (
        jaxified([value], parts[:1]),
        jaxified([point], parts[1:2]),
        jaxified([point], parts[2:]),
    )
    point_shape = jax.eval_shape(functions[0], jax.ShapeDtypeStruct(shape, float))[0].shape
    return Space(PyMCSupport(type(transform).__name__, point_shape, functions), *shape)
