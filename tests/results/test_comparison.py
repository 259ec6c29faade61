"""Errors against a reference, and the table of a comparison."""

import numpy as np
import pytest

import vcmc
from vcmc.results.comparison import HEADS, Comparison, Entry, errors_of
from vcmc.space import Product

REFERENCE = {"beta": np.random.default_rng(0).normal(size=(4000, 2))}
SDS = REFERENCE["beta"].std(axis=0)


def test_draws_have_no_errors_against_themselves():
    assert errors_of(REFERENCE, REFERENCE, None) == (0.0,) * 8


def test_errors_are_in_sds_of_the_reference():
    shifted = {"beta": REFERENCE["beta"] + SDS * [0.1, 0.3]}
    errors = errors_of(shifted, REFERENCE, None)
    assert (errors.mean, errors.mean_worst) == pytest.approx((0.2, 0.3))
    assert errors.quantile_worst == pytest.approx(0.3)
    assert errors.sd_worst == pytest.approx(0, abs=1e-12)
    centre = REFERENCE["beta"].mean(axis=0)
    wide = {"beta": centre + 1.2 * (REFERENCE["beta"] - centre)}
    errors = errors_of(wide, REFERENCE, None)
    assert (errors.sd, errors.sd_worst) == pytest.approx((0.2, 0.2))
    assert errors.mean_worst == pytest.approx(0, abs=1e-12)


def test_a_constant_and_a_single_quantity_are_no_trouble():
    beta = REFERENCE["beta"][:, :1]
    draws = {"beta": beta, "constant": np.ones(4000)}
    errors = errors_of(draws, draws, None)
    assert errors.mean_worst == 0
    assert np.isnan(errors.correlation)


def test_labels_of_exchangeable_components_are_matched():
    space = Product({"centres": vcmc.Exchangeable(2, vcmc.Real(1))})
    noise = np.random.default_rng(1).normal(size=(500, 2, 1))
    reference = {"centres": np.array([[-9.0], [9.0]]) + noise}
    swapped = {"centres": reference["centres"][:, ::-1]}
    assert errors_of(swapped, reference, space).mean_worst == pytest.approx(0, abs=1e-9)
    assert errors_of(swapped, reference, None).mean_worst > 10


def test_a_reference_must_share_a_parameter():
    with pytest.raises(ValueError, match=r"share a parameter; .* \['beta'\], .* \['gamma'\]"):
        errors_of({"gamma": REFERENCE["beta"]}, REFERENCE, None)


def test_the_table_has_a_line_per_combiner_and_the_remarks():
    nan = np.nan
    entries = [
        Entry("Consensus", "good", errors_of(REFERENCE, REFERENCE, None), 0.1, 0.02, 1.5, 10.0, ""),
        Entry("Swiss", "failed", None, nan, nan, nan, nan, "it needs powered shards."),
    ]
    text = str(Comparison(entries))
    assert "Swiss: it needs powered shards." in text
    lines = Comparison(entries).markdown().splitlines()
    assert lines[0] == f"| {' | '.join(HEADS)} |"
    good = "0.000 (0.000) | 0.0 (0.0) | 0.000 (0.000) | 0.000 (0.000) | 0.100 | 2.0 | 1.50 | 10"
    assert lines[2] == f"| Consensus | good | {good} |"
    assert lines[3] == f"| Swiss | failed |{' – |' * 8}"
    html = Comparison(entries)._repr_html_()
    assert html.count("<tr>") == 3
    assert "<p>Swiss: it needs powered shards.</p>" in html
