"""States of samplers survive the way through plain data, and others are refused."""

import json
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.random import MT19937, PCG64, PCG64DXSM, SFC64, Generator, Philox

from vcmc.samplers.state import NotPlain, PackedState, StateMismatch, pack_state


class State(NamedTuple):
    step: object
    parts: dict


class Module(eqx.Module):
    point: jax.Array
    count: int = eqx.field(static=True)


def through_file(packed):
    return PackedState(packed.arrays, json.loads(json.dumps(packed.description)))


def test_leaves_come_back_as_they_were():
    state = State(
        jnp.asarray(3),  # weakly typed
        {
            "strong": jnp.arange(3.0),
            "single": np.float32(0.1),
            "array": np.array([1e-300, np.nan, np.inf]),
            "key": jax.random.key(1),
            "rbg": jax.random.key(1, impl="rbg"),
            "number": 0.1,
            "flag": True,
            "nothing": None,
            "text": "a",
            "module": Module(jnp.ones(2), 3),
        },
    )
    restored = through_file(pack_state(state)).restore(jax.tree.map(lambda leaf: leaf, state))
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(restored), strict=True):
        assert type(before) is type(after)
        if isinstance(before, jax.Array):
            assert before.aval == after.aval  # with its weak type
            if jnp.issubdtype(before.dtype, jax.dtypes.prng_key):
                before, after = jax.random.key_data(before), jax.random.key_data(after)
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("kind", [MT19937, PCG64, PCG64DXSM, Philox, SFC64])
def test_generators_continue_where_they_were(kind):
    generator = Generator(kind(0))
    generator.integers(10, dtype=np.int32)  # half of a random number is kept for the next call
    packed = through_file(pack_state([generator]))
    (restored,) = packed.restore([Generator(kind(1))])
    for draw in (lambda rng: rng.integers(10, dtype=np.int32), lambda rng: rng.normal(size=5)):
        np.testing.assert_array_equal(draw(restored), draw(generator))


@pytest.mark.parametrize(
    "other",
    [
        State(0, {"b": jnp.zeros(2)}),
        State(0, {"a": jnp.zeros(2), "b": 1}),
        (0, {"a": jnp.zeros(2)}),
        State(0, {"a": Module(jnp.zeros(2), 1)}),
    ],
)
def test_a_state_of_another_structure_is_refused(other):
    packed = pack_state(State(0, {"a": jnp.zeros(2)}))
    with pytest.raises(StateMismatch, match="and a state of this sampler has"):
        packed.restore(other)


def test_a_static_field_that_has_changed_is_refused():
    packed = pack_state(Module(jnp.zeros(2), 4))
    with pytest.raises(StateMismatch):
        packed.restore(Module(jnp.zeros(2), 0))


def test_parts_that_are_not_plain_are_named():
    with pytest.raises(NotPlain, match=r"state\['function'\] is a function"):
        pack_state({"function": lambda: None})
    with pytest.raises(NotPlain, match=r"state\[0\] is an array of type object"):
        pack_state([np.array([{}])])
    generator = np.random.default_rng(0)
    with pytest.raises(NotPlain, match="twice"):
        pack_state([generator, generator])
