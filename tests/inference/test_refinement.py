"""Refinement, through the front door and against exact posteriors."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta

import vcmc
from vcmc.combiners import Consensus
from vcmc.diagnostics import convergence

NUM_ROWS, NUM_EVENTS = 3000, 6


@pytest.fixture(scope="module")
def rare():
    """A rare event: its probability has a skewed posterior, a beta distribution."""
    model = vcmc.Model(
        {"share": vcmc.Interval(0, 1)},
        log_prior=lambda params: jnp.zeros(()),
        log_likelihood=lambda params, rows: jnp.log(
            jnp.where(rows["y"] > 0, params["share"], 1 - params["share"])
        ),
    )
    y = np.zeros(NUM_ROWS)
    y[:: NUM_ROWS // NUM_EVENTS] = 1
    partition = vcmc.split({"y": y}, 4, seed=1)
    with pytest.warns(vcmc.DoubtfulWarning, match="The result is poor"):
        tree = vcmc.infer(model, partition, num_draws=2000, combiner=Consensus())
    return model, partition, tree


def exact():
    return beta(NUM_EVENTS + 1, NUM_ROWS - NUM_EVENTS + 1)


def compare(tree, num_effective):
    draws = tree["posterior"]["share"].to_numpy().ravel()
    truth = exact()
    errors = np.sqrt(np.array([0.05, 0.5, 0.95]) * np.array([0.95, 0.5, 0.05]) / num_effective)
    shares = [np.mean(draws < truth.ppf(level)) for level in (0.05, 0.5, 0.95)]
    assert (np.abs(np.array(shares) - [0.05, 0.5, 0.95]) < 4 * errors).all()


def test_importance_sampling_is_the_first_rung(rare):
    model, rows, tree = rare
    again = vcmc.combine(
        tree, model=model, rows=rows
    )  # the default: near enough for importance sampling
    refined = vcmc.refine(again, model, rows, seed=1)
    assert refined.attrs["refined_by"] == "importance sampling"
    assert refined.attrs["refined_pareto_k"] < 0.5
    assert refined.attrs["verdict"] == "good"
    compare(
        refined, refined.attrs["refined_ess"] / 2
    )  # resampling adds as much noise as there was, at most


@pytest.mark.slow
def test_chains_are_the_second(rare):
    model, rows, tree = rare
    refined = vcmc.refine(tree, model, rows, min_ess=5000, seed=1)  # more than proposals would give
    assert refined.attrs["refined_by"] == "chains"
    draws = refined["posterior"]["share"].to_numpy()
    assert len(draws) == 32
    # distances from the median, by which R-hat judges spreads, are others on another scale
    assert convergence.rhat(draws[None])[0] == pytest.approx(
        refined.attrs["refined_rhat"], abs=2e-3
    )
    assert refined.attrs["refined_rhat"] < 1.01
    assert refined.attrs["refined_ess"] >= 5000
    compare(refined, refined.attrs["refined_ess"])
    assert refined.attrs["verdict"] == "good"
    assert "subposterior" in refined.children
    assert "weights" not in refined.children  # draws are no averages any more
    assert tree.attrs["verdict"] == "poor"  # the old tree is as it was


@pytest.mark.slow
def test_infer_refines_if_asked_to(rare):
    model, rows, _ = rare
    tree = vcmc.infer(model, rows, refine=True)
    assert tree.attrs["refined_by"] in ("importance sampling", "chains")
    assert tree.attrs["seconds_refine"] > 0
    compare(tree, tree.attrs["refined_ess"] / 2)


def test_a_refinement_that_did_not_settle_says_so(rare):
    model, rows, tree = rare
    with pytest.warns(vcmc.DoubtfulWarning, match="Refinement did not converge"):
        refined = vcmc.refine(tree, model, rows, min_ess=1e7, max_iterations=60)
    assert refined.attrs["verdict"] != "good"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_ess": 0}, "min_ess must be above 0; got 0"),
        ({"num_chains": 1}, "num_chains must be an integer of at least 2; got 1"),
        ({"max_iterations": 5}, "max_iterations must be an integer of at least 20; got 5"),
    ],
)
def test_bad_settings_are_refused(settings, message, rare):
    model, rows, tree = rare
    with pytest.raises(ValueError, match=message):
        vcmc.refine(tree, model, rows, **settings)


def test_as_many_draws_as_asked_for(rare):
    model, rows, tree = rare
    refined = vcmc.refine(tree, model, rows, min_ess=1500)
    assert refined["posterior"].sizes["draw"] * refined["posterior"].sizes["chain"] >= 1500


@pytest.mark.slow
def test_a_refined_tree_can_be_diagnosed_again(rare, tmp_path):
    import xarray

    model, rows, tree = rare
    refined = vcmc.refine(tree, model, rows)
    refined.to_netcdf(tmp_path / "tree.nc")
    again = xarray.open_datatree(tmp_path / "tree.nc")
    for each in (refined, again):
        assert vcmc.diagnose(each, model, rows).verdict == "good"
    with pytest.warns(vcmc.DoubtfulWarning, match="did not converge"):
        unsettled = vcmc.refine(again, model, rows, min_ess=1e7, max_iterations=60)
    found = vcmc.diagnose(unsettled, model, rows)
    assert found.verdict == "doubtful"
    assert any("did not converge" in reason for reason in found.reasons)
