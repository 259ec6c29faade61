"""Overlap: the same shard draws, the same posterior up to its error, a better start."""

import threading

import numpy as np
import pytest

import vcmc
from vcmc.combiners.variational import Variational

NUM_SHARDS, NUM_BLOCKS = 4, 40  # of every chain, with the warm-up


@pytest.mark.parametrize("executor", ["Local", pytest.param("Processes", marks=pytest.mark.slow)])
def test_overlap_changes_nothing_but_the_start(executor, conjugate, tmp_path):
    made = vcmc.executors.Processes(2) if executor == "Processes" else vcmc.executors.Local()
    arguments = {"num_shards": 5, "shard_draws": 1000, "executor": made}
    plain = vcmc.infer(conjugate.model, conjugate.rows, **arguments)
    trees = [
        vcmc.infer(conjugate.model, conjugate.rows, overlap=True, **arguments),
        vcmc.infer(conjugate.model, conjugate.rows, overlap=True, store=tmp_path, **arguments),
    ]
    mean, covariance = conjugate.posterior()
    for tree in trees:
        for group in ("subposterior", "sample_stats"):
            for name in plain[group].data_vars:
                np.testing.assert_array_equal(tree[group][name], plain[group][name])
        np.testing.assert_array_equal(tree["posterior"]["beta"], trees[0]["posterior"]["beta"])
        gaps = (tree["posterior"]["beta"].mean(("chain", "draw")) - mean) / np.sqrt(
            np.diag(covariance)
        )
        assert (np.abs(gaps) < 0.03).all()
        assert len(tree["optimization"]["objective"]) <= len(plain["optimization"]["objective"])
    made.close()


def test_overlap_is_for_combiners_that_optimise(conjugate):
    with pytest.raises(ValueError, match="overlap=True needs a combiner that optimizes"):
        vcmc.infer(
            conjugate.model,
            conjugate.rows,
            num_shards=3,
            overlap=True,
            combiner=vcmc.combiners.Consensus(),
        )


class InterruptedAtFirst(Variational):
    """The default, interrupted by Ctrl-C when a chain has begun its second half."""

    def __call__(self, shards):
        assert second_half.wait(60)
        interrupted.set()
        raise KeyboardInterrupt


class Counted(vcmc.samplers.NUTS):
    """NUTS that counts its blocks, and in the second half waits for Ctrl-C."""

    def advance(self, density, state, key, num_steps):
        if num_steps:
            blocks.append(1)
            if len(blocks) > NUM_SHARDS * NUM_BLOCKS // 2 + NUM_SHARDS:
                second_half.set()
                assert interrupted.wait(60)
        return super().advance(density, state, key, num_steps)


blocks: list[int] = []
second_half, interrupted = threading.Event(), threading.Event()


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_ctrl_c_in_the_second_half_stops_the_chains_and_keeps_the_store(conjugate, tmp_path):
    arguments = {"num_shards": NUM_SHARDS, "shard_draws": 100 * (NUM_BLOCKS - 1), "overlap": True}
    sampler = Counted(num_warmup=100)
    with pytest.raises(KeyboardInterrupt):
        vcmc.infer(
            conjugate.model,
            conjugate.rows,
            sampler=sampler,
            combiner=InterruptedAtFirst(),
            store=tmp_path,
            **arguments,
        )
    for thread in threading.enumerate():
        if thread.name.startswith("vcmc-overlap"):
            thread.join(60)
            assert not thread.is_alive()
    num_drawn = len(blocks)
    assert num_drawn < 0.8 * NUM_SHARDS * NUM_BLOCKS
    num_stored = len(list(tmp_path.glob("draws/*/?????.npz")))
    assert num_drawn - 2 * NUM_SHARDS <= num_stored <= num_drawn
    tree = vcmc.infer(conjugate.model, conjugate.rows, sampler=sampler, store=tmp_path, **arguments)
    assert len(blocks) - num_drawn <= NUM_SHARDS * NUM_BLOCKS - num_stored
    whole = vcmc.infer(conjugate.model, conjugate.rows, sampler=sampler, **arguments)
    np.testing.assert_array_equal(tree["subposterior"]["beta"], whole["subposterior"]["beta"])
