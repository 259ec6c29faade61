"""Summaries of shards that are in memory or streamed."""

import numpy as np

import vcmc
from vcmc.inference.shard_summary import summarize_shards, summarize_streamed_shards
from vcmc.results.draw_axes import Axes
from vcmc.results.draws import StreamedDraws
from vcmc.space import Product

SPACE = Product({"beta": vcmc.Real(2), "sigma": vcmc.Positive()})


def shards(counts=(300, 300, 300)):
    generator = np.random.default_rng(0)
    return [
        {"beta": generator.normal(size=(count, 2)), "sigma": generator.gamma(5, size=count)}
        for count in counts
    ]


def points_of(shard):
    return np.column_stack([shard["beta"], np.log(shard["sigma"])])


def test_both_ways_agree():
    draws = shards()
    together = summarize_shards(SPACE, np.stack([points_of(shard) for shard in draws])[:, None])
    streamed = summarize_streamed_shards(SPACE, StreamedDraws(draws, True, Axes(False, {})))
    for name in SPACE:
        np.testing.assert_allclose(streamed.rhat[name], together.rhat[name], rtol=1e-12)
        np.testing.assert_allclose(streamed.ess[name], together.ess[name], rtol=1e-12)
        np.testing.assert_allclose(
            streamed.subposterior[name], together.subposterior[name], rtol=1e-12
        )
    np.testing.assert_allclose(np.stack(list(streamed.points)), together.points, rtol=1e-12)
    assert streamed.counts == together.counts == [300, 300, 300]


def test_unequal_shards_are_padded_and_not_held_ones_are_left_out():
    draws = shards((250, 300))
    held = summarize_streamed_shards(SPACE, StreamedDraws(draws, True, Axes(False, {})))
    assert held.counts == [250, 300]
    assert np.isnan(held.subposterior["sigma"][0, 0, 250:]).all()
    assert np.isfinite(held.subposterior["sigma"][0, 0, :250]).all()
    lazy = summarize_streamed_shards(SPACE, StreamedDraws(draws, False, Axes(False, {})))
    assert lazy.subposterior == {}
    assert len(lazy.points[0]) == 250


def test_broken_shards_are_named():
    draws = shards()
    draws[1] = draws[0]
    draws[2]["beta"][7] = np.nan
    summary = summarize_streamed_shards(SPACE, StreamedDraws(draws, True, Axes(False, {})))
    assert summary.broken == {
        1: "its draws are the same as those of shard 0",
        2: "its draws are not finite",
    }
