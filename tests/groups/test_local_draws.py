"""Local draws: their distribution given the global parameters, and their reproducibility."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.data.grouped import GroupedPartition
from vcmc.groups.local_draws import draw_locals, summarize_locals

NUM_DRAWS = 2000
COUNTS = np.array([1, 5, 30])


@pytest.fixture(scope="module")
def binary():
    """Three groups of binary rows, with a normal prior of known mean and sd."""
    model = vcmc.Model(
        space={"mu": vcmc.Real()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: -0.5 * params["mu"] ** 2,
        log_local_prior=lambda params, local, group: -0.5 * (local["alpha"] - params["mu"]) ** 2,
        log_likelihood=lambda params, local, rows: jax.nn.log_sigmoid(
            (2 * rows["y"] - 1) * local["alpha"]
        ),
        groups="group",
    )
    group = np.repeat(np.arange(3), COUNTS)
    rows = {"group": group, "y": (np.arange(len(group)) % 3 > 0).astype(float)}
    shard = GroupedPartition(vcmc.split(rows, 1, groups="group"), "group").load(0)
    return model.fitted([shard]), shard, rows


def test_draws_have_the_conditional_distribution(binary):
    model, shard, rows = binary
    points = np.full((NUM_DRAWS, 1), 0.5)
    drawn = draw_locals(model.space, model.local, shard, points, jax.random.key(0))
    assert drawn.params["alpha"].shape == (NUM_DRAWS, 3)
    assert (drawn.acceptance > 0.7).all()
    alpha = np.linspace(-8, 9, 4001)
    for group in range(3):
        y = rows["y"][rows["group"] == group]
        log_density = -0.5 * (alpha - 0.5) ** 2
        log_density -= np.logaddexp(0, np.outer(1 - 2 * y, alpha)).sum(axis=0)
        weights = np.exp(log_density - log_density.max())
        weights /= weights.sum()
        mean = weights @ alpha
        sd = np.sqrt(weights @ (alpha - mean) ** 2)
        values = drawn.params["alpha"][:, group]
        assert values.mean() == pytest.approx(mean, abs=4.5 * sd / np.sqrt(NUM_DRAWS))
        assert values.std() == pytest.approx(sd, rel=4.5 / np.sqrt(2 * NUM_DRAWS))


def test_a_draw_depends_on_its_number_and_not_on_the_others(binary):
    model, shard, _ = binary
    points = np.random.default_rng(0).normal(size=(20, 1))
    points[12:] = points[:8]  # the same mean of all draws
    points[:] -= points.mean(axis=0)
    whole = draw_locals(model.space, model.local, shard, points, jax.random.key(1)).params["alpha"]
    again = draw_locals(model.space, model.local, shard, points, jax.random.key(1)).params["alpha"]
    other = draw_locals(model.space, model.local, shard, points, jax.random.key(2)).params["alpha"]
    assert (whole == again).all()
    assert not (whole == other).any()


def test_a_summary_has_the_moments_of_draws():
    draws = np.random.default_rng(0).normal(size=(1000, 4, 2))
    summary = summarize_locals({"alpha": draws})["alpha"]
    assert summary.shape == (5, 4, 2)
    np.testing.assert_allclose(summary[0], draws.mean(axis=0))
    np.testing.assert_allclose(summary[1], draws.std(axis=0))
    np.testing.assert_allclose(summary[3], np.median(draws, axis=0))
    assert jnp.ndim(summary) == 3
