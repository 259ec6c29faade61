"""Spaces of a PyMC model's free random variables, from their transforms.

A space of vcmc is used if there is one, so that the same model has the same coordinates in all
languages; else PyMC's own transform, e.g. for the packed Cholesky factors of `LKJCholeskyCov`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
from .graph import Graph, ancestors, jaxify

Shapes = Mapping[str, tuple[int, ...]]


class TransformFunctions(NamedTuple):
    """A transform of PyMC as JAX functions of one argument, each with one output in a list.

    Attributes:
        forward: from values to real coordinates.
        backward: from real coordinates to values.
        log_jacobian: log determinant of the Jacobian of `backward`.
    """

    forward: Callable[[Array], Sequence[Array]]
    backward: Callable[[Array], Sequence[Array]]
    log_jacobian: Callable[[Array], Sequence[Array]]


class PyMCSupport(Constraint):
    """The values that a transform of PyMC maps to real coordinates.

    Attributes:
        name: name of the transform.
        shape: shape of the real coordinates.
        functions: the transform.
    """

    def __init__(self, name: str, shape: tuple[int, ...], functions: TransformFunctions):
        self.name, self.shape, self.functions = name, shape, functions

    def __call__(self, x: Array) -> Array:
        return jnp.all(jnp.isfinite(self.functions.forward(x)[0]))

    def __repr__(self) -> str:
        return f"PyMC's {self.name}"

    def tree_flatten(self) -> Any:
        return (), ((), {"name": self.name, "shape": self.shape, "functions": self.functions})


class PyMCTransform(Transform):
    """A transform of PyMC with the interface of NumPyro: from real coordinates to values."""

    def __init__(self, support: PyMCSupport):
        self.support = support

    def __call__(self, x: Array) -> Array:
        return self.support.functions.backward(x)[0]

    def _inverse(self, y: Array) -> Array:
        return self.support.functions.forward(y)[0]

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Scalar:
        del y, intermediates
        return jnp.sum(self.support.functions.log_jacobian(x)[0])

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return jax.eval_shape(self, jax.ShapeDtypeStruct(shape, float)).shape

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        del shape
        return self.support.shape

    def tree_flatten(self) -> Any:
        return (), ((), {"support": self.support})


biject_to.register(PyMCSupport, PyMCTransform)


def spaces_of(
    graph: Graph, shapes: Shapes, rows: Rows, declared: Mapping[str, Space]
) -> dict[str, Space]:
    """Return the space of each free random variable: declared, or from its transform."""
    if unknown := set(declared) - set(shapes):
        raise ValueError(
            f"space names {sorted(unknown)}, but the free random variables are {list(shapes)}."
        )
    spaces: dict[str, Space] = {}
    for rv in graph.model.free_RVs:
        name, shape = rv.name, shapes[rv.name]
        if name not in declared:
            spaces[name] = _space(graph, rv, shape, spaces, rows)
        elif declared[name].shape != shape:
            raise ValueError(
                f"space[{name!r}] must have the variable's shape {shape}; got {declared[name]}."
            )
        else:
            spaces[name] = declared[name]
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
    if transform is None:  # maybe removed by the user: the support is the same
        transform = _default_transform(rv.owner.op, rv)
    if distribution == "WishartRV" and len(shape) == 2:
        return PositiveDefinite(shape[-1])
    if distribution in ("LogitNormal", "LogitNormalRV"):  # without a transform in PyMC 5
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
        return _interval(graph, rv, transform, shape, earlier, rows)
    return _pymc_space(graph, rv, transform, shape)


def _check_proper(rv: Any) -> None:
    distribution = type(rv.owner.op).__name__
    if distribution in ("FlatRV", "HalfFlatRV"):
        raise ValueError(
            f"{rv.name!r} has an improper prior, pm.{distribution[:-2]}: give it a proper one, "
            "however wide. Otherwise a shard with little information on it has no posterior."
        )
    if distribution == "LKJCorrRV" and rv.ndim == 1:
        raise ValueError(
            f"{rv.name!r} is pm.LKJCorr, whose values PyMC 5 keeps in a box that also holds "
            "matrices that are not correlation matrices, so that there is no bijection from real "
            "coordinates: use pm.LKJCholeskyCov, or PyMC 6."
        )


def _interval(
    graph: Graph,
    rv: Any,
    transform: Any,
    shape: tuple[int, ...],
    earlier: dict[str, Space],
    rows: Rows,
) -> Space:
    """Return the space of numbers between bounds, which may depend on earlier parameters."""
    import pytensor.tensor as pt

    ends = transform.args_fn(*rv.owner.inputs)
    ends = [
        infinite if end is None else end
        for end, infinite in zip(ends, (-np.inf, np.inf), strict=True)
    ]
    bounds = graph.function([pt.as_tensor(end, dtype="float64") for end in ends])
    if missing := set(bounds.params) - set(earlier):
        raise ValueError(
            f"the bounds of {rv.name!r} depend on {sorted(missing)}, which the model defines "
            "later: define them first."
        )
    example = Product(earlier).constrain(jnp.zeros(Product(earlier).dim)) if bounds.params else {}
    low, high = (np.asarray(end) for end in bounds(example, rows))
    is_bounded = [set(np.isfinite(end).ravel().tolist()) for end in (low, high)]
    if any(len(answers) > 1 for answers in is_bounded):
        raise ValueError(
            f"some values of {rv.name!r} have bounds and others have none, which PyMC's transform "
            "does not distinguish: make two random variables of them."
        )
    below, above = (answers == {True} for answers in is_bounded)
    if not below and not above:
        return Real(*shape)
    if bounds.params:
        template = {name: rows[name] for name in bounds.rows}

        def constraint_given(params: Params) -> Constraint:
            low, high = bounds(params, template)
            return _constraint(low, high, below, above)

        return Dependent(constraint_given, _constraint(low, high, below, above), *shape)
    low, high = _scalar(low), _scalar(high)
    if np.ndim(low) == 0 and np.ndim(high) == 0 and below and above:
        return Interval(float(low), float(high), *shape)
    if below and not above and np.all(low == 0):
        return Positive(*shape)
    return Space(_constraint(low, high, below, above), *shape)


def _scalar(values: np.ndarray) -> np.ndarray:
    """Return a single number if all values are equal."""
    return values.ravel()[0] if values.size and np.all(values == values.ravel()[0]) else values


def _constraint(low: Any, high: Any, below: bool, above: bool) -> Constraint:
    if below and above:
        return constraints.interval(low, high)
    return constraints.greater_than(low) if below else constraints.less_than(high)


def _pymc_space(graph: Graph, rv: Any, transform: Any, shape: tuple[int, ...]) -> Space:
    """Return a space with PyMC's own transform."""
    inputs = rv.owner.inputs
    value = graph.values[rv].clone()
    forward = transform.forward(value, *inputs)
    point = forward.type("point")
    backward = transform.backward(point, *inputs)
    log_jacobian = transform.log_jac_det(point, *inputs)
    sources = ancestors([forward, backward, log_jacobian])
    needed = {variable.name for variable in sources if variable in graph.values}
    if needed:
        raise ValueError(
            f"{rv.name!r} has a PyMC transform, {type(transform).__name__}, that depends on "
            f"{sorted(needed)}: declare its space with from_pymc(..., "
            f"space={{{rv.name!r}: ...}}), or make {sorted(needed)} constant."
        )
    functions = TransformFunctions(
        jaxify([value], [forward]), jaxify([point], [backward]), jaxify([point], [log_jacobian])
    )
    example = jax.ShapeDtypeStruct(shape, float)
    point_shape = jax.eval_shape(functions.forward, example)[0].shape
    return Space(PyMCSupport(type(transform).__name__, point_shape, functions), *shape)
