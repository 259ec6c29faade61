"""Runs are loaded whole, or as far as they got."""

import numpy as np
import pytest

import vcmc

ARGUMENTS = {"num_shards": 3, "num_draws": 200, "sampler": vcmc.samplers.NUTS(num_warmup=100)}


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
    for name in ("tree.npz", "tree.json"):
        (tmp_path / "part" / name).unlink()
    shutil.rmtree(tmp_path / "part" / "draws" / "00001-0")
    loaded = vcmc.load(tmp_path / "part")
    assert loaded.attrs["sound_shards"] == [0, 2]
    assert "draws of 1 of 3 shards are missing ([1])" in loaded.attrs["warnings"][0]
    np.testing.assert_array_equal(
        loaded["subposterior"]["beta"], tree["subposterior"]["beta"].isel(shard=[0, 2])
    )


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(vcmc.StoreError, match="there is no run directory"):
        vcmc.load(tmp_path / "nowhere")
