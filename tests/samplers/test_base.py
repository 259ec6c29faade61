import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcmc.samplers.base import (
    BLOCK,
    AbstractSampler,
    Chain,
    concatenate_blocks,
    group_by_walker,
    strongly_typed,
)


class Counter(AbstractSampler):
    """A chain whose points are the numbers of its steps."""

    num_warmup: int = 30
    num_chains: int = 1
    share: float = 0.5

    def init(self, setup, start, key):
        return 0

    def advance(self, setup, state, key, num_steps):
        assert state // BLOCK == (state + num_steps - 1) // BLOCK
        steps = np.arange(state, state + num_steps)
        return state + num_steps, steps[:, None].astype(float), {"step": steps}


def test_warm_up_is_discarded_and_draws_are_thinned():
    steps = []
    chain = Counter().run(None, None, jax.random.key(0), 70, steps.append, thin=3)
    np.testing.assert_array_equal(chain.points[:, 0], 30 + 3 * np.arange(1, 71) - 1)
    np.testing.assert_array_equal(chain.stats["step"], chain.points[:, 0])
    assert steps == [100, 100, 40]


def test_a_chain_continues_after_a_checkpoint():
    key = jax.random.key(0)
    blocks = list(Counter().blocks(None, None, key, 200))
    later = list(Counter().blocks(None, None, key, 200, after=blocks[0].checkpoint))
    np.testing.assert_array_equal(
        concatenate_blocks(later).points, concatenate_blocks(blocks[1:]).points
    )


def test_draws_of_walkers_are_grouped():
    chain = Chain(np.arange(6.0)[:, None], {"walker": np.array([0, 1, 2, 0, 1, 2])})
    grouped = group_by_walker(chain)
    np.testing.assert_array_equal(grouped.points[:, 0], [0, 3, 1, 4, 2, 5])
    np.testing.assert_array_equal(grouped.stats["walker"], [0, 0, 1, 1, 2, 2])
    other = Chain(np.arange(2.0)[:, None], {})
    assert group_by_walker(other) is other


def test_a_state_has_no_weak_types():
    state = strongly_typed({"step": 0, "size": jnp.asarray(1.0) * 2, "point": jnp.zeros(2)})
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_warmup": -1}, "Counter: num_warmup must be an integer of at least 0; got -1"),
        ({"num_chains": 1.5}, "Counter: num_chains must be an integer of at least 1; got 1.5"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Counter(**settings)


def test_a_share_lies_between_zero_and_one():
    Counter().check_share("share")
    with pytest.raises(ValueError, match=r"share must lie between 0 and 1; got 1\.0"):
        eqx.tree_at(lambda sampler: sampler.share, Counter(), 1.0).check_share("share")
