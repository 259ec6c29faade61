"""Refinement, through the front door and against exact posteriors."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import beta

import vcmc
from vcmc.combiners import Consensus
from vcmc.diagnostics import convergence
from vcmc.inference.ensemble import Goal
from vcmc.inference.preparation import result_target
from vcmc.inference.refinement import refine_draws

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
        tree = vcmc.infer(model, partition, shard_draws=2000, combiner=Consensus())
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


# A non-linear regression of the lengths of dugongs on their ages (Ratkowsky 1983; posteriordb).
OLDER = [10, 12, 12, 13, 13, 14.5, 15.5, 15.5, 16.5, 17, 22.5, 29, 31.5]
AGES = np.array([1, 1.5, 1.5, 1.5, 2.5, 4, 5, 5, 7, 8, 8.5, 9, 9.5, 9.5, *OLDER])
LONGER = [2.5, 2.32, 2.32, 2.43, 2.47, 2.56, 2.65, 2.47, 2.64, 2.56, 2.7, 2.72, 2.57]
SHORTER = [1.8, 1.85, 1.87, 1.77, 2.02, 2.27, 2.15, 2.26, 2.47, 2.19, 2.26, 2.4, 2.39, 2.41]
LENGTHS = np.array(SHORTER + LONGER)


def dugongs(x, y=None):
    alpha = numpyro.sample("alpha", dist.Normal(0, 100))
    beta = numpyro.sample("beta", dist.Normal(0, 100))
    growth = numpyro.sample("growth", dist.Uniform(0.5, 1))
    precision = numpyro.sample("precision", dist.Gamma(0.1, 0.1))
    numpyro.sample("y", dist.Normal(alpha - beta * growth**x, precision**-0.5), obs=y)


@pytest.mark.slow
def test_refinement_does_not_lead_astray():
    """Means once went from 2 to 46 sds off. References: NumPyro NUTS on all rows, 4000 draws."""
    rows = {"x": AGES, "y": LENGTHS}
    model = vcmc.from_numpyro(dugongs, rows)
    with pytest.warns(vcmc.DoubtfulWarning):
        tree = vcmc.infer(model, rows, num_shards=2)
    with pytest.warns(vcmc.DoubtfulWarning):
        refined = vcmc.refine(tree, model, rows)
    posterior = refined["posterior"]
    for name, mean, sd in [("alpha", 2.652, 0.112), ("growth", 0.853, 0.053)]:
        assert abs(float(posterior[name].mean()) - mean) < 0.5 * sd


def regression_rows(num_rows=1000, num_columns=8):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(num_rows, num_columns))
    return {"x": x, "y": x[:, 0] - 0.5 * x[:, 1] + generator.normal(size=num_rows)}


def horseshoe(x, y=None):
    size = [x.shape[1]]
    scale = numpyro.sample("scale", dist.HalfCauchy(0.1))
    local = numpyro.sample("local", dist.HalfCauchy(1).expand(size).to_event(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand(size).to_event(1))
    numpyro.sample("y", dist.Normal(x @ (scale * local * z), 1.0), obs=y)


def r2d2(x, y=None):
    size = x.shape[1]
    share = numpyro.sample("share", dist.Beta(1, 1))
    parts = numpyro.sample("parts", dist.Dirichlet(0.5 * jnp.ones(size)))
    z = numpyro.sample("z", dist.Normal(0, 1).expand([size]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ (z * jnp.sqrt(share / (1 - share) * parts)), 1.0), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize("function", [horseshoe, r2d2])
def test_refinement_survives_priors_with_poles(function):
    """The first version tried to convert a NaN to an integer."""
    rows = regression_rows()
    model = vcmc.from_numpyro(function, rows)
    with pytest.warns(vcmc.DoubtfulWarning):
        tree = vcmc.infer(model, rows, num_shards=4, shard_draws=300)
    with pytest.warns(vcmc.DoubtfulWarning):
        refined = vcmc.refine(tree, model, rows, max_iterations=60)
    assert refined.attrs["verdict"] in ("doubtful", "poor")


def test_better_draws_are_kept(conjugate):
    """Few effective draws of chains or proposals do not replace many good draws."""
    mean, covariance = conjugate.posterior()
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, size=20_000)
    draws += mean - draws.mean(axis=0)
    target = result_target(conjugate.model, conjugate.rows, 2, None, 0)
    refined = refine_draws(draws[None], target, Goal(min_ess=30.0, num_chains=4))
    error = np.abs(refined.points.mean(axis=(0, 1)) - mean) / np.sqrt(np.diag(covariance))
    assert error.max() < 0.05
