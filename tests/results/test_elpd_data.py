"""Results of cross-validation are ArviZ's, whichever version is installed."""

import pickle

import arviz_stats
import numpy as np
import pytest
from xarray import DataArray

from vcmc.results.elpd_data import HAS_KINDS, elpd_data, elpd_se

TERMS = DataArray(np.array([-1.0, -2.0, -3.0]), dims=["row"], coords={"row": np.arange(3)})


@pytest.mark.parametrize("kind", ["loo", "waic"])
def test_results_are_of_arviz_and_of_their_kind(kind):
    pareto_k = {"pareto_k": 0 * TERMS} if kind == "loo" else {}
    result = elpd_data(
        kind,
        elpd=-6.0,
        se=1.0,
        p=2.0,
        n_samples=100,
        n_data_points=3,
        scale="log",
        warning=False,
        good_k=0.7,
        elpd_i=TERMS,
        **pareto_k,
    )
    assert isinstance(result, arviz_stats.ELPDData)
    assert result.kind == kind
    assert f"elpd_{kind}" in str(result)
    again = pickle.loads(pickle.dumps(result))
    assert (again.kind, again.elpd, again.elpd_i.dims) == (kind, -6.0, ("row",))


def test_standard_errors_are_arvizs():
    n = 3 - HAS_KINDS  # the denominator of the variance of -1, -2 and -3
    assert elpd_se(TERMS.to_numpy()) == pytest.approx(np.sqrt(3 * 2 / n))
    assert elpd_se(np.zeros(1)) == 0.0
