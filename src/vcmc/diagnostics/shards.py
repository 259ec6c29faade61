"""Look at the shards' draws: which did not converge, which are stuck, which disagree."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from scipy.special import chdtri  # scipy.stats has it too, and takes a second to import

from . import convergence

POOR_RHAT = 1.05
FEW_EFFECTIVE = 100
SUSPICIOUS = 1e-4  # chance that a sound run with any number of shards is called disagreeing

Draws = Float[np.ndarray, "shard chain draw dim"]


def broken_shards(draws: Draws) -> dict[int, str]:
    """Shards whose draws cannot be used, with the reason."""
    reasons = {}
    for shard, points in enumerate(draws):
        if not np.isfinite(points).all():
            reasons[shard] = "its draws are not finite"
        elif points.shape[1] > 1 and (points == points[:, :1]).all(axis=(1, 2)).any():
            reasons[shard] = "a chain of it is stuck: all draws are the same"
        elif points.shape[1] > 1 and (fixed := (points == points[:1, :1]).all(axis=(0, 1))).any():
            reasons[shard] = f"its coordinates {_list(np.flatnonzero(fixed))} never change"
    return reasons


def shard_rhat(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rank-normalised split R-hat of every parameter within each shard, axes (shard, …)."""
    return {name: convergence.rhat(values) for name, values in params.items()}


def shard_ess(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Effective number of draws (bulk) of every parameter within each shard, axes (shard, …)."""
    return {name: convergence.ess(values) for name, values in params.items()}


def disagreeing_shards(draws: Draws) -> list[int]:
    r"""Shards whose mean is farther from the others' than their spreads explain.

    If shard $k$ is Gaussian with mean $m_k$ and precision $P_k$, and all shards speak of the same
    parameters, then with the other shards' consensus $m_{-k}$ and $P_{-k} = \sum_{j \ne k} P_j$,
    $(m_k - m_{-k})^\top (P_k^{-1} + P_{-k}^{-1})^{-1} (m_k - m_{-k})$ is about $\chi^2_d$. The worst
    shard is set aside and the rest looked at again, so that it cannot make others look bad.
    """
    num_shards, _, _, dim = draws.shape
    points = draws.reshape(num_shards, -1, dim)
    if points.shape[1] < 5 * dim:
        return []  # too few draws to tell
    covariances = np.array([np.atleast_2d(np.cov(shard.T)) for shard in points])
    if np.linalg.cond(covariances).max() > 1e12:
        return []  # coordinates that determine each other: no distance to speak of
    precisions = np.linalg.inv(covariances)
    means = points.mean(axis=1)
    limit = chdtri(dim, SUSPICIOUS / num_shards)
    rest, found = list(range(num_shards)), []
    while len(rest) > 2:
        distances = [_distance(shard, rest, means, precisions) for shard in rest]
        if max(distances) < limit:
            break
        found.append(rest.pop(int(np.argmax(distances))))
    return sorted(found)


def _distance(shard: int, rest: list[int], means: np.ndarray, precisions: np.ndarray) -> float:
    """Squared distance of a shard's mean from the consensus of the rest, in units of its variance."""
    others = [other for other in rest if other != shard]
    precision = precisions[others].sum(axis=0)
    weighted = np.einsum("kij,kj->i", precisions[others], means[others])
    gap = means[shard] - np.linalg.solve(precision, weighted)
    spread = np.linalg.inv(precisions[shard]) + np.linalg.inv(precision)
    return float(gap @ np.linalg.solve(spread, gap))


def doubts(
    draws: Draws,
    rhat: Mapping[str, np.ndarray],
    ess: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
) -> list[str]:
    """What looks doubtful in the shards' draws, in words; nothing if nothing does."""
    found = []
    num_draws = draws.shape[1] * draws.shape[2]
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
    if "diverging" in stats and (diverging := stats["diverging"].sum(axis=(1, 2))).any():
        found.append(
            f"divergent steps: {diverging.sum()}, in shards {_list(np.flatnonzero(diverging))}. Try a "
            "higher target_accept, or other coordinates for the parameters."
        )
    if far := disagreeing_shards(draws):
        found.append(
            f"shards {_list(far)} disagree with the others by more than their own spread explains: "
            "were rows dealt at random? Try vcmc.split(...) with its default shuffle, or fewer shards."
        )
    return found


def _by_shard(values: np.ndarray, extreme: np.ufunc) -> Float[np.ndarray, " shard"]:
    """The largest or smallest entry of each shard; NaN, which constants have, does not count."""
    return extreme.reduce(values.reshape(len(values), -1), axis=1)


def _list(shards: np.ndarray | list[int]) -> str:
    shown = ", ".join(str(int(shard)) for shard in shards[:10])
    return shown + (f" and {len(shards) - 10} more" if len(shards) > 10 else "")
