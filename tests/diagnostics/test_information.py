"""Shards without information on a coordinate, and facts about shards."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.information import shard_facts
from vcmc.errors import ModelError
from vcmc.target import Target


def half_silent(params, rows):
    """Return a log likelihood in which rows with z = 0 are silent on the second coefficient."""
    return -0.5 * (rows["y"] - params["beta"][0] - rows["z"] * params["beta"][1]) ** 2


RARE = {"y": np.random.default_rng(1).normal(size=300), "z": np.arange(300) == 7}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Shard")
def test_a_shard_without_information_is_reported():
    with pytest.warns(
        vcmc.DoubtfulWarning, match=r"2 of 3 shards hold no information on beta\[1\]"
    ):
        tree = infer()
    assert any("hold no information on beta[1]" in note for note in tree.attrs["warnings"])


def test_a_shard_without_information_under_a_flat_prior_is_refused():
    with pytest.raises(ModelError, match=r"2 of 3 shards hold no information .* stratify"):
        infer(log_prior=lambda params: jnp.zeros(()))


def normal_prior(params):
    return -0.5 * jnp.sum(params["beta"] ** 2)


def infer(log_prior=normal_prior):
    model = vcmc.Model({"beta": vcmc.Real(2)}, log_prior, half_silent)
    sampler = vcmc.samplers.NUTS(num_warmup=100)
    return vcmc.infer(model, RARE, num_shards=3, num_draws=20, sampler=sampler)


def target(shards):
    model = vcmc.Model({"beta": vcmc.Real(2)}, normal_prior, half_silent)
    return Target(model, shards, vcmc.executors.Local())


def test_facts_of_shards_are_those_of_their_rows():
    partition = vcmc.split(RARE, 3)
    informed = [bool(RARE["z"][members].any()) for members in partition.members]
    facts = shard_facts(target([partition.load(shard) for shard in range(3)]), jnp.ones((2, 2)))
    assert [shard.num_rows for shard in facts] == [100, 100, 100]
    assert [shard.silent.tolist() for shard in facts] == [[False, not z] for z in informed]
    assert {shard.checksum for shard in facts} == {""}


def test_shards_must_have_rows_of_one_kind():
    kinds = [RARE, RARE | {"z": RARE["z"].astype(float)}]
    shards = [vcmc.split(rows, 1).load(0) for rows in kinds]
    with pytest.raises(ValueError, match=r"same dtypes and shapes; shard 0 has .*bool.*shard 1"):
        shard_facts(target(shards), jnp.ones((1, 2)))
