"""The table of models, through ArviZ's own results."""

import arviz_stats
import numpy as np
import pytest
from xarray import DataArray

import vcmc
from vcmc.results.elpd_data import HAS_KINDS, elpd_data

EXACT = {"round_to": "none"} if HAS_KINDS else {}


def result(elpd_i, kind="loo", dim="row", labels=None):
    labels = np.arange(len(elpd_i)) if labels is None else labels
    return elpd_data(
        kind,
        elpd=float(np.sum(elpd_i)),
        se=float(np.sqrt(len(elpd_i) * np.var(elpd_i))),
        p=2.0,
        n_samples=1000,
        n_data_points=len(elpd_i),
        scale="log",
        warning=False,
        good_k=0.7,
        elpd_i=DataArray(np.asarray(elpd_i), {dim: labels}, [dim]),
        pareto_k=DataArray(np.zeros(len(elpd_i)), {dim: labels}, [dim]),
    )


@pytest.fixture
def results():
    generator = np.random.default_rng(0)
    shared = generator.normal(-1.0, 0.3, 200)
    return {
        name: result(shared + shift * generator.normal(size=200) - shift)
        for name, shift in (("worse", 0.2), ("best", 0.05))
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ArviZ's calls of pandas
def test_the_table_is_arvizs(results):
    table, expected = vcmc.loo_compare(results), arviz_stats.compare(results, **EXACT)
    assert list(table.index) == ["best", "worse"]
    assert list(table.columns) == list(expected.columns)
    numbers = [name for name in ("rank", "elpd", "p", "elpd_diff", "se", "dse") if name in table]
    np.testing.assert_allclose(table[numbers].astype(float), expected[numbers].astype(float))
    np.testing.assert_allclose(table["weight"], expected["weight"], atol=1e-4)
    difference = results["best"].elpd_i - results["worse"].elpd_i
    # since ArviZ 1, differences are negative
    assert abs(table["elpd_diff"]["worse"]) == pytest.approx(float(difference.sum()))
    assert table["dse"]["worse"] == pytest.approx(np.sqrt(200) * float(difference.std()))


def test_differences_are_printed_in_lines_of_80_characters(results):
    table = vcmc.loo_compare(results)
    lines = str(table).splitlines()
    assert "elpd_diff" in lines[0]
    assert "dse" in lines[0]
    assert "..." not in str(table)
    assert max(map(len, lines)) <= 80
    assert f"{table['elpd_diff']['worse']:.2f}" in lines[2]
    assert type(table[["elpd_diff"]]).__name__ == "DataFrame"


def test_terms_of_large_groups_do_not_vanish(results):
    """exp(-5000) is zero; the weights are those of terms near one."""
    shifted = {name: result(elpd.elpd_i.to_numpy() - 5000) for name, elpd in results.items()}
    table, expected = vcmc.loo_compare(shifted), vcmc.loo_compare(results)
    np.testing.assert_allclose(table["weight"], expected["weight"], atol=1e-6)
    np.testing.assert_allclose(table["elpd_diff"], expected["elpd_diff"], atol=1e-6)
    assert table["elpd"]["best"] == pytest.approx(expected["elpd"]["best"] - 200 * 5000)


def test_what_cannot_be_compared_is_refused(results):
    one, terms = results["best"], results["best"].elpd_i.to_numpy()
    with pytest.raises(TypeError, match="two or more models"):
        vcmc.loo_compare({"one": one})
    with pytest.raises(TypeError, match="two or more models"):
        vcmc.loo_compare([one, one])
    with pytest.raises(TypeError, match=r"elpds\['tree'\] must be a result of vcmc.loo"):
        vcmc.loo_compare({"one": one, "tree": 3})
    with pytest.raises(ValueError, match="all of loo or all of waic"):
        vcmc.loo_compare({"one": one, "other": result(terms, kind="waic")})
    with pytest.raises(ValueError, match=r"'one' has the terms {'row': 200}, 'other' has {'row'"):
        vcmc.loo_compare({"one": one, "other": result(terms[:100])})
    with pytest.raises(ValueError, match=r"same rows; .* 'other' has {'county': 200}"):
        vcmc.loo_compare({"one": one, "other": result(terms, dim="county")})
    groups = [result(terms, dim="county", labels=np.arange(200) + first) for first in (0, 1)]
    with pytest.raises(ValueError, match="same groups of 'county'; 'other' has other labels"):
        vcmc.loo_compare({"one": groups[0], "other": groups[1]})
