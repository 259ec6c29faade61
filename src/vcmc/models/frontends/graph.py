"""A PyMC model's graph as JAX functions of params and rows.

PyMC writes densities as PyTensor graphs of random variables and data. Here inputs take the place of the free
random variables, by their values as they are, not transformed, and of the data that are rows.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array

from ...data.rows import Rows
from ...space import Params


class GraphFunction:
    """Outputs of a graph as a JAX function of those params and rows that it needs."""

    def __init__(
        self, run: Callable[..., Sequence[Any]], params: dict[str, str], rows: dict[str, str]
    ):
        self._run, self.params, self.rows = run, params, rows

    def __call__(self, params: Params, rows: Rows) -> list[Array]:
        # With the dtype said, as a bare number's is weak and would give way to 32 bits.
        inputs = [jnp.asarray(params[name], dtype) for name, dtype in self.params.items()]
        inputs += [jnp.asarray(rows[name], dtype) for name, dtype in self.rows.items()]
        return [jnp.asarray(output) for output in self._run(*inputs)]


class Graph:
    """A PyMC model whose free random variables and rows are inputs."""

    def __init__(self, model: Any, row_names: Iterable[str]):
        from pymc.logprob import conditional_logp

        self.model = model
        self.values = {rv: rv.type(rv.name) for rv in model.free_RVs}
        self.rows = {model[name]: model[name].type(name) for name in row_names}
        observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
        self._given = {**self.values, **observed}
        try:
            terms = conditional_logp(dict(self._given), warn_rvs=False)
        except NotImplementedError as error:
            raise ValueError(
                f"PyMC cannot write down the model's log density: {first_line(error)}"
            ) from None
        self._terms = {rv: terms[value] for rv, value in self._given.items()}

    def log_density(self, variable: Any) -> Any:
        """Log density of a random variable, or the value of a potential, elementwise."""
        return self._terms.get(variable, variable)

    def function(self, outputs: Iterable[Any]) -> GraphFunction:
        """Outputs as a JAX function."""
        inside = self._replaced(outputs)
        found = set(ancestors(inside))
        params = [value for value in self.values.values() if value in found]
        rows = [row for row in self.rows.values() if row in found]
        return GraphFunction(
            jaxified([*params, *rows], inside),
            {value.name: value.dtype for value in params},
            {row.name: row.dtype for row in rows},
        )

    def shapes(self, variables: Sequence[Any], rows: Rows) -> list[tuple[int, ...]]:
        """Shapes of variables, given rows."""
        from pytensor import function
        from pytensor.compile.mode import Mode
        from pytensor.graph.replace import clone_replace

        shapes = clone_replace([variable.shape for variable in variables], replace=self.rows)
        run = function(
            list(self.rows.values()),
            shapes,
            mode=Mode(
                linker="py", optimizer="fast_compile"
            ),  # no compiler is called for a few numbers
            on_unused_input="ignore",
        )
        values = [np.asarray(rows[row.name]).astype(row.dtype) for row in self.rows.values()]
        return [tuple(int(size) for size in shape) for shape in run(*values)]

    def _replaced(self, outputs: Iterable[Any]) -> list[Any]:
        from pytensor.graph.replace import clone_replace

        return clone_replace(clone_replace(list(outputs), replace=self._given), replace=self.rows)


def ancestors(variables: Iterable[Any]) -> list[Any]:
    """The variables that some variables are computed from, and they themselves."""
    found: dict[Any, None] = {}
    waiting = list(variables)
    while waiting:
        variable = waiting.pop()
        if variable not in found:
            found[variable] = None
            if variable.owner is not None:
                waiting.extend(variable.owner.inputs)
    return list(found)


def jaxified(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """A graph as a JAX function of its inputs."""
    get_jaxified_graph = _compiler()
    try:
        return get_jaxified_graph(inputs=list(inputs), outputs=list(outputs))
    except (
        NotImplementedError,
        ValueError,
    ) as error:  # the latter where a density is itself random, as simulators' are
        raise ValueError(
            f"the model has an operation that PyTensor cannot run in JAX ({first_line(error)}): write it with operations "
            "that it can, or write the model in JAX or NumPyro."
        ) from None


def _compiler() -> Callable[..., Any]:
    """PyMC's way from graphs to JAX, without what it does to the process."""
    flags = os.environ.get("XLA_FLAGS")
    from pymc.sampling.jax import (
        get_jaxified_graph,  # asks XLA for a hundred devices when first imported
    )

    if flags is None:
        os.environ.pop("XLA_FLAGS", None)
    else:
        os.environ["XLA_FLAGS"] = flags
    from pytensor.link.jax.dispatch import jax_funcify
    from pytensor.scalar.math import Erfcx

    if (
        "tfp" in jax_funcify.dispatch(Erfcx).__name__
    ):  # PyTensor 2 would want TensorFlow for truncated normals
        jax_funcify.register(Erfcx, lambda op, **_: _erfcx)  # noqa: ARG005
    return get_jaxified_graph


def _erfcx(x: Array) -> Array:
    """exp(x²) erfc(x), which is finite wherever its gradient is asked for, also in branches that are not taken."""
    inside = jnp.maximum(x, -26.0)
    return 2 * jnp.exp(inside**2 + log_ndtr(-np.sqrt(2) * inside))


def first_line(error: Exception) -> str:
    """What an error says first."""
    return str(error).strip().split("\n")[0]
