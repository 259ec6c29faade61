"""Convert Bambi models, by way of the PyMC models that Bambi builds.

Bambi writes rows into its PyMC model as constants; `bambi_graph.py` makes `pm.Data` of them. The
effects of one grouping factor become local parameters. Bambi is imported only when it is used.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ...groups.quadrature import AbstractQuadrature
from ...model import Model
from ...space import Space
from .bambi_graph import SUFFIX, BuiltModel, CentredIntercept, with_row_data
from .pymc import from_pymc


class ModelAndRows(NamedTuple):
    """A model, and the rows that it was made for.

    Attributes:
        model: the model.
        rows: columns of the rows.
    """

    model: Model
    rows: dict[str, np.ndarray]


class Factor(NamedTuple):
    """A grouping factor.

    Attributes:
        name: its name in the formula.
        levels: labels of its levels.
        numbers: the number of every row's level.
        dims: names that its axis has in Bambi's model, more than one if terms have aliases.
    """

    name: str
    levels: list[Any]
    numbers: Int[np.ndarray, " row"]
    dims: list[str]

    @property
    def dim(self) -> str:
        """The name of its axis in results, and of the column with its labels."""
        return self.dims[0]


def from_bambi(
    model: Any,
    *,
    groups: str | bool = True,
    space: Mapping[str, Space] | None = None,
    quadrature: AbstractQuadrature | None = None,
) -> ModelAndRows:
    """Convert a Bambi model and its data: `model, rows = vcmc.from_bambi(...)`.

    Names, dims and coords are Bambi's, so that Bambi takes the draws for predictions. Where Bambi
    centres the predictors, the intercept of its sampler is `Intercept_centered`, and `Intercept` is
    that of the formula. Group effects are reported themselves, not their offsets.

    Args:
        model: a `bambi.Model`. It is not changed.
        groups: the grouping factor whose effects become local parameters, which are integrated out
            group by group, e.g. `"county"` in `(1|county)`. By default that with the most levels;
            with False, all effects are global.
        space: spaces that say more than the support does, e.g. `vcmc.Exchangeable`.
        quadrature: how group effects are integrated out, e.g. `vcmc.GaussHermite(15)`.
    """
    bambi = _bambi()
    if not isinstance(model, bambi.Model):
        raise TypeError(f"model must be a bambi.Model; got {type(model).__name__}.")
    _check_family(model)
    factors = _factors(model)
    chosen = _chosen_factor(factors, groups)
    built = _built(bambi, model, factors)
    pymc_model, rows = with_row_data(built)
    if chosen is not None:
        rows[chosen.dim] = np.asarray(chosen.levels)[chosen.numbers]
    try:
        converted = from_pymc(
            pymc_model,
            rows,
            space=space,
            prior_potentials=[potential.name for potential in pymc_model.potentials],
            groups=None if chosen is None else chosen.dim,
            quadrature=quadrature,
        )
    except ValueError as error:
        raise ValueError(
            f"{model.formula.main!r}, family {model.family.name!r}, cannot be split into shards as "
            f"Bambi writes it in PyMC: {error}"
        ) from None
    return ModelAndRows(converted, rows)


def _bambi() -> Any:
    try:
        import bambi
    except ImportError:
        raise ImportError("Bambi models need Bambi. Try: pip install 'vcmc[bambi]'") from None
    return bambi


def _check_family(model: Any) -> None:
    """Refuse responses whose rows cannot be data of a PyMC model."""
    response = model.response_component.term
    if response.is_censored:
        raise ValueError(
            "Bambi writes censored(...) with infinite bounds for the other rows, and rows must be "
            "finite. Write the model in NumPyro or PyMC, with a 0/1 column of censored rows."
        )
    if response.is_weighted:
        raise ValueError(
            "Bambi writes the weights of weighted(...) into a distribution of its own, of which "
            "shards cannot take a part. Leave them out of the formula, add them to the rows, "
            'rows["w"] = ..., and call vcmc.infer(..., weights="w"), which multiplies the log '
            "likelihoods likewise."
        )


def _factors(model: Any) -> list[Factor]:
    """Return the grouping factors of a model, in the order of its formula."""
    factors: dict[str, Factor] = {}
    for component in model.distributional_components.values():
        for term in component.group_specific_terms.values():
            name = term.term.factor.name
            dim = f"{term.alias or term.name.split('|')[1]}__factor_dim"
            if name not in factors:
                levels = list(term.groups)
                factors[name] = Factor(name, levels, np.asarray(term.group_index), [])
            if dim not in factors[name].dims:
                factors[name].dims.append(dim)
    return list(factors.values())


def _chosen_factor(factors: list[Factor], groups: str | bool) -> Factor | None:
    """Return the factor whose effects are local; None without one."""
    if groups is False:
        return None
    if groups is True:
        return max(factors, key=lambda factor: len(factor.levels), default=None)
    named = {factor.name: factor for factor in factors}
    if groups not in named:
        raise ValueError(
            f"groups must be a grouping factor of the formula, {sorted(named)}, True for that with "
            f"the most levels, or False; got {groups!r}."
        )
    return named[groups]


def _built(bambi: Any, model: Any, factors: list[Factor]) -> BuiltModel:
    """Build the PyMC model anew, with effects in place of offsets, and dense products."""
    from bambi.backend import PyMCModel

    # Offsets times a scale are for samplers that see both. Here local effects are integrated out,
    # in coordinates in which they are standard normal. Global ones have many rows, with which an
    # offset and its scale lie on a ridge: NUTS on 4000 rows of 6 levels had no end in 9 minutes.
    spec = copy.copy(model)
    spec.noncentered = False
    backend = PyMCModel()
    is_sparse = bambi.config["SPARSE_DOT"]
    bambi.config["SPARSE_DOT"] = False  # a sparse matrix of all rows could not be split
    try:
        backend.build(spec)
    finally:
        bambi.config["SPARSE_DOT"] = is_sparse
    columns = {factor.dim: factor.numbers for factor in factors}
    intercepts = {}
    for name, component in backend.distributional_components.items():
        matrix = component.design_matrix_without_intercept
        if matrix is not None:
            terms, means = component.component, matrix.mean(0)
            columns[f"{name}_predictors{SUFFIX}"] = matrix - means
            names = [term.alias or term.name for term in terms.common_terms.values()]
            intercept = terms.intercept_term.alias or terms.intercept_term.name
            intercepts[intercept] = CentredIntercept(means, names)
    dims = {dim: factor.dim for factor in factors for dim in factor.dims}
    return BuiltModel(backend.model, columns, intercepts, dims)
