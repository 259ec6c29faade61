"""A finished run is loaded, a longer one continues its chains, and others are told apart."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.inference import pipeline, run_record, stages
from vcmc.inference.run_record import describe_part

pytestmark = pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # runs are short

SAMPLER = vcmc.samplers.NUTS(num_warmup=150)


def run(conjugate, folder, shard_draws=230, **changed):
    arguments = {"num_shards": 3, "sampler": SAMPLER, "progress": False, **changed}
    return vcmc.infer(
        conjugate.model, conjugate.rows, store=folder, shard_draws=shard_draws, **arguments
    )


@pytest.fixture(scope="module")
def finished(conjugate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    return folder, run(conjugate, folder)


@pytest.fixture
def refuse_to_prepare(monkeypatch):
    """Let a run fail that is not just loaded."""

    def refuse(*given, **named):
        raise AssertionError("the run is made again")

    monkeypatch.setattr(pipeline, "prepare", refuse)


def test_a_finished_run_is_loaded(finished, conjugate, refuse_to_prepare):
    folder, tree = finished
    loaded = run(conjugate, folder, executor=vcmc.executors.Local(1))
    for group in ("posterior", "subposterior", "mean_error"):
        np.testing.assert_array_equal(loaded[group]["beta"], tree[group]["beta"])
    assert loaded.attrs["created_at"] == tree.attrs["created_at"]
    assert loaded.attrs["verdict"] == tree.attrs["verdict"]


@pytest.mark.parametrize(
    "changed",
    [
        {"combiner": vcmc.combiners.Consensus()},
        {"refine": True},
        {"overlap": True},
        {"num_draws": 300},
        {"error": 0.05},
        {"sampler": None},
    ],
)
def test_other_requests_are_not_answered_by_the_stored_result(
    changed, finished, conjugate, refuse_to_prepare
):
    with pytest.raises(AssertionError, match="the run is made again"):
        run(conjugate, finished[0], **changed)


def test_the_sampler_that_vcmc_chose_may_be_named(conjugate, tmp_path, monkeypatch):
    tree = run(conjugate, tmp_path, shard_draws=100, sampler=None)
    monkeypatch.setattr(pipeline, "prepare", None)  # is not called
    for sampler in (None, vcmc.samplers.HMC()):
        loaded = run(conjugate, tmp_path, shard_draws=100, sampler=sampler)
        assert loaded.attrs["created_at"] == tree.attrs["created_at"]


class Own(vcmc.combiners.Consensus):
    """A combiner of the user's, whose code may have changed since the run."""


def test_a_combiner_of_the_users_is_run_again(conjugate, tmp_path, monkeypatch):
    run(conjugate, tmp_path, shard_draws=100, combiner=Own())
    combined = []
    combine = stages.combine_shards
    monkeypatch.setattr(
        stages,
        "combine_shards",
        lambda *given, **named: combined.append(1) or combine(*given, **named),
    )
    run(conjugate, tmp_path, shard_draws=100, combiner=Own())
    run(conjugate, tmp_path, shard_draws=100, combiner=vcmc.combiners.Consensus())
    run(conjugate, tmp_path, shard_draws=100, combiner=vcmc.combiners.Consensus())
    assert len(combined) == 2


def test_a_result_with_other_labels_is_not_loaded(conjugate, tmp_path):
    model = conjugate.model
    for names in (["a", "b", "c"], ["a", "b", "d"]):
        labelled = vcmc.Model(
            model.space,
            model.log_prior,
            model.log_likelihood,
            dims={"beta": ["feature"]},
            coords={"feature": names},
        )
        arguments = {"num_shards": 3, "shard_draws": 100, "sampler": SAMPLER, "progress": False}
        tree = vcmc.infer(labelled, conjugate.rows, store=tmp_path, **arguments)
        assert tree["posterior"]["feature"].to_numpy().tolist() == names


def test_the_warnings_of_a_loaded_result_are_issued_again(conjugate, tmp_path):
    sampler = vcmc.samplers.NUTS(num_warmup=0)
    texts = []
    for _ in range(2):
        with pytest.warns(vcmc.DoubtfulWarning) as caught:
            tree = run(conjugate, tmp_path, shard_draws=10, num_draws=20, sampler=sampler)
        texts.append([str(warning.message) for warning in caught])
    assert texts[0] == texts[1] == tree.attrs["warnings"]


EXTENDED = {
    "a short last block": (SAMPLER, 230),
    "whole blocks": (SAMPLER, 250),
    "walkers": (vcmc.samplers.HMC(num_warmup=150, num_walkers=30), 230),
    "two chains": (vcmc.samplers.NUTS(num_warmup=150, num_chains=2), 110),
}


@pytest.mark.parametrize("case", list(EXTENDED))
def test_more_draws_continue_the_chains(case, conjugate, tmp_path, monkeypatch):
    sampler, num_draws = EXTENDED[case]
    kind, steps = type(sampler), []
    run(conjugate, tmp_path / "extended", num_draws, sampler=sampler)
    advance = kind.advance
    with monkeypatch.context() as patch:
        patch.setattr(
            kind, "advance", lambda *given: (steps.append(int(given[-1])), advance(*given))[1]
        )
        extended = run(conjugate, tmp_path / "extended", 430, sampler=sampler)
    whole = run(conjugate, tmp_path / "whole", 430, sampler=sampler)
    for group in ("posterior", "subposterior", "sample_stats"):
        for name in whole[group].data_vars:
            np.testing.assert_array_equal(extended[group][name], whole[group][name])
    assert extended.attrs["shard_draws"] == 430
    assert vcmc.load(tmp_path / "extended")["posterior"].sizes == whole["posterior"].sizes
    before = 100 * ((150 + num_draws) // 100)  # whole blocks, which are not sampled again
    assert sum(steps) == 3 * sampler.num_chains * (150 + 430 - before)


def test_a_run_that_is_extended_cannot_be_shortened(conjugate, tmp_path):
    run(conjugate, tmp_path, 100)
    run(conjugate, tmp_path, 150)
    with pytest.raises(vcmc.StoreError, match="shard_draws: the run has 150, given 100"):
        run(conjugate, tmp_path, 100)


@pytest.mark.parametrize(
    ("first", "then", "sampler"),
    [
        (None, 2000, vcmc.samplers.Independence(num_warmup=64)),
        (300, None, vcmc.samplers.HMC()),
    ],
)
def test_a_run_that_is_extended_keeps_the_sampler_that_vcmc_chose(
    first, then, sampler, conjugate, tmp_path
):
    # the library would choose another one for the second call
    assert run(conjugate, tmp_path / "a", first, sampler=None).attrs["sampler"] == repr(sampler)
    assert run(conjugate, tmp_path / "b", then, sampler=None).attrs["sampler"] != repr(sampler)
    extended = run(conjugate, tmp_path / "a", then, sampler=None)
    whole = run(conjugate, tmp_path / "c", extended.attrs["shard_draws"], sampler=sampler)
    np.testing.assert_array_equal(extended["subposterior"]["beta"], whole["subposterior"]["beta"])


def test_a_run_without_its_last_states_is_extended_from_the_beginning(conjugate, tmp_path):
    run(conjugate, tmp_path / "a", 230)
    for path in (tmp_path / "a").glob("draws/*/checkpoint*.npz"):
        path.unlink()
    with pytest.warns(vcmc.StoreWarning, match="3 stored chains could not be continued"):
        extended = run(conjugate, tmp_path / "a", 300)
    whole = run(conjugate, tmp_path / "b", 300)
    np.testing.assert_array_equal(extended["posterior"]["beta"], whole["posterior"]["beta"])


def test_a_short_block_of_a_shorter_run_is_not_continued(conjugate, tmp_path):
    """A process may write it late, after the run was extended."""
    run(conjugate, tmp_path / "a", 230)
    block = tmp_path / "a" / "draws" / "00000-0" / "00003.npz"
    short = block.read_bytes()
    run(conjugate, tmp_path / "a", 300)
    block.write_bytes(short)
    with pytest.warns(vcmc.StoreWarning, match="shard 0, chain 0: a block has too few draws"):
        extended = run(conjugate, tmp_path / "a", 400)
    whole = run(conjugate, tmp_path / "b", 400)
    np.testing.assert_array_equal(extended["posterior"]["beta"], whole["posterior"]["beta"])


def test_states_of_other_versions_are_not_continued(conjugate, tmp_path, monkeypatch):
    from vcmc.results import store

    run(conjugate, tmp_path / "a", 230)
    versions = store.state_versions() | {"blackjax": "0.9", "jax": "0.4"}
    monkeypatch.setattr(store, "state_versions", lambda: versions)
    with pytest.warns(vcmc.StoreWarning, match="is from another version of blackjax, jax"):
        extended = run(conjugate, tmp_path / "a", 300)
    whole = run(conjugate, tmp_path / "b", 300)
    np.testing.assert_array_equal(extended["posterior"]["beta"], whole["posterior"]["beta"])


def test_a_sampler_whose_state_is_not_plain_begins_again(conjugate, tmp_path):
    class Hidden:
        def __init__(self, state):
            self.state = state

    class HidesState(vcmc.samplers.NUTS):
        def advance(self, setup, state, key, num_steps):
            state = state.state if isinstance(state, Hidden) else state
            state, points, stats = super().advance(setup, state, key, num_steps)
            return (Hidden(state) if num_steps else state), points, stats

    sampler = HidesState(num_warmup=150)
    run(conjugate, tmp_path / "a", 230, sampler=sampler)
    with pytest.warns(vcmc.StoreWarning, match=r"cannot be stored \(state is a Hidden\)"):
        extended = run(conjugate, tmp_path / "a", 300, sampler=sampler)
    whole = run(conjugate, tmp_path / "b", 300, sampler=sampler)
    np.testing.assert_array_equal(extended["posterior"]["beta"], whole["posterior"]["beta"])


def test_parts_with_other_numbers_in_arrays_are_told_apart():
    class Weighted(vcmc.combiners.Consensus):
        weights: object = None

    first, second = (Weighted(weights=jnp.array([1.0, value])) for value in (2.0, 3.0))
    assert repr(first) == repr(second)
    assert describe_part(first) != describe_part(second)
    assert describe_part(first) == describe_part(Weighted(weights=jnp.array([1.0, 2.0])))


def test_functions_in_parts_are_not_vcmcs_own():
    assert run_record._is_own(vcmc.combiners.Variational())
    assert not run_record._is_own(Own())
    assert not run_record._is_own([lambda: None])
