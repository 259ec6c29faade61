"""Runs are loaded whole, or as far as they got."""

import numpy as np
import pytest

import vcmc

ARGUMENTS = {"num_shards": 3, "shard_draws": 200, "sampler": vcmc.samplers.NUTS(num_warmup=100)}


@pytest.fixture(scope="module")
def run(conjugate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, vcmc.infer(conjugate.model, conjugate.rows, store=folder, **ARGUMENTS)


def test_a_finished_run_is_the_tree_that_infer_returned(run):
    folder, tree = run
    loaded = vcmc.load(folder)
    for group in ("posterior", "subposterior", "mean_error"):
        for name in tree[group].data_vars:
            np.testing.assert_array_equal(loaded[group][name], tree[group][name])
    for name in ("verdict", "seed", "space", "warnings"):
        assert loaded.attrs[name] == tree.attrs[name]


def test_an_unfinished_run_has_its_complete_shards(run, tmp_path):
    import shutil

    folder, tree = run
    shutil.copytree(folder, tmp_path / "part")
    (tmp_path / "part" / "tree.npz").unlink()
    shutil.rmtree(tmp_path / "part" / "draws" / "00001-0")
    loaded = vcmc.load(tmp_path / "part")
    assert loaded.attrs["sound_shards"] == [0, 2]
    assert "draws of 1 of 3 shards are missing ([1])" in loaded.attrs["warnings"][0]
    np.testing.assert_array_equal(
        loaded["subposterior"]["beta"], tree["subposterior"]["beta"].isel(shard=[0, 2])
    )


def test_a_shard_is_complete_if_all_its_chains_are(conjugate, tmp_path):
    sampler = vcmc.samplers.NUTS(num_warmup=100, num_chains=2)
    vcmc.infer(
        conjugate.model, conjugate.rows, store=tmp_path, **(ARGUMENTS | {"sampler": sampler})
    )
    (tmp_path / "tree.npz").unlink()
    for block in (tmp_path / "draws" / "00001-1").glob("?????.npz"):
        block.unlink()
    assert vcmc.load(tmp_path).attrs["sound_shards"] == [0, 2]


def test_an_unfinished_run_keeps_dims_and_coords(conjugate, tmp_path):
    model = vcmc.Model(
        conjugate.model.space,
        conjugate.model.log_prior,
        conjugate.model.log_likelihood,
        dims={"beta": ["feature"]},
        coords={"feature": ["a", "b", "c"]},
    )
    vcmc.infer(model, conjugate.rows, store=tmp_path, **ARGUMENTS)
    (tmp_path / "tree.npz").unlink()
    for tree in (vcmc.load(tmp_path), vcmc.load(tmp_path, model)):
        assert tree["subposterior"]["feature"].to_numpy().tolist() == ["a", "b", "c"]


def test_draws_in_a_space_that_is_not_described_need_the_model(conjugate, run, tmp_path):
    """A space of the user's own class cannot be stored without running code to read it."""

    class Own(vcmc.Real):
        pass

    model = vcmc.Model(
        {"beta": Own(*conjugate.model.space["beta"].shape)},
        conjugate.model.log_prior,
        conjugate.model.log_likelihood,
    )
    tree = vcmc.infer(model, conjugate.rows, store=tmp_path, **ARGUMENTS)
    assert "posterior" in vcmc.load(tmp_path).children
    (tmp_path / "tree.npz").unlink()
    with pytest.raises(vcmc.StoreError, match=r"cannot be read without the model: .* not one of"):
        vcmc.load(tmp_path)
    loaded = vcmc.load(tmp_path, model)
    np.testing.assert_array_equal(loaded["subposterior"]["beta"], tree["subposterior"]["beta"])


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(vcmc.StoreError, match="there is no run directory"):
        vcmc.load(tmp_path / "nowhere")
