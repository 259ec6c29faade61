"""ArviZ's result of cross-validation, `ELPDData`, of the ArviZ that is installed.

Before 1.0, ArviZ has one class, and `kind` is an argument. Since then every kind has a class of its
own, the widely applicable information criterion has none, and standard errors have n - 1.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from arviz_stats import utils
from arviz_stats.utils import ELPDData
from jaxtyping import Float

HAS_KINDS = "kind" not in {field.name for field in fields(ELPDData)}

if HAS_KINDS:

    @dataclass(repr=False)
    class ELPDDataWAIC(ELPDData):
        """The result of `vcmc.waic`."""

        _kind: ClassVar[str] = "waic"


def elpd_data(kind: str, **values: Any) -> Any:
    """Return a result of leave-one-out cross-validation ("loo") or of WAIC ("waic")."""
    if not HAS_KINDS:
        return ELPDData(kind=kind, **values)
    return utils.ELPDDataLOO(**values) if kind == "loo" else ELPDDataWAIC(**values)


def elpd_se(terms: Float[np.ndarray, " unit"]) -> float:
    """Return the standard error of a sum of terms, as ArviZ does."""
    ddof = int(HAS_KINDS and len(terms) > 1)
    return float(np.sqrt(len(terms) * np.var(terms, ddof=ddof)))
