"""Make `pm.Data` of the rows that a PyMC model by Bambi holds as constants.

A constant belongs to rows if it has an entry for each of them and lies between the parameters and
the response. The graph is copied into a new model with data in place of such constants.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .graph import ancestors

SUFFIX = "__obs"  # of names of data, after Bambi's dim of rows


class CentredIntercept(NamedTuple):
    """What Bambi subtracts from an intercept after sampling.

    Attributes:
        means: means of the predictors' columns.
        terms: names of their coefficients.
    """

    means: Float[np.ndarray, " column"]
    terms: list[str]


class BuiltModel(NamedTuple):
    """A PyMC model by Bambi, and what its constants mean.

    Attributes:
        model: the PyMC model.
        columns: arrays with an entry per row, by the names that they get; others are numbered.
        intercepts: intercepts of centred predictors, by their names.
        dims: names of dims in the new model, where terms of one factor have dims of their own.
    """

    model: Any
    columns: dict[str, np.ndarray]
    intercepts: dict[str, CentredIntercept]
    dims: dict[str, str]

    def dims_of(self, variable: Any) -> tuple[str, ...] | None:
        """Return the dims of a variable in the new model."""
        dims = self.model.named_vars_to_dims.get(variable.name)
        return None if dims is None else tuple(self.dims.get(dim, dim) for dim in dims)


def with_row_data(built: BuiltModel) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the same model with its rows as `pm.Data`, and the rows."""
    import pymc as pm
    from pytensor.graph.replace import clone_replace

    model = built.model
    (response,) = model.observed_RVs
    constants = _row_constants(model)
    values = [value for value in model.deterministics if not set(constants) & ancestors_of(value)]
    variables = [*model.free_RVs, *values, *model.potentials]
    dims = {dim for variable in variables for dim in built.dims_of(variable) or ()}
    with pm.Model(coords={dim: model.coords[_original(built, dim)] for dim in dims}) as new:
        columns = _Columns(built.columns)
        observed = columns.data_of(np.asarray(model.rvs_to_values[response].data), response.name)
        replaced = {
            constant: columns.without_ones(np.asarray(constant.data)) for constant in constants
        }
        lengths = {
            length: new.dim_lengths[built.dims.get(dim, dim)]
            for dim, length in model.dim_lengths.items()
            if built.dims.get(dim, dim) in new.dim_lengths
        }
        row_dim = model.named_vars_to_dims[response.name][0]
        lengths[model.dim_lengths[row_dim]] = observed.shape[0]
        copies = clone_replace(
            [*variables, response], replace={**replaced, **lengths}, rebuild_strict=False
        )
        _register(built, variables, copies)
        new.register_rv(copies[-1], response.name, observed=observed)
    return new, columns.arrays


def ancestors_of(variable: Any) -> set[Any]:
    """Return what a variable is computed from."""
    return set(ancestors([variable]))


def _row_constants(model: Any) -> list[Any]:
    """Return the constants with an entry per row between the parameters and the response."""
    from pytensor.tensor import TensorConstant

    (response,) = model.observed_RVs
    num_rows = model.rvs_to_values[response].data.shape[0]
    of_priors = set(ancestors(model.free_RVs))
    return [
        variable
        for variable in ancestors([response])
        if isinstance(variable, TensorConstant)
        and variable not in of_priors
        and variable.ndim
        and variable.data.shape[0] == num_rows
    ]


def _original(built: BuiltModel, dim: str) -> str:
    """Return the name in Bambi's model of a dim in the new one."""
    return next((old for old, new in built.dims.items() if new == dim), dim)


class _Columns:
    """Data of a new model, one for all constants with the same entries.

    Args:
        known: names of arrays.
    """

    def __init__(self, known: Mapping[str, np.ndarray]):
        self.known = known
        self.arrays: dict[str, np.ndarray] = {}
        self._data: dict[Any, Any] = {}

    def data_of(self, array: np.ndarray, name: str | None = None) -> Any:
        """Return the data with the entries of an array."""
        import pymc as pm

        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._data or name is not None:
            name = f"{name}{SUFFIX}" if name else self._name(array)
            self.arrays[name] = array
            # a known length of one broadcasts
            self._data[key] = pm.Data(name, array, shape=(None, *array.shape[1:]))
        return self._data[key]

    def without_ones(self, array: np.ndarray) -> Any:
        """Return data, or a single one for a column of ones, e.g. the predictor of `(1|g)`."""
        import pytensor.tensor as pt

        is_one = array.ndim == 1 and np.all(array == 1)
        return pt.as_tensor(array[:1]) if is_one else self.data_of(array)

    def _name(self, array: np.ndarray) -> str:
        for name, known in self.known.items():
            if name not in self.arrays and np.array_equal(known, array):
                return name
        return f"column_{len(self.arrays)}{SUFFIX}"


def _register(built: BuiltModel, variables: Sequence[Any], copies: Iterable[Any]) -> None:
    """Register copies of variables in the model that is being built."""
    import pymc as pm

    new, model = pm.modelcontext(None), built.model
    for variable, value in zip(variables, copies, strict=False):
        name, dims = variable.name, built.dims_of(variable)
        if variable in model.free_RVs:
            new_name = f"{name}_centered" if name in built.intercepts else name
            transform = model.rvs_to_transforms[variable]
            new.register_rv(value, new_name, dims=dims, transform=transform, default_transform=None)
        elif variable in model.deterministics:
            pm.Deterministic(name, value, dims=dims)
        else:
            pm.Potential(name, value)
    for name, (means, terms) in built.intercepts.items():
        centred = new[f"{name}_centered"]
        columns = [_by_column(new[term], centred.ndim) for term in terms]
        shift = pm.math.dot(means, pm.math.concatenate(columns, axis=0))
        dims = new.named_vars_to_dims.get(centred.name)
        pm.Deterministic(name, centred - shift, dims=dims)


def _by_column(coefficients: Any, response_ndim: int) -> Any:
    """Return coefficients with a leading axis of columns, which those of one column lack."""
    return coefficients if coefficients.ndim > response_ndim else coefficients[None]
