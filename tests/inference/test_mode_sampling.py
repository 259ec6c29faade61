"""The default run samples every shard near every mode; one mode costs no more chains."""

import numpy as np
import pytest

import vcmc


def infer(mixture, **options):
    return vcmc.infer(mixture.model, mixture.rows, num_shards=3, progress=False, **options)


@pytest.fixture(scope="module")
def tree(two_normals):
    return infer(two_normals)


def test_every_shard_has_chains_near_every_mode(tree, two_normals):
    theta = tree["subposterior"]["theta"].to_numpy()
    medians = np.median(theta, axis=2)
    distances = np.linalg.norm(medians[:, :, None] - two_normals.means, axis=-1)
    assert {tuple(sorted(set(row))) for row in distances.argmin(axis=-1).tolist()} == {(0, 1)}


def test_the_combiner_and_the_verdicts_are_recorded(tree):
    assert tree.attrs["combiner"] == "Modes()"
    assert tree.attrs["mode_verdicts"] == ["good", "good"]


def test_the_seed_determines_the_draws_with_a_run_directory_too(tree, two_normals, tmp_path):
    first = infer(two_normals, store=tmp_path)
    (tmp_path / "tree.npz").unlink()
    again = infer(two_normals, store=tmp_path)
    loaded = vcmc.load(tmp_path)
    for other in (first, again, loaded):
        np.testing.assert_array_equal(other["posterior"]["theta"], tree["posterior"]["theta"])
    np.testing.assert_array_equal(loaded["draw_modes"]["mode"], tree["draw_modes"]["mode"])


def test_a_combiner_that_was_chosen_is_used(two_normals):
    with pytest.warns(vcmc.DoubtfulWarning, match="another mode"):
        tree = infer(two_normals, combiner=vcmc.combiners.Variational())
    assert tree.attrs["combiner"].startswith("Variational")
    assert tree.attrs["verdict"] == "poor"


def test_one_mode_is_combined_as_before(conjugate):
    tree = vcmc.infer(conjugate.model, conjugate.rows, num_shards=3, progress=False)
    assert tree.attrs["combiner"].startswith("Variational")
    assert "mode_weights" not in tree.children
