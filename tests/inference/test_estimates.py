"""Estimates of a result: numbers, labels, and their forms."""

from xml.etree import ElementTree

import numpy as np
import pytest

import vcmc
from vcmc.results.tree import make_tree

GENERATOR = np.random.default_rng(0)
BETA = GENERATOR.normal([1.0, -20.0], [0.5, 3.0], size=(2, 600, 2))
ALPHA = GENERATOR.normal(size=(2, 600, 3))
LABELS = {
    "dims": {"beta": np.array(["covariate"]), "alpha": np.array(["county"])},
    "coords": {"covariate": np.array(["age", "income"]), "county": np.array(["b", "a", "c"])},
}


def tree_of(**groups):
    posterior = {"alpha": ALPHA, "beta": BETA, "constant": np.full((2, 600), 3.0)}
    return make_tree({"posterior": posterior, **LABELS, **groups}, {"groups": "county"})


def test_estimates_are_those_of_the_draws():
    frame = vcmc.summary(tree_of()).to_frame()
    assert list(frame.index) == ["beta[age]", "beta[income]", "constant"]
    flat = BETA.reshape(-1, 2)
    np.testing.assert_allclose(frame["mean"][:2], flat.mean(axis=0))
    np.testing.assert_allclose(frame["sd"][:2], flat.std(axis=0))
    np.testing.assert_allclose(frame["q05"][:2], np.quantile(flat, 0.05, axis=0))
    np.testing.assert_allclose(frame["q95"][:2], np.quantile(flat, 0.95, axis=0))
    ess = frame["ess"].to_numpy()[:2]
    assert (ess > 900).all()  # of 1200 independent draws
    assert (ess <= 1200).all()
    np.testing.assert_allclose(frame["mcse_mean"][:2], flat.std(axis=0) / np.sqrt(ess))
    assert frame["mean_error"].isna().all()  # nobody has estimated it


def test_a_constant_has_no_error_and_no_effective_draws():
    line = vcmc.summary(tree_of()).to_frame().loc["constant"]
    assert (line["mean"], line["sd"], line["mcse_mean"]) == (3.0, 0.0, 0.0)
    assert np.isnan(line["ess"])


def test_correlated_draws_count_less():
    walk = np.zeros(4000)
    noise = np.random.default_rng(1).normal(size=4000)
    for step in range(1, 4000):
        walk[step] = 0.9 * walk[step - 1] + noise[step]
    tree = make_tree({"posterior": {"a": walk[None]}}, {})
    # an autoregression has (1 - 0.9) / (1 + 0.9) effective draws per draw
    assert vcmc.summary(tree).to_frame()["ess"]["a"] == pytest.approx(4000 / 19, rel=0.5)


def test_local_parameters_are_shown_if_they_are_named():
    tree = tree_of()
    labels = list(vcmc.summary(tree, ["alpha", "beta[age]"]).labels)
    assert labels == ["beta[age]", "alpha[b]", "alpha[a]", "alpha[c]"]
    by_number = vcmc.summary(tree, "alpha[1]")
    assert list(by_number.labels) == ["alpha[a]"]
    assert by_number.columns["mean"][0] == pytest.approx(ALPHA[..., 1].mean())
    with pytest.raises(ValueError, match=r"names must be parameters.*got 'gamma'"):
        vcmc.summary(tree, ["gamma"])


def test_local_parameters_without_draws_come_from_their_summary():
    groups = {
        f"local_{name}": {"alpha": np.arange(3.0) + number}
        for number, name in enumerate(("mean", "sd", "q05", "q50", "q95"))
    }
    tree = make_tree({"posterior": {"beta": BETA}, **LABELS, **groups}, {"groups": "county"})
    line = vcmc.summary(tree, "alpha[c]").to_frame().loc["alpha[c]"]
    assert line[["mean", "sd", "q05", "q95"]].tolist() == [2.0, 3.0, 4.0, 6.0]
    assert np.isnan(line["ess"])
    assert list(vcmc.summary(tree).labels) == ["beta[age]", "beta[income]"]


def test_a_table_shows_two_digits_of_every_sd():
    errors = {"mean_error": 0.01, "mean_error_se": 0.002, "sd_error": -0.02, "sd_error_se": 0.001}
    groups = {name: {"beta": np.full(2, value)} for name, value in errors.items()}
    shown = vcmc.summary(tree_of(**groups))
    head, age, income, constant = str(shown).splitlines()
    assert head.split()[:4] == ["mean", "sd", "5", "%"]
    flat = BETA.reshape(-1, 2)
    assert age.split()[:3] == ["beta[age]", f"{flat[:, 0].mean():.2f}", f"{flat[:, 0].std():.2f}"]
    assert income.split()[1:3] == [f"{flat[:, 1].mean():.1f}", f"{flat[:, 1].std():.1f}"]
    assert age.endswith("+0.010 ± 0.002     -2.0 ± 0.1")
    assert constant.split()[-3:] == ["0.0000", "–", "–"]
    assert "off by" not in shown.table(with_errors=False)


def test_long_tables_are_cut_and_frames_are_not():
    tree = make_tree({"posterior": {"beta": np.zeros((1, 9, 100))}}, {"verdict": "good"})
    shown = vcmc.summary(tree)
    lines = str(shown).splitlines()
    assert lines[-2:] == ["… and 40 more: to_frame() has all.", "The result is good."]
    assert len(lines) == 1 + 60 + 2
    assert len(shown.to_frame()) == 100


def test_html_has_the_cells_of_the_table():
    shown = vcmc.summary(tree_of())
    root = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")
    lines = [[cell.text for cell in line] for line in root.iter("tr")]
    assert [line[0] for line in lines] == [None, "beta[age]", "beta[income]", "constant"]
    assert lines[1][1:3] == str(shown).splitlines()[1].split()[1:3]


def test_where_means_rest_on_shards_their_effective_draws_count(conjugate):
    partition = vcmc.split(conjugate.rows, 5)
    generator = np.random.default_rng(0)
    draws = {
        "beta": [
            generator.multivariate_normal(*conjugate.posterior(members, 0.2), 200)
            for members in partition.members
        ]
    }
    arguments = {"model": conjugate.model, "rows": partition, "num_draws": 2000}
    with pytest.warns(vcmc.DoubtfulWarning, match=r"The result is (poor|doubtful)"):
        by_average = vcmc.combine(draws, combiner=vcmc.combiners.Consensus(), **arguments)
    assert (vcmc.summary(by_average).to_frame()["ess"] <= 200).all()
    by_scores = vcmc.combine(draws, **arguments)
    frame = vcmc.summary(by_scores).to_frame()
    assert (frame["ess"] > 1000).all()
    np.testing.assert_array_equal(frame["mean_error"], by_scores["mean_error"]["beta"])
    assert "The result is good." in str(vcmc.summary(by_scores))


def test_other_things_are_refused():
    with pytest.raises(TypeError, match="tree must be a result of infer or combine"):
        vcmc.summary({"beta": BETA})
