"""Laws of combiners: K = 1 leaves draws alone; exact on equal Gaussian shards."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcmc import combiners

COMBINERS = {
    "Average": combiners.Average(),
    "Consensus": combiners.Consensus(),
    "Consensus, diagonal": combiners.Consensus(diagonal=True),
}


def test_every_combiner_is_here():
    classes = {
        item
        for _, item in inspect.getmembers(combiners, inspect.isclass)
        if issubclass(item, combiners.AbstractCombiner) and not inspect.isabstract(item)
    }
    assert classes == {type(combiner) for combiner in COMBINERS.values()}


@pytest.mark.parametrize("combiner", COMBINERS.values(), ids=COMBINERS.keys())
def test_one_shard_is_left_alone(combiner):
    draws = jax.random.normal(jax.random.key(0), (1, 100, 3)) ** 3
    np.testing.assert_allclose(combiner(draws), draws[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("combiner", COMBINERS.values(), ids=COMBINERS.keys())
@pytest.mark.parametrize("dim", [1, 4])
def test_exact_on_equal_gaussian_shards(combiner, dim):
    num_shards, num_draws = 6, 20_000
    mean, sd = jnp.arange(1.0, dim + 1), jnp.linspace(0.5, 2.0, dim)
    noise = jax.random.normal(jax.random.key(1), (num_shards, num_draws, dim))
    merged = np.asarray(combiner(mean + sd * noise))
    expected = np.asarray(sd) / np.sqrt(num_shards)
    assert merged.shape == (num_draws, dim)
    assert (np.abs(merged.mean(axis=0) - mean) < 4 * expected / np.sqrt(num_draws)).all()
    assert (np.abs(merged.std(axis=0) / expected - 1) < 4 / np.sqrt(2 * num_draws)).all()
