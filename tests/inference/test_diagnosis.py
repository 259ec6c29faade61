"""Diagnoses, through the front door."""

import numpy as np
import pytest

import vcmc
from vcmc.combiners import Average, Consensus
from vcmc.diagnostics.verdict import Diagnosis


@pytest.fixture(scope="module")
def shards(conjugate):
    """Draws of partial posteriors, of which averages are wrong."""
    partition = vcmc.split(conjugate.rows, 5)
    generator = np.random.default_rng(0)
    strong = {
        "beta": [
            generator.multivariate_normal(*conjugate.posterior(m, 1.0), 800)
            for m in partition.members
        ]
    }
    return partition, strong


def test_errors_are_those_against_the_exact_posterior(conjugate, shards):
    partition, draws = shards
    mean, covariance = conjugate.posterior()
    sds = np.sqrt(np.diag(covariance))
    for combiner in (Average(), Consensus(), Consensus(diagonal=True)):
        with pytest.warns(vcmc.DoubtfulWarning, match=r"The result is (poor|doubtful)"):
            tree = vcmc.combine(draws, model=conjugate.model, rows=partition, combiner=combiner)
        found = np.concatenate(tree["posterior"]["beta"].to_numpy())
        errors = vcmc.diagnose(tree).errors["beta"]
        np.testing.assert_allclose(errors.mean, (found.mean(axis=0) - mean) / sds, atol=1e-6)
        np.testing.assert_allclose(errors.sd, found.std(axis=0) / sds - 1, atol=1e-6)
        np.testing.assert_array_equal(tree["mean_error"]["beta"], errors.mean)


def test_a_good_result_is_called_good(conjugate, shards):
    partition, draws = shards
    tree = vcmc.combine(draws, model=conjugate.model, rows=partition)
    diagnosis = vcmc.diagnose(tree)
    assert diagnosis.verdict == "good"
    assert diagnosis.reasons == []
    assert "beta[2]" in str(diagnosis)
    assert "The result is good." in str(diagnosis)
    assert tree.attrs["verdict_text"] == diagnosis.text


def test_it_can_be_asked_again_with_other_rows(conjugate, shards):
    """The posterior given half of the rows is another: draws that were good are not."""
    partition, draws = shards
    tree = vcmc.combine(draws, model=conjugate.model, rows=partition)
    half = {name: values[:500] for name, values in conjugate.rows.items()}
    assert vcmc.diagnose(tree, conjugate.model, half).verdict == "poor"
    assert vcmc.diagnose(tree, conjugate.model, conjugate.rows).verdict == "good"


def test_draws_without_a_model_are_not_judged(conjugate, shards):
    tree = vcmc.combine(shards[1])
    assert tree.attrs["verdict"] == "unknown"
    assert "requires the model and its rows" in vcmc.diagnose(tree).text


def test_it_survives_a_file(conjugate, shards, tmp_path):
    import xarray

    partition, draws = shards
    with pytest.warns(vcmc.DoubtfulWarning):
        tree = vcmc.combine(draws, model=conjugate.model, rows=partition, combiner=Consensus())
    tree.to_netcdf(tmp_path / "tree.nc")
    again = vcmc.diagnose(xarray.open_datatree(tmp_path / "tree.nc"))
    before = vcmc.diagnose(tree)
    assert again.text == before.text
    np.testing.assert_array_equal(again.errors["beta"].mean_se, before.errors["beta"].mean_se)


def test_what_cannot_be_diagnosed_is_refused(conjugate, shards):
    tree = vcmc.combine(shards[1])
    with pytest.raises(TypeError, match="tree must be a result of infer or combine"):
        vcmc.diagnose({"beta": 1})
    with pytest.raises(ValueError, match="a model and its rows together"):
        vcmc.diagnose(tree, conjugate.model)
    del tree.attrs["verdict"]
    with pytest.raises(ValueError, match="this tree holds no diagnosis"):
        vcmc.diagnose(tree)
    other = vcmc.combine({"gamma": np.random.default_rng(0).normal(size=(2, 1000, 3))})
    with pytest.raises(ValueError, match=r"no draws of \['beta'\]"):
        vcmc.diagnose(other, conjugate.model, conjugate.rows)


def test_long_tables_are_cut():
    errors = vcmc.diagnostics.selfcheck.Errors(*np.zeros((8, 100)))
    text = str(Diagnosis("good", [], errors={"beta": errors}))
    assert "… and 71 more" in text
    assert text.count("\n") < 40
