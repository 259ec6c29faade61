"""Check before sampling that every shard's rows are informative about every coordinate."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..data.cache import ShardCache, Task
from ..density import Subposterior
from ..errors import ModelError
from ..target import Target

MAX_NAMED_COORDINATES = 5  # in an error message


class ShardFacts(NamedTuple):
    """Facts about a shard, computed where its rows are.

    Attributes:
        silent: coordinates that the shard's log likelihood does not depend on.
        num_rows: number of rows.
        num_padded: number of rows with padding.
        kinds: dtype and shape of a row of every array.
        checksum: checksum of the rows, if asked for.
    """

    silent: Bool[np.ndarray, " dim"]
    num_rows: int
    num_padded: int
    kinds: dict[str, str]
    checksum: str


def shard_facts(
    target: Target, points: Float[Array, "point dim"], with_checksums: bool = False
) -> list[ShardFacts]:
    """Return facts about every shard; raise an error if their rows are of different kinds."""
    work = partial(_facts, points=np.asarray(points), with_checksum=with_checksums)
    tasks = [Task((shard,)) for shard in range(target.num_shards)]
    all_facts: list[ShardFacts] = list(target.executor.map(work, tasks, target.shard_cache))
    expected = all_facts[0].kinds
    for shard, facts in enumerate(all_facts):
        if facts.kinds != expected:
            raise ValueError(
                f"all shards must have rows of the same dtypes and shapes; shard 0 has {expected}, "
                f"shard {shard} has {facts.kinds}."
            )
    return all_facts


def _facts(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    points: np.ndarray,
    with_checksum: bool,
) -> ShardFacts:
    del advance
    density = shard_cache.density(task.shards[0])
    shard = density.shard
    silent = np.asarray(_silent(density, jnp.asarray(points)))
    kinds = {
        name: f"{array.dtype}{list(array.shape[1:])}" for name, array in sorted(shard.rows.items())
    }
    checksum = shard.checksum() if with_checksum else ""
    return ShardFacts(silent, shard.num_rows, len(shard.weights), kinds, checksum)


def check_information(
    target: Target, points: Float[Array, "point dim"], facts: list[ShardFacts]
) -> list[str]:
    """Return warnings about shards whose rows hold no information on some coordinate.

    Raise `ModelError` if the prior is flat there, too: such a shard has no proper posterior.
    """
    silent = np.stack([shard.silent for shard in facts])
    flat_prior = np.asarray(_flat_prior(target.pilot, points))
    names = np.array(target.model.space.coordinates)
    improper = silent & flat_prior
    if improper.any():
        shard = int(np.argmax(improper.any(axis=1)))
        raise ModelError(
            f"every shard must have a proper posterior, but {improper.any(axis=1).sum()} of "
            f"{len(silent)} shards hold no information on some coordinate whose prior is flat "
            f"(shard {shard}: {', '.join(names[improper[shard]][:MAX_NAMED_COORDINATES])}). Use a "
            "proper prior, spread rare rows evenly with vcmc.split(rows, num_shards, stratify=…), "
            "or use fewer shards."
        )
    # A coordinate that no shard's rows inform is a feature of the model, e.g. of a hierarchical
    # one, and not a fault of the partition.
    warnings = []
    for index in np.flatnonzero(silent.any(axis=0) & ~silent.all(axis=0)):
        count = silent[:, index].sum()
        warnings.append(
            f"{count} of {len(silent)} shards {'holds' if count == 1 else 'hold'} no information "
            f"on {names[index]}, so that its draws there are those of the tempered prior. Try "
            "vcmc.split(..., stratify=...) or fewer shards."
        )
    return warnings


@eqx.filter_jit
def _silent(density: Subposterior, points: Float[Array, "point dim"]) -> Bool[Array, " dim"]:
    """Return the coordinates that the log likelihood does not depend on at any of the points."""
    score = jax.grad(density.model.log_likelihood_at)
    return jnp.all(jax.vmap(score, in_axes=(0, None))(points, density.shard) == 0, axis=0)


@eqx.filter_jit
def _flat_prior(density: Subposterior, points: Float[Array, "point dim"]) -> Bool[Array, " dim"]:
    return jnp.all(jax.vmap(jax.grad(density.model.log_prior_at))(points) == 0, axis=0)
