"""Summaries of the shards' draws: common labels, R-hat, effective draws, and a sample of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..aggregators.combinatorial import common_labels, relabel, with_common_labels
from ..combiners.base import Prior, repeat_evenly
from ..data.params import to_params, to_points
from ..diagnostics.shards import (
    ShardChecker,
    ShardWarnings,
    shard_ess,
    shard_rhat,
    shard_warnings,
)
from ..results.draw_axes import Axes
from ..results.draws import StreamedDraws
from ..space import Product

# Draws of a streamed shard that are kept to compare it with the others: the least number in all,
# and per coordinate.
MIN_COMPARED, MIN_COMPARED_PER_COORDINATE = 200, 10


class ShardSummary(NamedTuple):
    """The shards' draws, as combiners and diagnostics need them.

    Attributes:
        points: the combiner's input: draws whose exchangeable components have common labels.
        subposterior: draws as params, axes (shard, chain, draw, …), NaN where a shard has fewer;
            empty if the draws are not held in memory.
        rhat, ess: R-hat and effective draws of every parameter in each shard.
        counts: number of draws of every shard.
        num_chains: number of chains of every shard.
        sample: some draws of every shard, by which shards are compared.
        broken: the shards whose draws cannot be used, with the reason, if that was checked.
        batches: the batch of every shard, if rows came in batches.
    """

    points: Any
    subposterior: dict[str, np.ndarray]
    rhat: dict[str, np.ndarray]
    ess: dict[str, np.ndarray]
    counts: list[int]
    num_chains: int
    sample: Float[np.ndarray, "shard chain draw dim"]
    broken: Mapping[int, str] = MappingProxyType({})
    batches: Sequence[int] | None = None

    def shard_warnings(
        self, stats: dict[str, np.ndarray], space: Product, prior: Prior
    ) -> ShardWarnings:
        """Return warnings about the shards' draws."""
        sample = self.sample
        if prior == "powered":  # as narrow as the posterior, but as far apart as any shards
            means = sample.mean(axis=(1, 2), keepdims=True)
            sample = means + np.sqrt(len(sample)) * (sample - means)
        return shard_warnings(
            sample, self.rhat, self.ess, stats, space, min(self.counts), self.batches
        )


def summarize_shards(
    space: Product, draws: Float[np.ndarray, "shard chain draw dim"]
) -> ShardSummary:
    """Summarize shards that have equally many draws, none of which is broken."""
    num_shards, num_chains, num_draws, dim = draws.shape
    params = to_params(space, draws)
    labelled = with_common_labels(space, draws.reshape(num_shards, -1, dim))
    return ShardSummary(
        jax.device_put(labelled),
        params,
        shard_rhat(params),
        shard_ess(params),
        [num_chains * num_draws] * num_shards,
        num_chains,
        labelled.reshape(draws.shape),
    )


def summarize_uneven_shards(
    space: Product, draws: Float[np.ndarray, "shard draw dim"], counts: Sequence[int]
) -> ShardSummary:
    """Summarize shards with different numbers of draws, padded to the largest."""
    shards = [to_params(space, points[:count]) for points, count in zip(draws, counts, strict=True)]
    return summarize_streamed_shards(space, StreamedDraws(shards, True, Axes(False, {})))


class StreamedShard(NamedTuple):
    """The summary of one shard, whose draws are not kept."""

    num_draws: int
    sample: Float[np.ndarray, "draw dim"]
    rhat: dict[str, np.ndarray]
    ess: dict[str, np.ndarray]


def summarize_streamed_shards(space: Product, draws: StreamedDraws) -> ShardSummary:
    """Summarize shards whose draws are loaded one shard at a time."""
    checker = ShardChecker()
    shards = []
    for index in range(len(draws)):
        params = draws[index]
        points = np.asarray(to_points(space, params))
        checker.add(points[None])
        shards.append(_summarize_shard(space, params, points))
    sample = np.stack([shard.sample for shard in shards])
    alignments = [] if checker.reasons else common_labels(space, jnp.asarray(sample))
    for alignment in alignments:
        sample = np.asarray(relabel(space, jnp.asarray(sample), alignment))
    counts = [shard.num_draws for shard in shards]
    return ShardSummary(
        StreamedPoints(space, draws, tuple(counts), alignments),
        _padded(draws, max(counts)) if draws.held else {},
        {name: np.concatenate([shard.rhat[name] for shard in shards]) for name in space},
        {name: np.concatenate([shard.ess[name] for shard in shards]) for name in space},
        counts,
        1,
        sample[:, None],
        checker.reasons,
    )


def _summarize_shard(
    space: Product, params: Mapping[str, np.ndarray], points: Float[np.ndarray, "draw dim"]
) -> StreamedShard:
    num_compared = max(MIN_COMPARED, MIN_COMPARED_PER_COORDINATE * space.dim)
    chains = {name: array[None, None] for name, array in params.items()}
    sample = repeat_evenly(points, num_compared)
    return StreamedShard(len(points), sample, shard_rhat(chains), shard_ess(chains))


@dataclass(frozen=True)
class StreamedPoints:
    """Draws as points with common labels of components, loaded one shard at a time."""

    space: Product
    draws: StreamedDraws
    counts: tuple[int, ...]
    alignments: list[Int[Array, "shard component"]]

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, shard: int) -> Float[np.ndarray, "draw dim"]:
        points = to_points(self.space, self.draws[shard])
        for alignment in self.alignments:
            points = relabel(self.space, points[None], alignment[shard : shard + 1])[0]
        return np.asarray(points)


def _padded(draws: StreamedDraws, num_draws: int) -> dict[str, np.ndarray]:
    """Return draws as arrays (shard, chain, draw, …), NaN where a shard has fewer than others."""

    def pad(array: np.ndarray) -> np.ndarray:
        padding = np.full((num_draws - len(array), *array.shape[1:]), np.nan)
        return np.concatenate([np.asarray(array, float), padding])

    shards = [draws[shard] for shard in range(len(draws))]
    return {
        name: np.stack([pad(shard[name]) for shard in shards])[:, None] for name in draws.shapes
    }
