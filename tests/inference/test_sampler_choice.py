"""The sampler that a run gets."""

import numpy as np
import pytest

import vcmc


@pytest.mark.parametrize(
    ("dim", "num_shards", "sampler"), [(3, 4, "Independence"), (3, 1, "HMC"), (20, 4, "HMC")]
)
def test_shards_that_are_nearly_normal_get_the_sampler_with_the_fewest_gradients(
    dim, num_shards, sampler
):
    x = np.random.default_rng(0).normal(size=(4000, dim))
    model = vcmc.Model(
        {"beta": vcmc.Real(dim)},
        lambda params: -0.5 * (params["beta"] ** 2).sum(),
        lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
    )
    rows = {"x": x, "y": x.sum(axis=1)}
    few = vcmc.infer(model, rows, num_shards=num_shards, progress=False)
    many = vcmc.infer(model, rows, num_shards=num_shards, shard_draws=1000, progress=False)
    assert few.attrs["sampler"].startswith(f"{sampler}(")
    assert many.attrs["sampler"].startswith("HMC(")
