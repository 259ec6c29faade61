"""Draw the observed sites of a NumPyro model anew, as NumPyro's own `Predictive` does."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro import handlers
from numpyro.primitives import Messenger

from ...data.rows import Rows, native
from ...space import Params
from .sites import TRACE_LOCK, Site, WithoutSlashes

_VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


class ValuePerRow(Messenger):
    """Draw one value per row where a distribution is the same for all rows.

    Data of any length may be given to such a site, but a value that is drawn has the shape of the
    distribution.

    Args:
        fn: the model.
        shapes: the shapes of the values of its observed sites.
    """

    def __init__(self, fn: Callable[..., Any], shapes: Mapping[str, tuple[int, ...]]):
        super().__init__(fn)
        self._shapes = shapes

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample" or msg["name"] not in self._shapes:
            return
        fn, shape = msg["fn"], self._shapes[msg["name"]]
        num_batch_axes = len(shape) - fn.event_dim
        batch, event = shape[:num_batch_axes], shape[num_batch_axes:]
        if fn.batch_shape != batch and fn.event_shape == event and _extends(fn.batch_shape, batch):
            msg["fn"] = fn.expand(batch)


def _extends(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    """Return whether arrays of a shape broadcast to another one."""
    try:
        return np.broadcast_shapes(shape, larger) == larger
    except ValueError:
        return False


def entries(arrays: Rows) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes and types of the entries of columns."""
    return {
        name: jax.ShapeDtypeStruct(array.shape[1:], native(array[:1]).dtype)
        for name, array in arrays.items()
    }


@dataclass(frozen=True)
class SiteSimulator:
    """A function that draws the observed sites given params and rows.

    Rows may lack the observed columns, whose arguments are then None, as users of NumPyro write
    it. Where they have them, the sites are drawn all the same. Columns that are no arguments are
    ignored. It is no nested function, as these are pickled with the lock that they refer to.

    Attributes:
        model: the model.
        constants: arguments that are not per row.
        row_axes: the axis of rows of each site's value.
        shapes: the shape of each site's value, for some number of rows.
        columns: the columns that the model was made with: the shapes and types of their entries.
    """

    model: Callable[..., Any]
    constants: Mapping[str, Any]
    row_axes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    columns: Mapping[str, jax.ShapeDtypeStruct]

    @classmethod
    def of_sites(
        cls,
        model: Callable[..., Any],
        constants: Mapping[str, Any],
        observed: Iterable[str],
        sites: tuple[Mapping[str, Site], Mapping[str, Site]],
        arrays: Rows,
    ) -> "SiteSimulator":
        """Find the axes of rows by sites on few and on more rows; factors have no values."""
        few, more = sites
        axes = {
            name: next(
                axis for axis, size in enumerate(few[name].shape) if size != more[name].shape[axis]
            )
            for name in observed
            if few[name].kind == "observed" and few[name].shape != more[name].shape
        }
        shapes = {name: few[name].shape for name in axes}
        return cls(model, constants, axes, shapes, entries(arrays))

    @property
    def arguments(self) -> list[str]:
        """The names of the model's arguments that rows may have."""
        parameters = inspect.signature(self.model).parameters.values()
        names = [p.name for p in parameters if p.kind not in _VARIABLE]
        return [name for name in names if name not in self.constants]

    def __call__(self, key: Array, params: Params, rows: Rows) -> dict[str, Array]:
        return self.values(self.trace(key, params, rows, self.constants))

    def trace(self, key: Array, values: Params, rows: Rows, constants: Any) -> dict[str, Any]:
        """Run the model with some of its values fixed, and all others drawn."""
        parameters = inspect.signature(self.model).parameters.values()
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = [p.name for p in parameters if p.kind not in _VARIABLE]
        required = [p.name for p in parameters if p.default is p.empty and p.name in named]
        given = {name: rows[name] for name in rows if takes_any or name in named}
        arguments = {**dict.fromkeys(required), **given, **constants}
        drawn = handlers.uncondition(WithoutSlashes(self.model))
        seeded = handlers.seed(ValuePerRow(drawn, self._shapes_for(rows)), key)
        with TRACE_LOCK:
            return handlers.trace(handlers.substitute(seeded, data=dict(values))).get_trace(
                **arguments
            )

    def _shapes_for(self, rows: Rows) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the sites' values for the number of these rows."""
        if not rows:
            return {}
        count = jnp.shape(next(iter(rows.values())))[0]
        return {
            name: (*self.shapes[name][:axis], count, *self.shapes[name][axis + 1 :])
            for name, axis in self.row_axes.items()
        }

    def values(self, trace: Mapping[str, Any]) -> dict[str, Array]:
        """Return the values of the observed sites, with the axis of rows first."""
        return {
            name: jnp.moveaxis(trace[name]["value"], axis, 0)
            for name, axis in self.row_axes.items()
        }


@dataclass(frozen=True)
class GroupedSiteSimulator(SiteSimulator):
    """Functions that draw observed sites, or local sites, of a model with groups.

    Every row is a group of its own here, as rows are independent given their local parameters.

    Attributes:
        column: the argument with the number of every row's group.
        number: the argument with the number of groups, if it has one.
        local_axes: the axis of groups of each local site.
    """

    column: str
    number: str | None
    local_axes: Mapping[str, int]

    def __call__(  # type: ignore[override]
        self, key: Array, params: Params, local: Params, rows: Rows
    ) -> dict[str, Array]:
        axes = self.local_axes
        moved = {name: jnp.moveaxis(value, 0, axes[name]) for name, value in local.items()}
        return self.values(self._trace_rows(key, {**params, **moved}, rows))

    def simulate_local(self, key: Array, params: Params, rows: Rows) -> dict[str, Array]:
        """Draw local sites of new groups, each with one row."""
        trace = self._trace_rows(key, params, rows)
        axes = self.local_axes.items()
        return {name: jnp.moveaxis(trace[name]["value"], axis, 0) for name, axis in axes}

    def _trace_rows(self, key: Array, values: Params, rows: Rows) -> dict[str, Any]:
        count = jnp.shape(rows[self.column])[0]
        constants = {**self.constants, self.column: jnp.arange(count)}
        if self.number:
            constants[self.number] = count
        return self.trace(key, values, rows, constants)
