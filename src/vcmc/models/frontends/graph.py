"""The graph of a PyMC model as JAX functions of params and rows.

PyMC writes densities as PyTensor graphs of random variables and data. Here, the free random
variables, by their untransformed values, and the data that are rows are replaced by inputs.
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
from .checks import first_line

MIN_ERFCX_ARGUMENT = -26.0  # below, exp(x²) overflows


class GraphFunction:
    """Outputs of a graph as a JAX function of the params and rows that they depend on.

    Attributes:
        params: dtypes of the params.
        rows: dtypes of the rows.
    """

    def __init__(
        self, run: Callable[..., Sequence[Any]], params: dict[str, str], rows: dict[str, str]
    ):
        self._run, self.params, self.rows = run, params, rows

    def __call__(self, params: Params, rows: Rows) -> list[Array]:
        # With explicit dtypes: that of a Python number is weak, and would give way to 32 bits.
        inputs = [jnp.asarray(params[name], dtype) for name, dtype in self.params.items()]
        inputs += [jnp.asarray(rows[name], dtype) for name, dtype in self.rows.items()]
        return [jnp.asarray(output) for output in self._run(*inputs)]


class Graph:
    """A PyMC model whose free random variables and rows are inputs.

    Attributes:
        model: the PyMC model.
        values: the input of each free random variable.
        rows: the input of each `pm.Data` that are rows.
    """

    def __init__(self, model: Any, row_names: Iterable[str], local_names: Iterable[str] = ()):
        from pymc.logprob import conditional_logp

        self.model = model
        any_size = set(local_names)  # local variables may have values of any number of groups
        self.values = {
            rv: (
                rv.type.clone(shape=(None,) * rv.ndim)(rv.name)
                if rv.name in any_size
                else rv.type(rv.name)
            )
            for rv in model.free_RVs
        }
        self.rows = {model[name]: _wide_type(model[name])(name) for name in row_names}
        observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
        self._all_values = {**self.values, **observed}
        try:
            terms = conditional_logp(dict(self._all_values), warn_rvs=False)
        except NotImplementedError as error:
            raise ValueError(
                f"PyMC cannot derive the model's log density: {first_line(error)}"
            ) from None
        self._terms = {rv: terms[value] for rv, value in self._all_values.items()}

    def log_density(self, variable: Any) -> Any:
        """Return the log density of a random variable, or the value of a potential, elementwise."""
        return self._terms.get(variable, variable)

    def function(self, outputs: Iterable[Any]) -> GraphFunction:
        """Return outputs as a JAX function."""
        replaced = self._replace(outputs)
        needed = set(ancestors(replaced))
        params = [value for value in self.values.values() if value in needed]
        rows = [row for row in self.rows.values() if row in needed]
        return GraphFunction(
            jaxify([*params, *rows], replaced),
            {value.name: value.dtype for value in params},
            {row.name: row.dtype for row in rows},
        )

    def shapes(self, variables: Sequence[Any], rows: Rows) -> list[tuple[int, ...]]:
        """Return the shapes of variables, given rows."""
        from pytensor import function
        from pytensor.compile.mode import Mode
        from pytensor.graph.replace import clone_replace

        shapes = [variable.shape for variable in variables]
        shapes = clone_replace(shapes, replace=self.rows, rebuild_strict=False)
        run = function(
            list(self.rows.values()),
            shapes,
            mode=Mode(linker="py", optimizer="fast_compile"),  # no C compiler for a few numbers
            on_unused_input="ignore",
        )
        values = [np.asarray(rows[row.name]).astype(row.dtype) for row in self.rows.values()]
        return [tuple(int(size) for size in shape) for shape in run(*values)]

    def _replace(self, outputs: Iterable[Any]) -> list[Any]:
        from pytensor.graph.replace import clone_replace

        outputs = clone_replace(list(outputs), replace=self._all_values)
        outputs = clone_replace(outputs, replace=self.rows, rebuild_strict=False)
        return clone_replace(outputs, replace=_doubles(outputs), rebuild_strict=False)


def _wide_type(data: Any) -> Any:
    """Return the type of data in 64 bits: JAX's log-gamma function of 32-bit integers has 32."""
    kind = np.dtype(data.dtype).kind
    return data.type.clone(dtype={"i": "int64", "u": "int64", "f": "float64"}.get(kind, data.dtype))


def _doubles(outputs: Iterable[Any]) -> dict[Any, Any]:
    """Return, for functions of constants that PyTensor computes in 32 bits, the same in 64 bits.

    PyTensor holds the 10 of `pm.Normal("mu", 0, 10)` in eight bits, and takes its logarithm in 32.
    """
    from pytensor.graph.basic import Constant
    from pytensor.tensor.elemwise import Elemwise

    def is_single(variable: Any) -> bool:
        node = variable.owner
        return node is not None and isinstance(node.op, Elemwise) and variable.dtype == "float32"

    def is_constant(variable: Any) -> bool:
        leaves = (source for source in ancestors([variable]) if source.owner is None)
        return all(isinstance(leaf, Constant) for leaf in leaves)

    return {
        variable: _in_double(variable)
        for variable in ancestors(outputs)
        if is_single(variable) and is_constant(variable)
    }


def _in_double(variable: Any) -> Any:
    from pytensor.tensor import cast
    from pytensor.tensor.elemwise import DimShuffle, Elemwise

    if variable.owner is not None and isinstance(variable.owner.op, Elemwise | DimShuffle):
        return variable.owner.op(*[_in_double(value) for value in variable.owner.inputs])
    return cast(variable, "float64")


def ancestors(variables: Iterable[Any]) -> list[Any]:
    """Return the variables that some variables are computed from, including themselves."""
    visited: dict[Any, None] = {}
    stack = list(variables)
    while stack:
        variable = stack.pop()
        if variable not in visited:
            visited[variable] = None
            if variable.owner is not None:
                stack.extend(variable.owner.inputs)
    return list(visited)


def jaxify(inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """Return a graph as a JAX function of its inputs."""
    get_jaxified_graph = _compiler()
    try:
        return get_jaxified_graph(inputs=list(inputs), outputs=list(outputs))
    # ValueError if a density is itself random, as those of simulators are.
    except (NotImplementedError, ValueError) as error:
        raise ValueError(
            f"the model has an operation that PyTensor cannot run in JAX ({first_line(error)}): "
            "use other operations, or write the model in JAX or NumPyro."
        ) from None


def _compiler() -> Callable[..., Any]:
    """Return PyMC's compiler from graphs to JAX, without its side effects on the process."""
    flags = os.environ.get("XLA_FLAGS")
    # Importing it for the first time asks XLA for a hundred devices.
    from pymc.sampling.jax import get_jaxified_graph

    if flags is None:
        os.environ.pop("XLA_FLAGS", None)
    else:
        os.environ["XLA_FLAGS"] = flags
    from pytensor.link.jax.dispatch import jax_funcify
    from pytensor.scalar.math import Erfcx

    # PyTensor 2 needs TensorFlow Probability for truncated normals.
    if "tfp" in jax_funcify.dispatch(Erfcx).__name__:
        jax_funcify.register(Erfcx, lambda op, **_: _erfcx)  # noqa: ARG005
    _register_arange(jax_funcify)
    return get_jaxified_graph


def _register_arange(jax_funcify: Any) -> None:
    """Let ranges end beyond 127: PyTensor holds the constant at which they start in eight bits."""
    from pytensor.graph.basic import Constant
    from pytensor.tensor.basic import ARange

    registered = jax_funcify.dispatch(ARange)
    if registered.__module__ == __name__:
        return

    def arange(op: Any, node: Any, **kwargs: Any) -> Callable[..., Array]:
        registered(op, node=node, **kwargs)  # refuses ends that are not known
        fixed = [
            np.asarray(value.data).item() if isinstance(value, Constant) else None
            for value in node.inputs
        ]

        def run(*ends: Any) -> Array:
            start, stop, step = (
                end if value is None else value for end, value in zip(ends, fixed, strict=True)
            )
            return jnp.arange(start, stop, step, dtype=op.dtype)

        return run

    jax_funcify.register(ARange, arange)


def _erfcx(x: Array) -> Array:
    """Return exp(x²) erfc(x), finite also in branches that `where` does not take."""
    bounded = jnp.maximum(x, MIN_ERFCX_ARGUMENT)
    return 2 * jnp.exp(bounded**2 + log_ndtr(-np.sqrt(2) * bounded))
