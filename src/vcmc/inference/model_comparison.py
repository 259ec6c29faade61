"""The verb `loo_compare`: models side by side, by how well they predict the same rows."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from arviz_stats import ELPDData
    from pandas import DataFrame


def loo_compare(elpds: Mapping[str, "ELPDData"]) -> "DataFrame":
    """Compare models by the results of `loo`, or of `waic`, for the same rows.

    Args:
        elpds: a result for each model, by name.

    Returns:
        ArviZ's table, the best model first: `elpd_diff` is how much better the best one predicts
        than each (since ArviZ 1, on Python 3.12 and later, with a minus sign), `dse` the standard
        error of that, and `weight` that of stacking. All columns of the data frame
        are printed, but for those that are empty.
    """
    from arviz_stats import compare

    from ..results.elpd_table import ElpdTable  # slow to import

    _check_comparable(elpds)
    # ArviZ takes exponentials of elpd_i, which would be zero for large groups. Neither differences
    # nor the weights of stacking change if a number is subtracted from the terms of a row.
    best = np.max([elpd.elpd_i.to_numpy() for elpd in elpds.values()], axis=0)
    shifted = {name: replace(elpd, elpd_i=elpd.elpd_i - best) for name, elpd in elpds.items()}
    # since 1.0, ArviZ rounds differences to whole numbers, unless it is told not to
    exact = {"round_to": "none"} if "round_to" in signature(compare).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of ArviZ's calls of pandas
        return ElpdTable(compare(shifted, method="stacking", **exact))


def _check_comparable(elpds: Any) -> None:
    """Refuse what cannot be compared: other types, other rows, or groups with rows."""
    from arviz_stats import ELPDData

    example = 'loo_compare({"linear": vcmc.loo(...), "log": vcmc.loo(...)})'
    if not isinstance(elpds, Mapping) or len(elpds) < 2:
        raise TypeError(f"elpds must map the names of two or more models to results: {example}.")
    for name, elpd in elpds.items():
        if not isinstance(elpd, ELPDData) or elpd.elpd_i is None:
            raise TypeError(
                f"elpds[{name!r}] must be a result of vcmc.loo or vcmc.waic; got "
                f"{type(elpd).__name__}. Example: {example}."
            )
    kinds = {name: elpd.kind for name, elpd in elpds.items()}
    if len(set(kinds.values())) > 1:
        raise ValueError(f"results must be all of loo or all of waic; got {kinds}.")
    (first, reference), *others = elpds.items()
    for name, elpd in others:
        if elpd.elpd_i.dims != reference.elpd_i.dims or elpd.elpd_i.shape != reference.elpd_i.shape:
            raise ValueError(
                f"models must predict the same rows; {first!r} has the terms "
                f"{dict(reference.elpd_i.sizes)}, {name!r} has {dict(elpd.elpd_i.sizes)}."
            )
        (dim,) = reference.elpd_i.dims
        if not np.array_equal(elpd.elpd_i[dim], reference.elpd_i[dim]):
            raise ValueError(
                f"models must predict the same groups of {dim!r}; {name!r} has other labels than "
                f"{first!r}."
            )
