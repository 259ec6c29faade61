"""Look at the shards' draws: which did not converge, which are stuck, which disagree."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import chdtri  # scipy.stats has it too, and takes a second to import

from ..space import Product
from . import convergence

POOR_RHAT = 1.05
FEW_EFFECTIVE = 100
DIVERGENT = 0.005  # share of a shard's steps that may diverge
WIDE = 20.0  # times the median spread of the shards
# draws of a chain whose labels are looked at, and the share of them that may look switched
NUM_LABELLED, SWITCHED = 50, 0.02
MAX_NAMED = 10  # shards that disagree, before it is enough
SUSPICIOUS = 1e-4  # chance that a sound run with any number of shards is called disagreeing

Draws = Float[np.ndarray, "shard chain draw dim"]


class ShardChecker:
    """Check the draws of one shard after the other; `reasons` says which cannot be used, and why."""

    def __init__(self) -> None:
        self.reasons: dict[int, str] = {}
        self._num_shards = 0
        self._first_with_hash: dict[int, int] = {}

    def add(self, points: Float[np.ndarray, "chain draw dim"]) -> None:
        """Check the draws of the next shard."""
        shard = self._num_shards
        self._num_shards += 1
        draws_hash = hash(np.sort(points[..., 0], axis=None).tobytes())
        twin = self._first_with_hash.setdefault(draws_hash, shard)
        if reason := unusable(points):
            self.reasons[shard] = reason
        elif points.shape[1] > 1 and (fixed := (points == points[:1, :1]).all(axis=(0, 1))).any():
            self.reasons[shard] = f"its coordinates {_list(np.flatnonzero(fixed))} never change"
        elif twin < shard:
            self.reasons[shard] = f"its draws are those of shard {twin}"


def broken_shards(draws: Draws) -> dict[int, str]:
    """Return the shards whose draws cannot be used, with the reason."""
    checker = ShardChecker()
    for points in draws:
        checker.add(points)
    return checker.reasons


def unusable(points: Float[np.ndarray, "chain draw dim"]) -> str:
    """Why chains cannot be used, by themselves; nothing if they can."""
    if not np.isfinite(points).all():
        return "its draws are not finite"
    if points.shape[1] > 1 and (points == points[:, :1]).all(axis=(1, 2)).any():
        return "a chain of it is stuck: all draws are the same"
    return ""


def shard_rhat(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rank-normalised split R-hat of every parameter within each shard, axes (shard, …)."""
    return {name: convergence.rhat(values) for name, values in params.items()}


def shard_ess(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Effective number of draws (bulk) of every parameter within each shard, axes (shard, …)."""
    return {name: convergence.ess(values) for name, values in params.items()}


def disagreeing_shards(draws: Draws, num_draws: int | None = None) -> dict[int, int]:
    r"""Shards whose mean is farther from the others' than their spreads explain, with the coordinate that is off most.

    If shard $k$ is Gaussian with mean $m_k$ and precision $P_k$, and all shards speak of the same
    parameters, then with the other shards' consensus $m_{-k}$ and $P_{-k} = \sum_{j \ne k} P_j$,
    $(m_k - m_{-k})^\top (P_k^{-1} + P_{-k}^{-1})^{-1} (m_k - m_{-k})$ is about $\chi^2_d$. The worst
    shard is set aside and the rest looked at again, so that it cannot make others look bad. With few draws for
    so many coordinates, each coordinate is looked at by itself.
    """
    num_shards, _, _, dim = draws.shape
    points = draws.reshape(num_shards, -1, dim)
    means = points.mean(axis=1)
    variances = points.var(axis=1, ddof=1)
    apart = min(points.shape[1], num_draws or points.shape[1]) < 5 * dim
    if apart:
        precisions = 1 / variances
        limit = chdtri(1, SUSPICIOUS / (num_shards * dim))
    else:
        covariances = np.array([np.atleast_2d(np.cov(shard.T)) for shard in points])
        if np.linalg.cond(covariances).max() > 1e12:
            return {}  # coordinates that determine each other: no distance to speak of
        precisions = np.linalg.inv(covariances)
        limit = chdtri(dim, SUSPICIOUS / num_shards)
    rest = list(range(num_shards))
    found: dict[int, int] = {}
    while len(rest) > 2 and len(found) < MAX_NAMED:
        distances = _distances(rest, means, precisions, variances if apart else covariances)
        worst = max(distances, key=lambda shard: distances[shard][0])
        if distances[worst][0] < limit:
            break
        found[worst] = distances[worst][1]
        rest.remove(worst)
    return dict(sorted(found.items()))


def _distances(
    rest: list[int], means: np.ndarray, precisions: np.ndarray, spreads: np.ndarray
) -> dict[int, tuple[float, int]]:
    """Squared distance of every shard's mean from the consensus of the rest, and the coordinate that is off most."""
    total = precisions[rest].sum(axis=0)
    apart = precisions.ndim == 2
    product = np.multiply if apart else np.matmul
    weighted = {shard: product(precisions[shard], means[shard]) for shard in rest}
    sum_weighted = np.sum(list(weighted.values()), axis=0)
    found = {}
    for shard in rest:
        others = total - precisions[shard]
        pull = sum_weighted - weighted[shard]
        if apart:
            off = (means[shard] - pull / others) ** 2 / (spreads[shard] + 1 / others)
            found[shard] = float(off.max()), int(np.argmax(off))
            continue
        gap = means[shard] - np.linalg.solve(others, pull)
        spread = spreads[shard] + np.linalg.inv(others)
        single = gap**2 / np.diag(spread)
        found[shard] = float(gap @ np.linalg.solve(spread, gap)), int(np.argmax(single))
    return found


def wide_shards(draws: Draws) -> dict[int, int]:
    """Shards that are far wider than the others in some coordinate, which they hardly know, and that coordinate."""
    spreads = draws.std(axis=(1, 2))
    ratios = spreads / np.median(spreads, axis=0)
    return {
        shard: int(np.argmax(row))
        for shard, row in enumerate(ratios)
        if len(ratios) > 2 and row.max() > WIDE
    }


def switching_shards(space: Product, draws: Draws) -> list[int]:
    """Shards in whose chains exchangeable components change their labels."""
    from scipy.optimize import (
        linear_sum_assignment,  # here, not above: it adds to the time of `import vcmc`
    )

    found = set()
    for block, part in space.labelled():
        some = np.linspace(0, draws.shape[2] - 1, min(draws.shape[2], NUM_LABELLED)).astype(int)
        points = draws[:, :, some][..., np.array(block)]
        points = points.reshape(len(draws), -1, points.shape[-1])
        components = np.asarray(jax.jit(jax.vmap(jax.vmap(part.components)))(jnp.asarray(points)))
        for shard, each in enumerate(components):
            steps = np.median(np.abs(np.diff(each, axis=0)), axis=(0, 1))
            steps = np.maximum(
                steps, 1e-3 * each.std(axis=(0, 1)) + 1e-12
            )  # a chain may stand still
            gaps = np.sum(((each[0][None, :, None] - each[:, None]) / steps) ** 2, axis=-1)
            other = [
                bool((linear_sum_assignment(gap)[1] != np.arange(len(gap))).any()) for gap in gaps
            ]
            if np.mean(other) > SWITCHED:
                found.add(shard)
    return sorted(found)


def doubts(
    draws: Draws,
    rhat: Mapping[str, np.ndarray],
    ess: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
    space: Product,
    num_draws: int | None = None,
) -> list[str]:
    """What looks doubtful in the shards' draws, in words; nothing if nothing does.

    If these are only some of the draws, `num_draws` is how many a shard has.
    """
    found = []
    num_draws = num_draws or draws.shape[1] * draws.shape[2]
    worst_rhat = np.fmax.reduce([_by_shard(values, np.fmax) for values in rhat.values()])
    least_ess = np.fmin.reduce([_by_shard(values, np.fmin) for values in ess.values()])
    if len(poor := np.flatnonzero(worst_rhat > POOR_RHAT)):
        found.append(
            f"shards {_list(poor)} did not converge: R-hat up to {worst_rhat[poor].max():.2f} "
            f"(expected below {POOR_RHAT}). Try more warm-up or more draws."
        )
    if len(few := np.flatnonzero(least_ess < min(FEW_EFFECTIVE, num_draws / 5))):
        found.append(
            f"shards {_list(few)} have few effective draws: {least_ess[few].min():.0f} at the least, of "
            f"{num_draws}. Try more draws."
        )
    if "diverging" in stats:
        shares = stats["diverging"].mean(axis=(1, 2))
        if len(many := np.flatnonzero(shares > DIVERGENT)):
            found.append(
                f"divergent steps: {stats['diverging'][many].sum()}, in shards {_list(many)}. Try a "
                "higher target_accept, or other coordinates for the parameters."
            )
    if far := disagreeing_shards(draws, num_draws):
        found.append(
            f"shards {_list(list(far))} disagree with the others by more than their own spread explains, {_where(far, space)}: "
            "were rows dealt at random, and are those shards' rows sound? Look at them with partition.load(k), try "
            "vcmc.split(...) with its default shuffle, or fewer shards."
        )
    if wide := wide_shards(draws):
        found.append(
            f"shards {_list(list(wide))} are more than {WIDE:.0f} times as wide as others, {_where(wide, space)}: their rows say next "
            "to nothing there, and the tempered prior does not hold them. Deal rare rows evenly with vcmc.split(..., "
            'stratify=...), use fewer shards, or give every shard the full prior: prior="partial", with the default combiner.'
        )
    if switching := switching_shards(space, draws):
        found.append(
            f"labels of exchangeable components change within the chains of shards {_list(switching)}: averages mix different "
            "components. Order the components, or relabel the draws before combining them."
        )
    return found


def _where(shards: Mapping[int, int], space: Product) -> str:
    shard, index = next(iter(shards.items()))
    return f"shard {shard} most so on {space.coordinates[index]}"


def _by_shard(values: np.ndarray, extreme: np.ufunc) -> Float[np.ndarray, " shard"]:
    """The largest or smallest entry of each shard; NaN, which constants have, does not count."""
    return extreme.reduce(values.reshape(len(values), -1), axis=1)


def _list(shards: np.ndarray | list[int]) -> str:
    shown = ", ".join(str(int(shard)) for shard in shards[:10])
    return shown + (f" and {len(shards) - 10} more" if len(shards) > 10 else "")
