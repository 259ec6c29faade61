r"""Recognise chains that were given as shards: groups of "shards" with the same distribution.

Means of different shards differ by about one sd of a shard's posterior, those of chains of one
shard by their Monte Carlo error. For groups of $g$ neighbours, the statistic

$$S = \text{mean over groups and coordinates of} \; n_{\text{eff}} \,
  \frac{\text{variance of means within the group}}{\text{variance of draws}}$$

is about 1 if groups are chains of one shard, and about $n_{\text{eff}}$ if they are shards.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

MIN_EFFECTIVE_DRAWS = 20  # per shard; with fewer, means of shards are not told apart
MAX_CHANCE = 1e-6  # that shards agree so closely in groups
MAX_QUANTILE = 0.999  # of the statistic of chains


def repeated_shards(
    points: Float[np.ndarray, "shard chain draw dim"], ess: Mapping[str, np.ndarray]
) -> list[str]:
    """Return a warning if shards look like chains of fewer shards.

    Args:
        points: the shards' draws.
        ess: effective draws of every parameter in each shard.
    """
    num_shards = len(points)
    means = points.mean(axis=(1, 2))
    sds = np.sqrt(points.var(axis=(1, 2)).mean(axis=0))
    by_shard = np.concatenate([values.reshape(num_shards, -1) for values in ess.values()], axis=1)
    if num_shards < 4 or not np.isfinite(by_shard).all() or not (sds > 0).all():
        return []
    num_effective = float(np.median(by_shard.min(axis=1)))
    if num_effective < MIN_EFFECTIVE_DRAWS:
        return []
    standardized = (means - means.mean(axis=0)) / sds
    for size in range(num_shards // 2, 1, -1):
        if num_shards % size:
            continue
        by_neighbours = standardized.reshape(-1, size, means.shape[1])
        in_turns = standardized.reshape(size, -1, means.shape[1]).swapaxes(0, 1)
        if any(_are_chains(groups, num_effective) for groups in (by_neighbours, in_turns)):
            return [
                f"the {num_shards} shards look like {size} chains of each of {num_shards // size} "
                f"shards: in groups of {size} their means are the same up to Monte Carlo error. "
                "Chains that are counted as shards make the posterior too narrow. Group them: pass "
                "arrays (shard, chain, draw, …) with chains=True, or lists of files to read_draws."
            ]
    return []


def _are_chains(groups: Float[np.ndarray, "group member dim"], ess: float) -> bool:
    """Return whether members of groups have the same mean, and groups have different ones."""
    from scipy.stats import chi2  # here: it adds to the time of `import vcmc`

    num_groups, size, _ = groups.shape
    within = ess * groups.var(axis=1, ddof=1).mean()
    between = ess * groups.mean(axis=1).var(axis=0, ddof=1).mean()
    freedom = num_groups * (size - 1)  # as if there were one coordinate: others may be correlated
    chance = chi2.cdf(freedom * within / ess, freedom)
    limit = chi2.ppf(MAX_QUANTILE, freedom) / freedom
    return bool(within < limit and chance < MAX_CHANCE and between > 10 * limit)
