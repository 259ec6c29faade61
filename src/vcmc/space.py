r"""Spaces of parameters, and their maps from unconstrained real coordinates.

A space is a NumPyro constraint and a shape. With NumPyro's bijection $T: \mathbb R^n \to \Theta$, a
*point* $u \in \mathbb R^n$ represents the value $T(u)$, and the log density of a point is that of
its value plus $\log |\det J_T(u)|$.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import IdentityTransform, IndependentTransform

Params: TypeAlias = Mapping[str, Array]
"""Named constrained values, one for each parameter."""

Point: TypeAlias = Float[Array, " dim"]
"""Params as one vector of unconstrained real coordinates."""

Scalar: TypeAlias = Float[Array, ""]


AXES = ("shard", "chain", "draw")  # names of the axes of results


class Space:
    """The space of one parameter: arrays of a given shape that satisfy a NumPyro constraint.

    Prefer a named subclass (`Real`, `Positive`, …). This class takes any constraint for which
    NumPyro has a bijection.

    >>> Space(constraints.circular, 3)
    Space(Circular(lower_bound=-3.141592653589793, upper_bound=3.141592653589793), shape=(3,))
    """

    def __init__(self, constraint: Constraint, *shape: int):
        for size in shape:
            if not isinstance(size, int | np.integer) or size < 1:
                raise ValueError(
                    f"{type(self).__name__}: sizes must be positive integers; got {size!r}."
                )
        self._constraint = constraint
        self.shape = tuple(int(size) for size in shape)

    def constraint(self, earlier: Params) -> Constraint:
        """Return the constraint on the value, given the parameters before it."""
        del earlier
        return self._constraint

    @property
    def point_shape(self) -> tuple[int, ...]:
        """Shape of the real coordinates."""
        return tuple(biject_to(self._constraint).inverse_shape(self.shape))

    @property
    def dim(self) -> int:
        """Number of real coordinates."""
        return int(np.prod(self.point_shape))

    @property
    def is_real(self) -> bool:
        """Whether values are their own real coordinates."""
        transform = biject_to(self._constraint)
        while isinstance(transform, IndependentTransform):
            transform = transform.base_transform
        return isinstance(transform, IdentityTransform)

    @property
    def is_positive_definite(self) -> bool:
        """Whether a value is one positive-definite matrix."""
        return (
            isinstance(self._constraint, type(constraints.positive_definite))
            and len(self.shape) == 2
        )

    @property
    def num_labels(self) -> int | None:
        """Number of exchangeable components, or None."""
        return None

    def relabel(self, coordinates: jax.Array, order: jax.Array) -> jax.Array:
        """Return the real coordinates of the value with its components in another order.

        Its component l is the previous component `order[l]`.
        """
        del coordinates, order
        raise TypeError(f"{self} has no exchangeable components.")

    def components(self, coordinates: jax.Array) -> jax.Array:
        """Return real coordinates as an array (component, coordinate), to measure distances."""
        del coordinates
        raise TypeError(f"{self} has no exchangeable components.")

    def __repr__(self) -> str:
        if type(self) is Space:
            return f"Space({self._constraint}, shape={self.shape})"
        return f"{type(self).__name__}(shape={self.shape})"


class Real(Space):
    """Real numbers: `Real()`, `Real(5)`, `Real(3, 4)`."""

    def __init__(self, *shape: int):
        super().__init__(constraints.real, *shape)


class Positive(Space):
    """Positive numbers; the coordinates are logarithms."""

    def __init__(self, *shape: int):
        super().__init__(constraints.positive, *shape)


class Interval(Space):
    """Numbers between two bounds: `Interval(0, 1)`, `Interval(-1, 1, 5)`."""

    def __init__(self, low: float, high: float, *shape: int):
        if np.ndim(low) or np.ndim(high) or not -np.inf < low < high < np.inf:
            raise ValueError(
                "Interval: low and high must be finite numbers with low < high, e.g. "
                f"Interval(0, 1); got low={low}, high={high}. For a half-line use Positive."
            )
        super().__init__(constraints.interval(low, high), *shape)


class Simplex(Space):
    """Probability vectors: `Simplex(4)`, or five of them, `Simplex(5, 4)`.

    With `exchangeable=True` the categories are exchangeable components, e.g. the weights of a
    mixture. They share their labels with `Exchangeable` parameters of as many components.
    """

    def __init__(self, *shape: int, exchangeable: bool = False):
        _check_has_size("Simplex", shape, "the number of categories, 2 or more")
        if exchangeable and len(shape) != 1:
            raise ValueError(
                "Simplex: with exchangeable=True the shape must have one axis, e.g. "
                f"Simplex(4, exchangeable=True); got {shape}."
            )
        super().__init__(constraints.simplex, *shape)
        self.exchangeable = exchangeable

    @property
    def num_labels(self) -> int | None:
        return self.shape[0] if self.exchangeable else None

    def relabel(self, coordinates: jax.Array, order: jax.Array) -> jax.Array:
        transform = biject_to(constraints.simplex)
        return transform.inv(transform(coordinates)[order])

    def components(self, coordinates: jax.Array) -> jax.Array:
        return jnp.log(biject_to(constraints.simplex)(coordinates))[:, None]

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + (", exchangeable=True)" if self.exchangeable else ")")


class Ordered(Space):
    """Vectors of increasing numbers, e.g. cut points."""

    def __init__(self, *shape: int):
        _check_has_size("Ordered", shape, "the length of the vector")
        super().__init__(constraints.ordered_vector, *shape)


class PositiveDefinite(Space):
    """Positive-definite matrices in log-Cholesky coordinates: `PositiveDefinite(5)` for 5 × 5."""

    def __init__(self, size: int, *, batch: tuple[int, ...] = ()):
        super().__init__(constraints.positive_definite, *batch, size, size)


class Correlation(Space):
    """Correlation matrices: `Correlation(5)` for 5 × 5."""

    def __init__(self, size: int, *, batch: tuple[int, ...] = ()):
        super().__init__(constraints.corr_matrix, *batch, size, size)


class Exchangeable(Space):
    """Components whose order has no meaning, e.g. the centres of a mixture.

    `Exchangeable(8, Real(2))` is eight centres in the plane, an array of shape (8, 2).
    """

    def __init__(self, count: int, component: Space):
        if not isinstance(component, Space):
            raise TypeError(
                "Exchangeable: component must be a space, e.g. Exchangeable(8, Real(2)); "
                f"got {component!r}."
            )
        self.count = count
        self.component = component
        super().__init__(component.constraint({}), count, *component.shape)

    @property
    def num_labels(self) -> int | None:
        return self.shape[0]

    def relabel(self, coordinates: jax.Array, order: jax.Array) -> jax.Array:
        return self.components(coordinates)[order].ravel()

    def components(self, coordinates: jax.Array) -> jax.Array:
        return coordinates.reshape(self.shape[0], -1)

    def __repr__(self) -> str:
        return f"Exchangeable({self.count}, {self.component})"


class Dependent(Space):
    """Values whose bounds depend on earlier parameters, as in `Uniform(0, tau)`.

    `constraint_of` maps those parameters to the constraint; `example` is the constraint at some
    value of them, which determines the number of coordinates.
    """

    def __init__(
        self, constraint_of: Callable[[Params], Constraint], example: Constraint, *shape: int
    ):
        super().__init__(example, *shape)
        self._constraint_of = constraint_of

    def constraint(self, earlier: Params) -> Constraint:
        return self._constraint_of(earlier)


class Product(Mapping[str, Space]):
    """The spaces of all parameters, and the vector of their real coordinates.

    >>> space = Product({"scale": Positive(), "centre": Real(2)})
    >>> space.dim
    3
    >>> space.coordinates
    ('scale', 'centre[0]', 'centre[1]')
    >>> Product({"beta": Real(2)}, {"beta": ["beta[age]", "beta[income]"]}).coordinates
    ('beta[age]', 'beta[income]')
    >>> params = space.constrain(jnp.array([0.0, 1.0, 2.0]))
    >>> float(params["scale"])
    1.0
    """

    def __init__(
        self, spaces: Mapping[str, Space], names: Mapping[str, Iterable[str]] | None = None
    ):
        if not isinstance(spaces, Mapping) or not spaces:
            raise ValueError(
                "space must be a non-empty mapping from parameter names to spaces, e.g. "
                f'{{"beta": vcmc.Real(5)}}; got {spaces!r}.'
            )
        for name, space in spaces.items():
            if not isinstance(space, Space):
                raise TypeError(
                    f"space[{name!r}] must be a Space instance, e.g. vcmc.Real(5) or "
                    f"vcmc.Positive(); got {space!r}."
                )
        check_names({name: space.shape for name, space in spaces.items()})
        self._spaces = dict(spaces)
        self._names = {name: tuple(own) for name, own in (names or {}).items()}
        self._ends = np.cumsum([space.dim for space in spaces.values()]).tolist()

    def __getitem__(self, name: str) -> Space:
        return self._spaces[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spaces)

    def __len__(self) -> int:
        return len(self._spaces)

    def __repr__(self) -> str:
        return f"Product({self._spaces})"

    @property
    def dim(self) -> int:
        """Number of real coordinates of a point."""
        return self._ends[-1]

    def indices(self, *names: str) -> tuple[int, ...]:
        """Return the indices of the coordinates of some parameters in a point."""
        ends = dict(zip(self, self._ends, strict=True))
        return tuple(i for name in names for i in range(ends[name] - self[name].dim, ends[name]))

    def __eq__(self, other: object) -> bool:
        return self is other  # by identity, as a static argument of compiled functions

    def __hash__(self) -> int:
        return id(self)

    def labelled(self) -> list[tuple[tuple[int, ...], "Product"]]:
        """Return the coordinates and the space of parameters that share exchangeable labels."""
        blocks = []
        for count in sorted({space.num_labels for space in self.values() if space.num_labels}):
            block = Product(
                {name: space for name, space in self.items() if space.num_labels == count}
            )
            blocks.append((self.indices(*block), block))
        return blocks

    @property
    def curved(self) -> np.ndarray:
        """A mask of the coordinates that are not values themselves."""
        return np.concatenate([np.full(space.dim, not space.is_real) for space in self.values()])

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The name of every coordinate of a point, e.g. `beta[2]`, or as the model labels it."""
        return tuple(
            label
            for name, space in self.items()
            for label in self._names.get(name) or _numbered(name, space.point_shape)
        )

    def constrain_with_log_det(self, point: Point) -> tuple[dict[str, jax.Array], Scalar]:
        """Return the params at a point, and the log determinant of the Jacobian there."""
        params: dict[str, jax.Array] = {}
        log_det = jnp.zeros((), point.dtype)
        parts = jnp.split(point, self._ends[:-1])
        for (name, space), part in zip(self.items(), parts, strict=True):
            transform = biject_to(space.constraint(params))
            coordinates = part.reshape(space.point_shape)
            params[name] = transform(coordinates)
            log_det += jnp.sum(transform.log_abs_det_jacobian(coordinates, params[name]))
        return params, log_det

    def constrain(self, point: Point) -> dict[str, jax.Array]:
        """Return the params at a point."""
        return self.constrain_with_log_det(point)[0]

    def relabel(self, point: Point, order: jax.Array) -> Point:
        """Return the point with its exchangeable components in another order.

        Component l is the previous component `order[l]`. Parameters with another number of
        components are unchanged.
        """
        parts = jnp.split(point, self._ends[:-1])
        return jnp.concatenate(
            [
                space.relabel(part, order) if space.num_labels == len(order) else part
                for space, part in zip(self.values(), parts, strict=True)
            ]
        )

    def components(self, point: Point) -> jax.Array:
        """Return coordinates of exchangeable parameters as an array (component, coordinate)."""
        parts = jnp.split(point, self._ends[:-1])
        return jnp.concatenate(
            [space.components(part) for space, part in zip(self.values(), parts, strict=True)],
            axis=1,
        )

    def unconstrain(self, params: Params) -> Point:
        """Return the point of given params: the inverse of `constrain`."""
        parts: list[jax.Array] = []
        earlier: dict[str, jax.Array] = {}
        for name, space in self.items():
            value = jnp.asarray(params[name], float)
            parts.append(jnp.ravel(biject_to(space.constraint(earlier)).inv(value)))
            earlier[name] = value
        return jnp.concatenate(parts)


def _numbered(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return the names of the elements of an array by their indices."""
    if not shape:
        return [name]
    return [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(shape)]


def check_names(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse names that a result, an `xarray.DataTree`, cannot have.

    Args:
        shapes: the shapes of parameters or derived quantities by name.
    """
    axes = {
        f"{name}_dim_{axis}": name for name, shape in shapes.items() for axis in range(len(shape))
    }
    for name in shapes:
        if not isinstance(name, str) or not name:
            raise ValueError(f"names of parameters must be non-empty texts; got {name!r}.")
        if not name.isprintable():
            raise ValueError(
                f"names of parameters must consist of printable characters; got {name!r}."
            )
        if "/" in name:
            raise ValueError(
                f"the name {name!r} of a parameter has a slash, which stands for a group in "
                f"results. Try {name.replace('/', '.')!r}."
            )
        if name in AXES:
            raise ValueError(
                f"a parameter must not be called {name!r}, which is an axis of results. "
                f"Try {name + '_'!r}."
            )
        if name.endswith(".npy") and name.removesuffix(".npy") in shapes:
            raise ValueError(
                f"a parameter must not be called {name!r} beside {name.removesuffix('.npy')!r}: "
                f"a NumPy archive cannot tell them apart. Try {name + '_'!r}."
            )
        if name in axes:
            raise ValueError(
                f"a parameter must not be called {name!r}, which is the name of an axis of "
                f"{axes[name]!r} in results. Try {name + '_'!r}."
            )


def _check_has_size(name: str, shape: tuple[int, ...], meaning: str) -> None:
    if not shape:
        raise ValueError(f"{name} needs {meaning}, e.g. {name}(4); got no size.")
