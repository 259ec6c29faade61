r"""How far off the integrals over local parameters are, and what that does to the result.

The log density of some shards is evaluated at some draws with more nodes. Its change $\Delta$ would
reweight the draws by $e^\Delta$, which moves a mean by at most the sd of $\Delta$ over the draws,
in posterior sds. Nodes lie around one mode of every group; other modes are sought from starts on
all sides of it, at the draws' mean, and compared by Laplace's approximation.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._runtime import FAST_COMPILATION, compiled_per_model
from ..data.cache import ShardCache, Task
from ..data.shard import Shard
from ..groups.local_model import LocalModel, groups_of
from ..groups.local_modes import LocalNormals, local_normals
from ..groups.quadrature import AbstractQuadrature
from ..model import Model
from ..space import Point
from ..target import Target

NUM_DRAWS = 16  # at which more nodes are tried
MAX_CHANGE_SD = 0.1  # nats: means are then off by less than 0.1 sd
MAX_GOOD_CHANGE_SD = 0.03
# In sds, along every local coordinate and on both sides. Where rows say much more than the prior,
# an sd is a small share of the distance to another mode.
START_DISTANCES = (3.0, 10.0, 30.0, 100.0, 300.0)
MAX_SHARDS = 8  # whose groups get more nodes, and are searched for other modes
MIN_MODE_DISTANCE = 3.0  # sds between two modes
MIN_MODE_SHARE = 0.01  # of a group's mass


class IntegralCheck(NamedTuple):
    """What more nodes and other starts show.

    Attributes:
        change_sd: sd over draws of the change of the log density with more nodes, in nats.
        num_several_modes: number of groups with several modes.
        num_groups: number of groups that were searched.
    """

    change_sd: float
    num_several_modes: int
    num_groups: int


def check_integrals(
    draws: Float[np.ndarray, "draw dim"], target: Target, seed: int
) -> IntegralCheck:
    """Compare integrals with those by more nodes, and seek other modes of local parameters."""
    local = target.model.local
    assert local is not None
    assert local.quadrature is not None
    chosen = np.random.default_rng(seed).permutation(len(draws))[:NUM_DRAWS]
    points = draws[chosen]
    tasks = [Task((shard,)) for shard in range(min(target.num_shards, MAX_SHARDS))]
    work = partial(_changes, finer=local.quadrature.doubled(local.space.dim), points=points)
    some = np.sum(list(target.executor.map(work, tasks, target.shard_cache)), axis=0)
    changes = some * target.num_shards / len(tasks)
    search = partial(_several_modes, point=draws.mean(axis=0))
    counts = list(target.executor.map(search, tasks, target.shard_cache))
    several, groups = np.sum(counts, axis=0)
    change_sd = float(changes.std()) if np.isfinite(changes).all() else np.inf
    return IntegralCheck(change_sd, int(several), int(groups))


def prepare(target: Target) -> None:
    """Compile the programs of the check, for executors in this process."""
    model, shard = target.model, target.shard_cache.shards[0]
    local = model.local
    assert local is not None
    assert local.quadrature is not None
    finer, dim = local.quadrature.doubled(local.space.dim), model.space.dim
    points, point = (jax.ShapeDtypeStruct(shape, float) for shape in ((NUM_DRAWS, dim), (dim,)))
    _differences.lower(model, finer, shard, points).compile()
    _other_shares.lower(model, shard, point).compile()


def integral_sentences(check: IntegralCheck) -> tuple[list[str], list[str]]:
    """Return faults, which make a result poor, and doubts."""
    faults, doubts = [], []
    if check.num_several_modes:
        faults.append(
            f"The local parameters of {check.num_several_modes} of {check.num_groups} groups have "
            "several modes, of which the integral sees one. Use a prior that rules the others out, "
            "or chains on all rows with local parameters sampled."
        )
    sentence = (
        "The integrals over local parameters are not accurate enough: with more nodes the log "
        f"density changes by ± {check.change_sd:.2g} nats over the draws, so that means may be off "
        "by as many sds. Try more nodes, e.g. quadrature=vcmc.GaussHermite(31)."
    )
    if check.change_sd > MAX_CHANGE_SD:
        faults.append(sentence)
    elif check.change_sd > MAX_GOOD_CHANGE_SD:
        doubts.append(sentence)
    return faults, doubts


def _changes(
    shard_cache: ShardCache,
    task: Task,
    advance: Callable[[int], None],
    finer: AbstractQuadrature,
    points: np.ndarray,
) -> Float[np.ndarray, " point"]:
    """Return the change of a shard's log likelihood with more nodes, at some points."""
    del advance
    shard = shard_cache.shard(task.shards[0])
    model = shard_cache.model
    return np.asarray(_differences(model, finer, shard, points))


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1), compiler_options=FAST_COMPILATION)
def _differences(
    model: Model, finer: AbstractQuadrature, shard: Shard, points: Float[Array, "point dim"]
) -> Float[Array, " point"]:
    local: LocalModel = model.local  # type: ignore[assignment]
    weights = groups_of(shard).weights

    def difference(modes: Array, point: Point) -> tuple[Array, Array]:
        changes, modes = local.changes(finer, model.space.constrain(point), shard, modes)
        return modes, jnp.sum(weights * changes)

    return jax.lax.scan(difference, local.start(shard), points)[1]


def _several_modes(
    shard_cache: ShardCache, task: Task, advance: Callable[[int], None], point: np.ndarray
) -> tuple[int, int]:
    """Return the number of groups of a shard with several modes, and the number of groups."""
    del advance
    shard = shard_cache.shard(task.shards[0])
    is_group = np.asarray(groups_of(shard).weights) > 0
    shares = np.asarray(_other_shares(shard_cache.model, shard, jnp.asarray(point)))
    return int(np.sum(shares[is_group] > MIN_MODE_SHARE)), int(is_group.sum())


@compiled_per_model
@partial(jax.jit, static_argnums=0, compiler_options=FAST_COMPILATION)
def _other_shares(model: Model, shard: Shard, point: Point) -> Float[Array, " group"]:
    """Return the share of each group's mass, by Laplace's approximation, in another mode."""
    local: LocalModel = model.local  # type: ignore[assignment]
    log_joint = local.log_joint(model.space.constrain(point), shard)
    dim = local.space.dim
    starts = np.concatenate(
        [sign * distance * np.eye(dim) for distance in START_DISTANCES for sign in (-1, 1)]
    )

    def share(own: LocalNormals, start: Float[Array, " dim"]) -> tuple[Any, Float[Array, " group"]]:
        """Seek a mode from a start around the own one; the own one is found first."""
        is_first = jnp.isnan(start[0])
        begin = jnp.where(is_first, local.start(shard), own.at(jnp.nan_to_num(start)))
        other = local_normals(log_joint, begin)
        own = jax.tree.map(lambda *pair: jnp.where(is_first, *pair), other, own)
        # in the larger of the two modes' sds
        sds = jnp.linalg.norm(other.roots, axis=2), jnp.linalg.norm(own.roots, axis=2)
        offset = other.centres - own.centres
        distance = jnp.max(jnp.abs(offset) / jnp.maximum(*sds), axis=1)
        mass, own_mass = jax.lax.map(
            lambda normals: log_joint(normals.centres) + normals.log_dets,
            jax.tree.map(lambda *pair: jnp.stack(pair), other, own),
        )
        ratio = jax.nn.sigmoid(mass - own_mass)
        return own, jnp.where((distance > MIN_MODE_DISTANCE) & jnp.isfinite(mass), ratio, 0.0)

    # one search in a loop, so that it is compiled once; the first start stands for the own mode
    all_starts = jnp.asarray(np.concatenate([np.full((1, dim), np.nan), starts]))
    blank = local.start(shard)
    unknown = LocalNormals(blank, jnp.zeros((*blank.shape, dim)))
    return jnp.max(jax.lax.scan(share, unknown, all_starts)[1], axis=0)
