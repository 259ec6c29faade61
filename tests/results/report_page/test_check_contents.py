"""The sections of the report page on the model: posterior checks and cross-validation."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from xarray import DataArray

import vcmc
from vcmc.results.posterior_checks import Line, PosteriorCheck
from vcmc.results.report_page.check_contents import (
    MAX_LINES,
    MAX_WORST,
    as_number,
    check_contents,
    loo_contents,
)
from vcmc.results.tree import make_tree


def some_check(num_lines=2):
    replicated = np.tile(np.arange(100.0), (num_lines, 1))
    lines = [Line("mean", str(number)) for number in range(num_lines)]
    observed = np.linspace(50.0, 200.0, num_lines)
    return PosteriorCheck("y", lines, observed, replicated, "county")


def some_loo(elpd, pareto_k, dim="row", labels=None):
    def by_row(values):
        coords = {dim: np.arange(len(elpd)) if labels is None else labels}
        return None if values is None else DataArray(values, coords, [dim])

    return SimpleNamespace(
        kind="loo",
        elpd=float(np.sum(elpd)),
        se=1.0,
        p=2.0,
        n_samples=100,
        n_data_points=len(elpd),
        good_k=0.5,
        elpd_i=by_row(elpd),
        pareto_k=by_row(pareto_k),
    )


def test_a_check_has_a_line_for_each_statistic():
    (contents,) = check_contents(some_check())
    assert contents["numReplicates"] == 100
    assert contents["isExtreme"]
    first, last = contents["lines"]
    assert first["label"] == "mean[0]"
    assert (first["observed"], first["mean"], first["pValue"]) == (50, 49.5, 0.5)
    assert (last["observed"], last["pValue"], last["twoSided"]) == (200, 0, 0)
    assert (first["smallest"], first["low"], first["largest"]) == (0, 4.95, 99)
    json.dumps(contents, allow_nan=False)
    assert len(check_contents([some_check(), some_check()])) == 2


def test_of_many_lines_those_with_the_smallest_p_values_are_kept():
    (contents,) = check_contents(some_check(1000))
    assert contents["numLines"] == 1000
    assert len(contents["lines"]) == MAX_LINES
    assert all(line["twoSided"] == 0 for line in contents["lines"])


def test_the_worst_rows_have_the_largest_k_and_the_lowest_elpd():
    generator = np.random.default_rng(0)
    elpd, pareto_k = generator.normal(size=500), generator.random(500)
    contents = loo_contents(some_loo(elpd, pareto_k))
    assert contents["numBad"] == np.sum(pareto_k > 0.5)
    labels = [row["label"] for row in contents["worst"]]
    assert labels[:2] == [str(number) for number in np.argsort(-pareto_k)[:2]]
    worst = np.argsort(elpd)[:MAX_WORST]
    assert {str(number) for number in worst} <= set(labels)
    assert MAX_WORST < len(labels) <= 2 * MAX_WORST
    grouped = loo_contents(some_loo([-1.0, -2.0], None, "county", ["a", "b"]))
    assert (grouped["unit"], grouped["goodK"]) == ("county", None)
    assert [row["label"] for row in grouped["worst"]] == ["a", "b"]
    assert loo_contents(None) is None


def test_what_is_no_check_is_refused(tmp_path):
    tree = make_tree({"posterior": {"a": np.ones((1, 50))}}, {})
    with pytest.raises(TypeError, match=r"checks must be results of vcmc.posterior_check.*got str"):
        vcmc.report(tree, tmp_path / "a.html", checks=["y"])
    with pytest.raises(TypeError, match=r"loo must be a result of vcmc.loo.*got float"):
        vcmc.report(tree, tmp_path / "a.html", loo=-100.0)
    with pytest.raises(TypeError, match="title must be a text"):
        vcmc.report(tree, tmp_path / "a.html", title=3)
    assert not (tmp_path / "a.html").exists()


def test_numbers_are_rounded_and_json_has_no_infinities():
    assert as_number(0.1234567) == 0.12346
    assert isinstance(as_number(3.0), int)
    assert as_number(np.inf) is None
