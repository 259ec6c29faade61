"""The verb `combine`, and the trees that it takes and makes."""

import numpy as np
import pytest
import xarray

import vcmc
from vcmc.combiners import Average, Consensus

GENERATOR = np.random.default_rng(0)
BETA = GENERATOR.normal(size=(4, 300, 2))
SIGMA = GENERATOR.gamma(50, size=(4, 300)) / 50


@pytest.fixture(scope="module")
def scale_model():
    import jax.numpy as jnp

    rows = {"y": np.random.default_rng(1).normal(1.0, 2.0, size=400)}
    model = vcmc.Model(
        {"mean": vcmc.Real(), "scale": vcmc.Positive()},
        log_prior=lambda params: -0.5 * params["mean"] ** 2 - params["scale"],
        log_likelihood=lambda params, rows: (
            -0.5 * ((rows["y"] - params["mean"]) / params["scale"]) ** 2 - jnp.log(params["scale"])
        ),
    )
    sampler = vcmc.samplers.NUTS(num_warmup=200)
    tree = vcmc.infer(model, rows, num_shards=3, shard_draws=300, sampler=sampler)
    return model, rows, tree


def test_a_tree_of_infer_never_needs_its_space_again(scale_model, tmp_path):
    """In memory, from a file, and from a run directory, for combine, refine and compare."""
    model, rows, tree = scale_model
    tree.to_netcdf(tmp_path / "tree.nc")
    from_file = xarray.open_datatree(tmp_path / "tree.nc")
    expected = vcmc.combine(
        {name: tree["subposterior"][name].to_numpy()[:, 0] for name in model.space},
        combiner=Consensus(),
        space=dict(model.space),
    )
    for source in (tree, from_file):
        combined = vcmc.combine(source, combiner=Consensus())
        for name in model.space:
            np.testing.assert_array_equal(combined["posterior"][name], expected["posterior"][name])
        table = vcmc.compare(source, combiners=[Consensus(), Average()], progress=False)
        assert [entry.verdict for entry in table.entries] == ["unknown", "unknown"]
        refined = vcmc.refine(source, model, rows, progress=False)
        assert refined.attrs["space"] == tree.attrs["space"]


def test_an_unfinished_run_remembers_its_space(scale_model, tmp_path):
    model, rows, _ = scale_model
    sampler = vcmc.samplers.NUTS(num_warmup=200)
    vcmc.infer(model, rows, num_shards=3, shard_draws=300, sampler=sampler, store=tmp_path)
    (tmp_path / "tree.npz").unlink()
    combined = vcmc.combine(vcmc.load(tmp_path), combiner=Consensus())
    assert (combined["posterior"]["scale"] > 0).all()


def test_positive_draws_are_averaged_on_the_log_scale():
    tree = vcmc.combine(
        {"sigma": SIGMA},
        combiner=Average(),
        space={"sigma": vcmc.Positive()},
        num_draws=SIGMA.shape[1],
    )
    logs = np.log(tree["posterior"]["sigma"])
    np.testing.assert_allclose(logs.mean(), np.log(SIGMA).mean(), rtol=1e-12)


def test_space_and_model_exclude_each_other(scale_model):
    model, rows, tree = scale_model
    with pytest.raises(ValueError, match=r"combine takes space= or model=.*got both"):
        vcmc.combine(tree, model=model, rows=rows, space={"scale": vcmc.Positive()})


def test_draws_of_all_the_models_parameters_are_needed(scale_model):
    model, rows, _ = scale_model
    with pytest.raises(ValueError, match=r"there are no draws of \['scale'\]"):
        vcmc.combine({"mean": BETA[..., 0]}, model=model, rows=rows)


def test_an_error_of_a_combiner_is_one_of_combining(scale_model):
    class Broken(Consensus):
        def combine(self, shards):
            raise ZeroDivisionError("no weights")

    model, rows, _ = scale_model
    arguments = {"num_shards": 3, "shard_draws": 300, "sampler": vcmc.samplers.NUTS(num_warmup=200)}
    with pytest.raises(
        vcmc.CombineError, match=r"sampled, but combining them failed.*ZeroDivisionError: no w"
    ) as caught:
        vcmc.infer(model, rows, combiner=Broken(), **arguments)
    combined = vcmc.combine(caught.value.tree, combiner=Consensus())  # its space is known, too
    assert (combined["posterior"]["scale"] > 0).all()


@pytest.mark.parametrize("num_draws", [1000, 1001, 1003])
def test_draws_in_any_number_have_chains_for_arviz(num_draws):
    """1001 = 7 · 143 and 1003 = 17 · 59: four, three and two chains do not divide them."""
    arviz_stats = pytest.importorskip("arviz_stats")
    tree = vcmc.combine({"beta": BETA}, num_draws=num_draws, combiner=Average())
    sizes = tree["posterior"].sizes
    assert sizes["chain"] > 1
    assert sizes["chain"] * sizes["draw"] == num_draws
    assert not arviz_stats.summary(tree).isna().any(axis=None)
