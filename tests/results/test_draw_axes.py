"""Chains are not read as draws."""

import numpy as np
import pytest

import vcmc
from vcmc import combiners

CHAINS = np.random.default_rng(5).normal(size=(8, 4, 300, 2)) + np.arange(8.0)[:, None, None, None]


@pytest.mark.parametrize(
    "draws",
    [
        {"beta": CHAINS},
        {"beta": CHAINS, "sigma": CHAINS[..., 0]},
        {"mu": CHAINS[..., 0]},
        {"mu": np.ones((2, 40, 25))},  # 40 walkers of 25 draws, or 40 draws of a vector
        {"beta": list(CHAINS)},
        [{"beta": shard} for shard in CHAINS],
        vcmc.LazyDraws(lambda shard: {"beta": CHAINS[shard]}, 8),
    ],
)
def test_chains_are_not_read_as_draws(draws):
    with pytest.raises(ValueError, match=r"shapes do not tell .* Pass chains=True .* chains=False"):
        vcmc.combine(draws)


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # the shards disagree
@pytest.mark.parametrize("told", [{"chains": True}, {"space": {"beta": vcmc.Real(2)}}])
def test_chains_are_told_by_the_user_or_by_the_space(told):
    average = {"combiner": combiners.Average(), "num_draws": 1200}
    tree = vcmc.combine({"beta": CHAINS}, **told, **average)
    assert dict(tree["subposterior"].sizes) == {
        "shard": 8,
        "chain": 4,
        "draw": 300,
        "beta_dim_0": 2,
    }
    assert dict(tree["posterior"].sizes) == {"chain": 4, "draw": 300, "beta_dim_0": 2}
    found = tree["posterior"]["beta"].mean(("chain", "draw"))
    np.testing.assert_allclose(found, CHAINS.mean(axis=(0, 1, 2)), rtol=1e-12)
    shards = [{"beta": shard} for shard in CHAINS]
    for draws in (shards, {"beta": list(CHAINS)}):
        other = vcmc.combine(draws, **told, **average)
        np.testing.assert_array_equal(other["posterior"]["beta"], tree["posterior"]["beta"])
    shards[0] = {"beta": CHAINS[0, :3]}  # one chain is missing
    for draws in (shards, vcmc.LazyDraws(shards.__getitem__, 8)):
        unequal = vcmc.combine(draws, **told, **average)
        assert dict(unequal["posterior"].sizes)["draw"] == 300


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # 60 draws are few
def test_draws_are_told_by_the_user_or_by_their_number():
    draws = np.random.default_rng(0).normal(size=(4, 60, 2))
    expected = vcmc.combine({"beta": draws}, chains=False)
    assert expected["subposterior"].sizes["draw"] == 60
    told = vcmc.combine({"beta": draws}, space={"beta": vcmc.Real(2)})
    np.testing.assert_array_equal(told["posterior"]["beta"], expected["posterior"]["beta"])
    with_scalar = vcmc.combine({"beta": draws, "mu": draws[..., 0] - draws[..., 1]})
    assert with_scalar["subposterior"].sizes["draw"] == 60
    many = np.random.default_rng(0).normal(size=(4, 500, 2))
    assert vcmc.combine({"beta": many})["subposterior"].sizes["draw"] == 500
