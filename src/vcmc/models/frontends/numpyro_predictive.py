"""Draw the observed sites of a NumPyro model anew, as NumPyro's own `Predictive` does."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array
from numpyro import handlers

from ...data.rows import Rows
from ...space import Params
from .sites import TRACE_LOCK, WithoutSlashes, read_rows

_VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


@dataclass(frozen=True)
class SiteSimulator:
    """A function that draws the observed sites given params and rows.

    Rows may lack the observed columns, whose arguments are then None, as users of NumPyro write
    it. Where they have them, the sites are drawn all the same. It is no nested function, as these
    are pickled with the lock that they refer to.

    Attributes:
        model: the model.
        constants: arguments that are not per row.
        row_axes: the axis of rows of each site's value.
    """

    model: Callable[..., Any]
    constants: Mapping[str, Any]
    row_axes: Mapping[str, int]

    def __call__(self, key: Array, params: Params, rows: Rows) -> dict[str, Array]:
        parameters = inspect.signature(self.model).parameters.values()
        required = [p.name for p in parameters if p.default is p.empty and p.kind not in _VARIABLE]
        arguments = {
            **dict.fromkeys(required),
            **read_rows(self.model, rows),
            **self.constants,
        }
        seeded = handlers.seed(handlers.uncondition(WithoutSlashes(self.model)), key)
        with TRACE_LOCK:
            trace = handlers.trace(handlers.substitute(seeded, data=dict(params))).get_trace(
                **arguments
            )
        return {
            name: jnp.moveaxis(trace[name]["value"], axis, 0)
            for name, axis in self.row_axes.items()
        }
