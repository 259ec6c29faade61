import numpy as np
import pytest

from vcmc.diagnostics.shards import (
    broken_shards,
    disagreeing_shards,
    shard_ess,
    shard_rhat,
    shard_warnings,
    switching_shards,
)
from vcmc.space import Exchangeable, Product, Real

SPACE = Product({"beta": Real(3)})


@pytest.fixture
def draws():
    """Four sound shards with two chains of 500 draws in three dimensions."""
    generator = np.random.default_rng(0)
    means = generator.normal(
        size=(4, 1, 1, 3)
    )  # posterior means vary as much as a shard's draws do
    return means + generator.normal(size=(4, 2, 500, 3))


def words(draws, stats=None):
    params = {"beta": draws}
    found = shard_warnings(draws, shard_rhat(params), shard_ess(params), stats or {}, SPACE)
    assert not found.remarks  # one of four shards is not few
    return " ".join(found.notes)


def test_sound_shards_raise_no_doubt(draws):
    assert words(draws) == ""
    assert broken_shards(draws) == {}


def test_a_shard_that_drifts_did_not_converge(draws):
    draws[2, 1] += np.linspace(0, 5, 500)[:, None]
    assert "Shard 2 did not converge" in words(draws)


def test_a_single_drifting_chain_is_seen_too(draws):
    draws = draws[:, :1]
    draws[1, 0] += np.linspace(0, 5, 500)[:, None]
    assert "Shard 1 did not converge" in words(draws)


def test_a_sticky_shard_has_few_effective_draws(draws):
    draws[3, :, :, 0] = np.repeat(draws[3, :, ::50, 0], 50, axis=1)
    assert "Shard 3 has few effective draws" in words(draws)


def test_divergences_are_counted(draws):
    diverging = np.zeros((4, 2, 500), bool)
    diverging[1, 0, :7] = True
    assert "Shard 1 had 7 divergent transitions" in words(draws, {"diverging": diverging})


def test_a_shard_far_off_disagrees(draws):
    draws[0] += 12
    draws[0, ..., 1] += 5
    assert disagreeing_shards(draws) == {0: 1}
    assert "Shard 0 disagrees" in words(draws)
    assert "in shard 0 most of all on beta[1]" in words(draws)


def test_a_shard_far_off_is_seen_with_few_draws_for_so_many_coordinates():
    generator = np.random.default_rng(0)
    draws = generator.normal(size=(6, 1, 1, 200)) + generator.normal(size=(6, 1, 300, 200))
    assert disagreeing_shards(draws) == {}
    draws[2, ..., 7] += 12
    assert disagreeing_shards(draws) == {2: 7}


def test_a_shard_far_wider_than_others_is_seen(draws):
    draws[1, ..., 2] *= 100
    assert "more than 20 times as wide as the others (in shard 1 most of all on beta[2])" in words(
        draws
    )


def test_switched_labels_are_seen():
    generator = np.random.default_rng(0)
    space = Product({"centres": Exchangeable(3, Real()), "scale": Real()})
    draws = np.array([-3.0, 0.0, 3.0, 1.0]) + 0.3 * generator.normal(size=(4, 1, 400, 4))
    assert switching_shards(space, draws) == []
    draws[2, 0, 200:, :3] = draws[2, 0, 200:, :3][:, [1, 0, 2]]  # once, and for good
    draws[3, 0, ::2, :3] = draws[3, 0, ::2, :3][:, [2, 1, 0]]  # all the time
    assert switching_shards(space, draws) == [2, 3]


def test_agreeing_shards_are_rarely_called_disagreeing():
    generator = np.random.default_rng(1)
    called = 0
    for _ in range(200):
        means = generator.normal(size=(10, 1, 1, 3))
        called += bool(disagreeing_shards(means + generator.normal(size=(10, 1, 200, 3))))
    assert called <= 2  # expected: 200 × 1e-4, a little more as means and covariances are estimates


def test_unusable_shards_are_named(draws):
    draws[1, 0, 5, 2] = np.nan
    draws[2, 1] = draws[2, 1, 0]
    assert broken_shards(draws) == {
        1: "its draws are not finite",
        2: "one of its chains never moved: all draws are the same",
    }


def test_components_that_stand_still_do_not_switch():
    space = Product({"centres": Exchangeable(3, Real())})
    draws = np.array([-3.0, 0.0, 3.0]) + 0.1 * np.random.default_rng(0).normal(size=(2, 1, 400, 3))
    draws[1, 0] = np.repeat(draws[1, 0, ::50], 50, axis=0)
    assert switching_shards(space, draws) == []


def test_twins_are_named(draws):
    draws[3] = draws[1, ::-1, ::-1]
    assert broken_shards(draws) == {3: "its draws are the same as those of shard 1"}


def test_batches_that_disagree_are_named_though_shards_agree_within_them():
    generator = np.random.default_rng(12)
    draws = generator.normal(size=(6, 1, 400, 1)) + 0.5 * generator.normal(size=(6, 1, 1, 1))
    draws[3:] += 12.0
    space = Product({"a": Real()})
    params = {"a": draws[..., 0]}
    rhat, ess = shard_rhat(params), shard_ess(params)
    warnings = shard_warnings(draws, rhat, ess, {}, space, batches=[0, 0, 0, 2, 2, 2])
    assert warnings.notes == []
    (remark,) = warnings.remarks
    assert remark.startswith("The batches of rows disagree on a (batch 0 and batch 2 are ")
    same = shard_warnings(draws[:3], rhat, ess, {}, space, batches=[0, 1, 1])
    assert same.notes == same.remarks == []
