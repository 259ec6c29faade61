"""Draw the observed variables of a PyMC model anew, as `pm.sample_posterior_predictive` does.

The model's own graph is run for one draw after the other. Free variables and rows are its inputs.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..host_simulator import AbstractHostSimulator, Arrays
from .checks import FEW_ROWS, MORE_ROWS
from .graph import ancestors

_LOCK = threading.Lock()  # PyTensor's functions keep their values, and belong to one thread


class GraphSimulator(AbstractHostSimulator):
    """Draws the variables that are observed by row.

    Every row is a group of its own here, as rows are independent given their local variables.

    Args:
        model: the PyMC model.
        row_names: the names of `pm.Data` that are rows, or columns of the table of groups.
        groups: the column of groups, if any.
        local_axes: the axis of groups of each local variable.
        group_observed: variables that are observed by group, which are not predicted.
    """

    def __init__(
        self,
        model: Any,
        row_names: Iterable[str],
        groups: str | None = None,
        local_axes: Mapping[str, int] | None = None,
        group_observed: Iterable[str] = (),
    ):
        self.model, self.groups = model, groups
        self.row_names, self.local_axes = list(row_names), dict(local_axes or {})
        self._names = [rv.name for rv in model.observed_RVs if rv.name not in {*group_observed}]
        self._functions: dict[str, tuple[Any, list[Any]]] = {}
        self._axes: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_functions": {}}

    @property
    def names(self) -> Sequence[str]:
        return self._names

    @property
    def columns(self) -> Sequence[str]:
        """The rows that variables depend on by more than their number."""
        needed = _reached([self.model[name] for name in self._names])
        return [name for name in self.row_names if self.model[name] in needed]

    @property
    def known_columns(self) -> Sequence[str]:
        return self.row_names

    def simulate(
        self, name: str, seed: Sequence[int], params: Arrays, local: Arrays, rows: Arrays
    ) -> np.ndarray:
        axes = self.local_axes
        moved = {key: np.moveaxis(v, 1, 1 + axes[key]) for key, v in local.items()}
        inputs = self._row_inputs(rows)
        with _LOCK:
            values = np.stack(self._run(name, seed, {**params, **moved}, inputs))
            axis = self._row_axis(name, {**params, **moved}, inputs)
        return np.moveaxis(values, 1 + axis, 1)

    def simulate_local(self, seed: Sequence[int], params: Arrays) -> dict[str, np.ndarray]:
        names = list(self.local_axes)
        with _LOCK:
            run = self._function("", names, params)
            values = list(_draws(run, seed, params, []))
        return {
            name: np.take(np.stack([value[index] for value in values]), 0, 1 + axis)
            for index, (name, axis) in enumerate(self.local_axes.items())
        }

    def _row_inputs(self, rows: Arrays) -> list[np.ndarray]:
        """Return rows in the order of inputs; those that only give the number of rows are zeros."""
        count = len(next(iter(rows.values())))
        inputs = []
        for name in self.row_names:
            data = self.model[name]
            if name == self.groups:
                value = np.arange(count)
            elif name in rows:
                value = rows[name]
            else:
                value = np.zeros((count, *data.get_value(borrow=True).shape[1:]))
            inputs.append(np.asarray(value).astype(data.dtype))
        return inputs

    def _run(
        self, name: str, seed: Sequence[int], values: Arrays, rows: list[np.ndarray]
    ) -> list[np.ndarray]:
        run = self._function(name, [name], values, self.row_names)
        return [value[0] for value in _draws(run, seed, values, rows)]

    def _row_axis(self, name: str, values: Arrays, rows: list[np.ndarray]) -> int:
        """Return the axis of rows of a value, by its shapes for two numbers of rows."""
        if name not in self._axes:
            shapes = []
            for count in (FEW_ROWS, MORE_ROWS):
                first = {key: value[:1] for key, value in values.items()}
                for key, axis in self.local_axes.items():
                    first[key] = np.take(first[key], np.zeros(count, int), 1 + axis)
                some = [np.repeat(row[:1], count, axis=0) for row in rows]
                if self.groups is not None:
                    place = self.row_names.index(self.groups)
                    some[place] = np.arange(count).astype(some[place].dtype)
                shapes.append(self._run(name, [0], first, some)[0].shape)
            sizes = enumerate(zip(*shapes, strict=True))
            self._axes[name] = next(axis for axis, (few, more) in sizes if few != more)
        return self._axes[name]

    def _function(
        self, key: str, outputs: list[str], free: Iterable[str], rows: Sequence[str] = ()
    ) -> tuple[Any, list[Any]]:
        """Return a compiled function of free variables, sorted by name, and rows.

        Its random generators are returned, too.
        """
        if key not in self._functions:
            self._functions[key] = self._compiled(outputs, sorted(free), rows)
        return self._functions[key]

    def _compiled(
        self, outputs: list[str], free: list[str], rows: Sequence[str]
    ) -> tuple[Any, list[Any]]:
        from pymc.pytensorf import compile as compile_graph
        from pytensor import shared
        from pytensor.compile.sharedvalue import SharedVariable
        from pytensor.graph.replace import clone_replace
        from pytensor.tensor import constant
        from pytensor.tensor.random.type import RandomGeneratorType

        model = self.model
        inputs = {}
        for name in free:  # of any number of groups
            variable = model[name]
            shape = (None,) * variable.ndim if name in self.local_axes else variable.type.shape
            inputs[variable] = variable.type.clone(shape=shape)(name)
        row_inputs = {model[name]: model[name].type(name) for name in rows}
        graph = clone_replace([model[name] for name in outputs], replace=inputs)
        replaced = dict(row_inputs)
        if not rows and self.groups in model.dim_lengths:
            length = model.dim_lengths[self.groups]
            replaced[length] = constant(1, dtype=length.dtype)
        graph = clone_replace(graph, replace=replaced, rebuild_strict=False)
        # random generators of its own: those of the user's model stay as they are
        generators = {
            variable: shared(np.random.default_rng(0))
            for variable in ancestors(graph)
            if isinstance(variable, SharedVariable)
            and isinstance(variable.type, RandomGeneratorType)
        }
        graph = clone_replace(graph, replace=generators)
        run = compile_graph(
            [*inputs.values(), *row_inputs.values()], graph, on_unused_input="ignore"
        )
        return run, list(generators.values())


def _draws(
    function: tuple[Callable[..., Any], list[Any]],
    seed: Sequence[int],
    values: Arrays,
    rows: list[np.ndarray],
) -> Iterable[list[np.ndarray]]:
    """Yield the outputs of a function at one draw after the other."""
    run, generators = function
    children = np.random.SeedSequence(list(seed)).spawn(len(generators))
    for generator, child in zip(generators, children, strict=True):
        generator.set_value(np.random.Generator(np.random.PCG64(child)), borrow=True)
    for draw in zip(*(values[name] for name in sorted(values)), strict=True):
        yield [np.array(value) for value in run(*draw, *rows)]


def _reached(variables: Iterable[Any]) -> set[Any]:
    """Return what variables are computed from, other than by its shape."""
    from pytensor.tensor.shape import Shape, Shape_i

    visited: set[Any] = set()
    stack = list(variables)
    while stack:
        variable = stack.pop()
        if variable in visited:
            continue
        visited.add(variable)
        if variable.owner is not None and not isinstance(variable.owner.op, Shape | Shape_i):
            stack.extend(variable.owner.inputs)
    return visited
