"""What the shards' draws look like, seen all at once or one shard after the other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..aggregators.combinatorial import common_labels, relabel, with_common_labels
from ..combiners.base import Prior, evenly
from ..data.params import to_params, to_points
from ..diagnostics.shards import broken_shards, doubts, shard_ess, shard_rhat
from ..results.draws import StreamedDraws
from ..space import Product

NUM_COMPARED, PER_COORDINATE = (
    200,
    10,
)  # draws of a shard by which it is compared with others, at least


class ShardSummary(NamedTuple):
    """What was seen of the shards.

    Attributes:
        points: what a combiner is given: draws whose exchangeable components have common labels.
        subposterior: the draws as params, axes (shard, chain, draw, …), unless they are not held; NaN where a shard has fewer.
        rhat, ess: R-hat and effective draws of every parameter in each shard.
        counts: draws of every shard.
        num_chains: chains of every shard.
        sample: some draws of every shard, by which shards are compared.
        broken: shards whose draws cannot be used, with the reason, if they were looked for.
    """

    points: Any
    subposterior: dict[str, np.ndarray]
    rhat: dict[str, np.ndarray]
    ess: dict[str, np.ndarray]
    counts: list[int]
    num_chains: int
    sample: Float[np.ndarray, "shard chain draw dim"]
    broken: Mapping[int, str] = MappingProxyType({})

    def doubts(self, stats: dict[str, np.ndarray], space: Product, prior: Prior) -> list[str]:
        """What looks doubtful in the shards' draws, in words."""
        sample = self.sample
        if (
            prior == "powered"
        ):  # these are as narrow as the posterior, but lie as far apart as any shards do
            centres = sample.mean(axis=(1, 2), keepdims=True)
            sample = centres + np.sqrt(len(sample)) * (sample - centres)
        return doubts(sample, self.rhat, self.ess, stats, space, min(self.counts))


def summarize_shards(
    space: Product, draws: Float[np.ndarray, "shard chain draw dim"]
) -> ShardSummary:
    """Look at draws of shards that all have as many, and none of which is broken."""
    num_shards, num_chains, num_draws, dim = draws.shape
    counts = [num_chains * num_draws] * num_shards
    params = to_params(space, jnp.asarray(draws))
    aligned = with_common_labels(space, draws.reshape(num_shards, -1, dim))
    return ShardSummary(
        jnp.asarray(aligned),
        params,
        shard_rhat(params),
        shard_ess(params),
        counts,
        num_chains,
        aligned.reshape(draws.shape),
    )


def summarize_streamed_shards(space: Product, draws: StreamedDraws) -> ShardSummary:
    """Look at one shard after the other."""
    size = max(NUM_COMPARED, PER_COORDINATE * space.dim)
    counts: list[int] = []
    sample: list[np.ndarray] = []
    rhats: list[dict[str, np.ndarray]] = []
    effective: list[dict[str, np.ndarray]] = []

    def look() -> Iterator[Float[np.ndarray, "chain draw dim"]]:
        for shard in range(len(draws)):
            params = draws[shard]
            each = np.asarray(to_points(space, params))
            counts.append(len(each))
            sample.append(evenly(each, size))
            chains = {name: array[None, None] for name, array in params.items()}
            rhats.append(shard_rhat(chains))
            effective.append(shard_ess(chains))
            yield each[None]

    broken = broken_shards(look())
    some = np.stack(sample)
    alignments = [] if broken else common_labels(space, jnp.asarray(some))
    for alignment in alignments:
        some = np.asarray(relabel(space, jnp.asarray(some), alignment))
    points = Points(space, draws, tuple(counts), alignments)
    rhat, ess = (
        {name: np.concatenate([each[name] for each in parts]) for name in space}
        for parts in (rhats, effective)
    )
    held = _padded(draws, max(counts)) if draws.held else {}
    return ShardSummary(points, held, rhat, ess, counts, 1, some[:, None], broken)


@dataclass(frozen=True)
class Points:
    """Draws of one shard after the other as points, whose exchangeable components have common labels."""

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
    """Draws as arrays (shard, chain, draw, …), with NaN where a shard has fewer than others."""

    def pad(array: np.ndarray) -> np.ndarray:
        rest = np.full((num_draws - len(array), *array.shape[1:]), np.nan)
        return np.concatenate([np.asarray(array, float), rest])

    every = [draws[shard] for shard in range(len(draws))]
    return {name: np.stack([pad(each[name]) for each in every])[:, None] for name in draws.shapes}
