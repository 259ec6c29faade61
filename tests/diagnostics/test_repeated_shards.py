"""Chains that are given as shards are recognised by their means."""

import numpy as np
import pytest

import vcmc
from vcmc.diagnostics import convergence
from vcmc.diagnostics.repeated_shards import repeated_shards


def shards(num_shards, num_chains, dim, seed, spread=1.0, correlation=0.0, num_draws=400):
    """Return draws of shards, whose chains are autocorrelated, as if every chain were a shard."""
    generator = np.random.default_rng(seed)
    centres = spread * generator.normal(size=(num_shards, 1, 1, dim))
    noise = generator.normal(size=(num_shards, num_chains, num_draws, dim))
    for draw in range(1, num_draws):
        noise[:, :, draw] *= np.sqrt(1 - correlation**2)
        noise[:, :, draw] += correlation * noise[:, :, draw - 1]
    return (centres + noise).reshape(-1, 1, num_draws, dim)


def warnings_of(points):
    return repeated_shards(points, {"theta": convergence.ess(points)})


@pytest.mark.parametrize("num_chains", [2, 4])
@pytest.mark.parametrize(("dim", "correlation"), [(1, 0.0), (5, 0.6)])
def test_chains_that_are_given_as_shards_are_recognised(num_chains, dim, correlation):
    points = shards(8, num_chains, dim, seed=0, correlation=correlation)
    expected = f"the {8 * num_chains} shards look like {num_chains} chains of each of 8 shards"
    (warning,) = warnings_of(points)
    assert warning.startswith(expected)
    in_turns = points.reshape(8, num_chains, -1, dim).swapaxes(0, 1).reshape(points.shape)
    (warning,) = warnings_of(in_turns)
    assert warning.startswith(expected)


@pytest.mark.parametrize("spread", [1.0, 0.3, 0.0])
@pytest.mark.parametrize(("num_shards", "dim"), [(4, 1), (4, 3), (6, 1), (8, 2), (20, 1), (16, 5)])
def test_shards_are_not_taken_for_chains(num_shards, dim, spread):
    """Also not if strong priors bring them closer together than their spread."""
    for seed in range(100):
        points = shards(num_shards, 1, dim, seed, spread, num_draws=100)
        assert repeated_shards(points, {"theta": np.full((num_shards, dim), 100.0)}) == []


def test_combine_says_so():
    points = shards(8, 2, 2, seed=0)[:, 0]
    with pytest.warns(vcmc.DoubtfulWarning, match="The 16 shards look like 2 chains of each of 8"):
        vcmc.combine({"theta": points})
    vcmc.combine({"theta": points.reshape(8, 2, 400, 2)}, chains=True)
