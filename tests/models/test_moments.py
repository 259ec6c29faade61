import jax.numpy as jnp

from vcmc.models.moments import moments


def test_there_is_one_mixed_moment_for_every_pair():
    found = moments(jnp.array([1.0, 2.0, 4.0]))
    assert found["first"].tolist() == [1, 2, 4]
    assert found["pure second"].tolist() == [1, 4, 16]
    assert found["mixed second"].tolist() == [2, 4, 8]
