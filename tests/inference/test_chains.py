"""Chains that fail are retried with other random numbers; the rest is kept if they fail again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc


class FailsAtFirst(vcmc.samplers.NUTS):
    """NUTS that fails on shards whose first row is above zero, in the first attempt or in all."""

    how: str = "error"
    always: bool = False

    def advance(self, density, state, key, num_steps):
        state, points, stats = super().advance(density, state, key, num_steps)
        if num_steps == 0 or not density.shard.rows["y"][0] > 0:
            return state, points, stats
        tried.setdefault(key_of(density), []).append(np.asarray(jax.random.key_data(key)).tolist())
        first = len({tuple(each) for each in tried[key_of(density)]}) == 1
        if not (first or self.always):
            return state, points, stats
        if self.how == "error":
            raise RuntimeError("no luck")
        if self.how == "stuck":
            return state, jnp.zeros_like(points), stats
        return state, points, {**stats, "diverging": jnp.ones(num_steps, bool)}


tried: dict = {}


def key_of(density):
    return float(density.shard.rows["y"][0])


@pytest.fixture
def partition(conjugate):
    tried.clear()
    partition = vcmc.split(conjugate.rows, 4)
    bad = [shard for shard in range(4) if key_of_shard(partition, shard) > 0]
    assert 0 < len(bad) < 4
    return partition, bad


def key_of_shard(partition, shard):
    return float(partition.load(shard).rows["y"][0])


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
@pytest.mark.parametrize("how", ["error", "stuck", "diverging"])
def test_a_chain_that_fails_is_tried_again(how, conjugate, partition):
    partition, bad = partition
    sampler = FailsAtFirst(num_warmup=50, how=how)
    tree = vcmc.infer(conjugate.model, partition, shard_draws=100, sampler=sampler)
    plain = vcmc.infer(
        conjugate.model, partition, shard_draws=100, sampler=vcmc.samplers.NUTS(num_warmup=50)
    )
    for shard in range(4):
        same = (tree["subposterior"]["beta"][shard] == plain["subposterior"]["beta"][shard]).all()
        assert same == (shard not in bad)  # those that were tried again have other random numbers
    assert all(len({tuple(key) for key in keys}) == 2 for keys in tried.values())


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("error", "RuntimeError: no luck"),
        ("stuck", "one of its chains never moved"),
        ("diverging", "100 % of a chain's steps diverge"),
    ],
)
def test_what_fails_for_good_is_named(how, reason, conjugate, partition):
    partition, bad = partition
    sampler = FailsAtFirst(num_warmup=50, how=how, always=True)
    with pytest.raises(
        vcmc.ShardError, match=f"{len(bad)} of 4 shards .* shard {bad[0]}: {reason}"
    ) as caught:
        vcmc.infer(conjugate.model, partition, shard_draws=100, sampler=sampler)
    assert isinstance(caught.value.__cause__, RuntimeError) == (how == "error")
    sound = [shard for shard in range(4) if shard not in bad]
    assert caught.value.tree.attrs["sound_shards"] == sound
    assert all(len({tuple(key) for key in keys}) == 3 for keys in tried.values())
    with pytest.warns(
        vcmc.DoubtfulWarning,
        match=rf"Shards {bad} are missing".replace("[", r"\[").replace("]", r"\]"),
    ):
        tree = vcmc.combine(caught.value.tree)  # a result without them says so
    assert str(bad) in " ".join(tree.attrs["warnings"])


def test_an_error_of_every_chain_is_raised_with_its_cause(conjugate):
    class Bad(vcmc.samplers.NUTS):
        def advance(self, density, state, key, num_steps):
            if num_steps:
                raise ZeroDivisionError("in every shard")
            return super().advance(density, state, key, num_steps)

    message = r"no shard could be sampled. Shard 0: ZeroDivisionError: in every shard. Check the"
    with pytest.raises(vcmc.ShardError, match=message) as caught:
        vcmc.infer(conjugate.model, conjugate.rows, num_shards=3, sampler=Bad())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.tree is None
