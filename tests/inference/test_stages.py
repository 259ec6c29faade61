"""Rounds of sampling, combining and refining."""

import warnings

import numpy as np

import vcmc


def test_slow_chains_go_on(conjugate):
    """Thinned by a sampler that hardly moves: the shards' draws are doubled, up to a limit."""
    sampler = vcmc.samplers.NUTS(max_depth=1, num_warmup=20)
    options = {"num_shards": 3, "progress": False, "sampler": sampler}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        tree = vcmc.infer(conjugate.model, conjugate.rows, **options)
    assert tree.attrs["shard_draws"] > 556


def test_an_extended_run_is_resumed_with_its_larger_number_of_draws(conjugate, tmp_path):
    """The library has asked the shards for more; the same call continues from there."""
    sampler = vcmc.samplers.NUTS(max_depth=1, num_warmup=20)
    options = {"num_shards": 3, "progress": False, "sampler": sampler, "store": tmp_path}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcmc.DoubtfulWarning)
        first = vcmc.infer(conjugate.model, conjugate.rows, **options)
        (tmp_path / "tree.npz").unlink()
        again = vcmc.infer(conjugate.model, conjugate.rows, **options)
    assert again.attrs["shard_draws"] == first.attrs["shard_draws"] > 556
    for group in ("subposterior", "posterior"):
        np.testing.assert_array_equal(again[group]["beta"], first[group]["beta"])
