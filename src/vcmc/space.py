r"""Where a parameter lives, and the map to it from real coordinates.

A space names a NumPyro constraint and a shape. NumPyro's bijection $T: \mathbb R^n \to \Theta$ does
the rest: a *point* $u \in \mathbb R^n$ stands for the value $T(u)$, and a density on values turns
into one on points through $\log |\det J_T(u)|$.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import IdentityTransform, IndependentTransform

Params: TypeAlias = Mapping[str, Array]
"""Named values, each in its own space."""

Point: TypeAlias = Float[Array, " dim"]
"""Params as one vector of real numbers."""

Scalar: TypeAlias = Float[Array, ""]


class Space:
    """The values of one parameter: an array of a given shape under a NumPyro constraint.

    Use a named subclass (`Real`, `Positive`, …) where there is one; this class takes any constraint
    that NumPyro can map to real coordinates.

    >>> Space(constraints.circular, 3)
    Space(Circular(lower_bound=-3.141592653589793, upper_bound=3.141592653589793), shape=(3,))
    """

    def __init__(self, constraint: Constraint, *shape: int):
        for size in shape:
            if not isinstance(size, int | np.integer) or size < 1:
                raise ValueError(
                    f"{type(self).__name__}: sizes must be whole numbers above 0; got {size!r}."
                )
        self._constraint = constraint
        self.shape = tuple(int(size) for size in shape)

    def constraint(self, earlier: Params) -> Constraint:
        """The constraint on the value, given the parameters named before it."""
        del earlier
        return self._constraint

    @property
    def point_shape(self) -> tuple[int, ...]:
        """Shape of the value in real coordinates."""
        return tuple(biject_to(self._constraint).inverse_shape(self.shape))

    @property
    def dim(self) -> int:
        """Number of real coordinates."""
        return int(np.prod(self.point_shape))

    @property
    def is_real(self) -> bool:
        """Whether values are their own coordinates."""
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
        """How many exchangeable components the value has, if it has any."""
        return None

    def relabel(self, coordinates: jax.Array, order: jax.Array) -> jax.Array:
        """The real coordinates of the value whose component l is the old component `order[l]`."""
        del coordinates, order
        raise TypeError(f"{self} has no exchangeable components.")

    def components(self, coordinates: jax.Array) -> jax.Array:
        """Real coordinates by component, an array (component, coordinate), to measure distances by."""
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
    """Positive numbers, through their logarithms."""

    def __init__(self, *shape: int):
        super().__init__(constraints.positive, *shape)


class Interval(Space):
    """Numbers between two bounds: `Interval(0, 1)`, `Interval(-1, 1, 5)`."""

    def __init__(self, low: float, high: float, *shape: int):
        if np.ndim(low) or np.ndim(high) or not -np.inf < low < high < np.inf:
            raise ValueError(
                f"Interval: low must be a finite number below high; got low={low}, high={high}. For a half-line "
                "use Positive."
            )
        super().__init__(constraints.interval(low, high), *shape)


class Simplex(Space):
    """Probabilities that add up to one: `Simplex(4)`, or five of them, `Simplex(5, 4)`.

    With `exchangeable=True` its categories are exchangeable components, as the weights of a mixture are. They have
    the same labels as the parameters of `Exchangeable` that have as many components.
    """

    def __init__(self, *shape: int, exchangeable: bool = False):
        _need_axes("Simplex", shape, 1, "the number of categories, 2 or more")
        if exchangeable and len(shape) != 1:
            raise ValueError(
                f"an exchangeable Simplex has one axis, its categories; got the shape {shape}."
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
    """Vectors of increasing numbers, such as cut points."""

    def __init__(self, *shape: int):
        _need_axes("Ordered", shape, 1, "the length of the vector")
        super().__init__(constraints.ordered_vector, *shape)


class PositiveDefinite(Space):
    """Positive-definite matrices, `PositiveDefinite(5)` for 5 × 5, through log-Cholesky coordinates."""

    def __init__(self, size: int, *, batch: tuple[int, ...] = ()):
        super().__init__(constraints.positive_definite, *batch, size, size)


class Correlation(Space):
    """Correlation matrices, `Correlation(5)` for 5 × 5."""

    def __init__(self, size: int, *, batch: tuple[int, ...] = ()):
        super().__init__(constraints.corr_matrix, *batch, size, size)


class Exchangeable(Space):
    """Components whose order means nothing, such as the centres of a mixture.

    `Exchangeable(8, Real(2))` is eight centres in the plane, an array of shape (8, 2).
    """

    def __init__(self, count: int, component: Space):
        if not isinstance(component, Space):
            raise TypeError(
                f"Exchangeable needs a count and the space of a component, as in Exchangeable(8, Real(2)); got {component!r}."
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
    """Values whose bounds depend on parameters named earlier, as in `Uniform(0, tau)`.

    `find` maps those parameters to the constraint; `example` is the constraint at some value of
    them, and fixes the number of coordinates.
    """

    def __init__(self, find: Callable[[Params], Constraint], example: Constraint, *shape: int):
        super().__init__(example, *shape)
        self._find = find

    def constraint(self, earlier: Params) -> Constraint:
        return self._find(earlier)


class Product(Mapping[str, Space]):
    """Named spaces in order, and the vector of real coordinates that they share.

    >>> space = Product({"scale": Positive(), "centre": Real(2)})
    >>> space.dim
    3
    >>> space.coordinates
    ('scale', 'centre[0]', 'centre[1]')
    >>> params = space.constrain(jnp.array([0.0, 1.0, 2.0]))
    >>> float(params["scale"])
    1.0
    """

    def __init__(self, spaces: Mapping[str, Space]):
        if not isinstance(spaces, Mapping) or not spaces:
            raise ValueError(
                "space must be a non-empty mapping from parameter names to spaces, such as "
                f'{{"beta": vcmc.Real(5)}}; got {spaces!r}.'
            )
        for name, space in spaces.items():
            if not isinstance(space, Space):
                raise TypeError(
                    f"space[{name!r}] must be a space such as vcmc.Real(5) or vcmc.Positive(); got {space!r}."
                )
        self._spaces = dict(spaces)
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
        """Where the coordinates of some parameters are in a point."""
        ends = dict(zip(self, self._ends, strict=True))
        return tuple(i for name in names for i in range(ends[name] - self[name].dim, ends[name]))

    def __eq__(self, other: object) -> bool:
        return self is other  # as compiled functions see it

    def __hash__(self) -> int:
        return id(self)

    def labelled(self) -> list[tuple[tuple[int, ...], "Product"]]:
        """Parameters whose exchangeable components share their labels: their coordinates, and their space."""
        found = []
        for count in sorted({space.num_labels for space in self.values() if space.num_labels}):
            part = Product(
                {name: space for name, space in self.items() if space.num_labels == count}
            )
            found.append((self.indices(*part), part))
        return found

    @property
    def curved(self) -> np.ndarray:
        """Which coordinates are not values themselves."""
        return np.concatenate([np.full(space.dim, not space.is_real) for space in self.values()])

    @property
    def coordinates(self) -> tuple[str, ...]:
        """A name for every coordinate of a point, such as `beta[2]`."""
        return tuple(
            name if space.point_shape == () else f"{name}[{','.join(map(str, index))}]"
            for name, space in self.items()
            for index in np.ndindex(space.point_shape)
        )

    def constrain_with_log_det(self, point: Point) -> tuple[dict[str, jax.Array], Scalar]:
        """The params at a point, and the log determinant of the map's Jacobian there."""
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
        """The params at a point."""
        return self.constrain_with_log_det(point)[0]

    def relabel(self, point: Point, order: jax.Array) -> Point:
        """The point with its exchangeable components in another order: component l is the old `order[l]`.

        Parameters whose components are not as many as `order` are left alone.
        """
        parts = jnp.split(point, self._ends[:-1])
        return jnp.concatenate(
            [
                space.relabel(part, order) if space.num_labels == len(order) else part
                for space, part in zip(self.values(), parts, strict=True)
            ]
        )

    def components(self, point: Point) -> jax.Array:
        """Real coordinates of exchangeable parameters by component, an array (component, coordinate)."""
        parts = jnp.split(point, self._ends[:-1])
        return jnp.concatenate(
            [space.components(part) for space, part in zip(self.values(), parts, strict=True)],
            axis=1,
        )

    def unconstrain(self, params: Params) -> Point:
        """The point of given params: the inverse of `constrain`."""
        parts: list[jax.Array] = []
        earlier: dict[str, jax.Array] = {}
        for name, space in self.items():
            value = jnp.asarray(params[name], float)
            parts.append(jnp.ravel(biject_to(space.constraint(earlier)).inv(value)))
            earlier[name] = value
        return jnp.concatenate(parts)


def _need_axes(name: str, shape: tuple[int, ...], count: int, meaning: str) -> None:
    if len(shape) < count:
        raise ValueError(f"{name} needs {meaning}, as in {name}(4); got no size.")
