"""Names of the axes of parameters (dims), and labels along them (coords), as in xarray.

PyMC, ArviZ and xarray use both, so a result must keep those that its model declares: PyMC draws a
parameter from its *prior* if the dims or coords of its draws are not the model's.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

Dims = tuple[str | None, ...]
Shapes = Mapping[str, tuple[int, ...]]
Groups = dict[str, dict[str, np.ndarray]]

SAMPLE_DIMS = {"chain", "draw"}  # names that no axis of a value can have
DIMS_GROUP, COORDS_GROUP = "dims", "coords"  # of the groups that store labels beside arrays


class Labels(NamedTuple):
    """Dims of parameters, and coords of dims.

    Attributes:
        dims: for every parameter that has them, the names of its axes; None if an axis has none.
        coords: for every dim, one label per element.
    """

    dims: dict[str, Dims]
    coords: dict[str, np.ndarray]

    @classmethod
    def checked(
        cls,
        shapes: Shapes,
        dims: Mapping[str, Iterable[str | None]] | None,
        coords: Mapping[str, Any] | None,
    ) -> "Labels":
        """Check the user's dims and coords; a dim without coords is numbered from zero."""
        named = {name: _as_dims(name, value) for name, value in (dims or {}).items()}
        labels = {dim: as_coords(values) for dim, values in (coords or {}).items()}
        for name, axes in named.items():
            shape = shapes.get(name)
            if shape is None:
                continue  # a derived quantity, whose shape is not known yet
            if len(axes) != len(shape):
                raise ValueError(
                    f"dims[{name!r}] must name the {len(shape)} axes of a value of shape {shape}; "
                    f"got {axes}."
                )
            for dim, size in zip(axes, shape, strict=True):
                if dim is not None and len(labels.setdefault(dim, np.arange(size))) != size:
                    raise ValueError(
                        f"coords[{dim!r}] must have one label for each of the {size} elements of "
                        f"{name!r} along {dim!r}; got {len(labels[dim])}."
                    )
        used = {dim for axes in named.values() for dim in axes}
        named = {name: axes for name, axes in named.items() if any(axes)}
        return cls(named, {dim: values for dim, values in labels.items() if dim in used})

    @classmethod
    def of_dataset(cls, dataset: Any, leading: Iterable[str]) -> "Labels":
        """Return the labels of a dataset whose arrays have the leading dims first."""
        num_leading = len(list(leading))
        dims = {
            str(name): tuple(
                None if dim == default_dim(str(name), axis) else str(dim)
                for axis, dim in enumerate(dataset[name].dims[num_leading:])
            )
            for name in dataset.data_vars
        }
        sizes = {dim: dataset.sizes[dim] for axes in dims.values() for dim in axes if dim}
        coords = {
            dim: as_coords(dataset[dim].to_numpy()) if dim in dataset.coords else np.arange(size)
            for dim, size in sizes.items()
        }
        return cls({name: axes for name, axes in dims.items() if any(axes)}, coords)

    @classmethod
    def from_groups(cls, groups: Mapping[str, Mapping[str, np.ndarray]]) -> "Labels":
        """Return the labels that groups of arrays hold."""
        dims = {
            name: tuple(dim or None for dim in axes.tolist())
            for name, axes in groups.get(DIMS_GROUP, {}).items()
        }
        return cls(dims, dict(groups.get(COORDS_GROUP, {})))

    @property
    def groups(self) -> Groups:
        """The labels as groups of arrays, to be stored beside other groups."""
        dims = {name: np.array([dim or "" for dim in axes]) for name, axes in self.dims.items()}
        groups = {DIMS_GROUP: dims, COORDS_GROUP: self.coords}
        return {name: group for name, group in groups.items() if group}

    def names(self, shapes: Shapes, leading: Iterable[str]) -> dict[str, list[str]]:
        """Return the names of all axes of the values of a group.

        An axis gets a default name if its dim is also one of the leading axes or a value's name,
        or if its size is another one, as that of the unconstrained coordinates of a simplex is.
        """
        taken = {*SAMPLE_DIMS, *leading, *shapes}
        names: dict[str, list[str]] = {}
        for name, shape in shapes.items():
            dims = self.dims.get(name, ())
            if len(dims) != len(shape):
                continue
            axes: list[str] = []
            for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
                fits = dim is not None and dim not in taken and dim not in axes
                fits = fits and dim in self.coords and len(self.coords[dim]) == size
                axes.append(dim if dim is not None and fits else default_dim(name, axis))
            names[name] = axes
        return names

    def elements(self, name: str, shape: tuple[int, ...]) -> dict[tuple[int, ...], str]:
        """Return the names of the elements of a parameter by index, e.g. `beta[age]`.

        An axis is labelled by numbers if it has no dim, if its labels are not unique, or if its
        size is another one, as that of the unconstrained coordinates of a simplex is.
        """
        dims = self.dims.get(name, ())
        dims = dims if len(dims) == len(shape) else (None,) * len(shape)
        labels = [self._axis(dim, size) for dim, size in zip(dims, shape, strict=True)]
        by_index = zip(np.ndindex(*shape), product(*labels), strict=True)
        return {index: element_label(name, own) for index, own in by_index}

    def _axis(self, dim: str | None, size: int) -> list[str]:
        values = [] if dim is None else [str(v) for v in self.coords.get(dim, [])]
        return values if len(set(values)) == size == len(values) else list(map(str, range(size)))


NO_LABELS = Labels({}, {})


def element_label(name: str, index: Iterable[Any]) -> str:
    """Return the label of an element of a parameter, e.g. `beta[3]` or `beta[age]`."""
    labels = list(map(str, index))
    return f"{name}[{','.join(labels)}]" if labels else name


def default_dim(name: str, axis: int) -> str:
    """Return the name that ArviZ gives to an axis without one."""
    return f"{name}_dim_{axis}"


def as_coords(values: Any) -> np.ndarray:
    """Return coords as an array that files can hold: dates are kept, other objects become text."""
    values = list(values)
    array = np.asarray(values)
    if array.dtype.kind == "O":
        from xarray import Variable  # slow to import

        array = Variable(("label",), array).to_numpy()
    if array.ndim != 1 or array.dtype.kind == "O":
        return np.array([str(value) for value in values])
    return array


def _as_dims(name: str, dims: Any) -> Dims:
    axes = (dims,) if isinstance(dims, str) else tuple(dims)
    if bad := [dim for dim in axes if dim is not None and not isinstance(dim, str)]:
        raise TypeError(
            f"dims[{name!r}] must be names of axes, e.g. {{{name!r}: ['feature']}}; got {bad[0]!r}."
        )
    for dim in axes:
        if dim is not None and (not dim or not dim.isprintable() or "/" in dim):
            raise ValueError(
                f"dims[{name!r}] must be printable names without a slash, which stands for a group "
                f"in results; got {dim!r}."
            )
    return axes
