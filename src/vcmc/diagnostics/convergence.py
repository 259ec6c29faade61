r"""R-hat and bulk effective sample size (ESS) of many scalars at once.

Vehtari, Gelman, Simpson, Carpenter and Bürkner, *Rank-normalization, folding, and localization: an
improved R-hat for assessing convergence of MCMC* (2021), with the details of ArviZ, which the tests
compare with. Each chain is split into halves, and the draw of rank $r$ among all $S$ draws becomes
$z = \Phi^{-1}((r - 3/8) / (S + 1/4))$. With $B$ the variance of the $M$ halves' means and $W$ the
mean of their variances over $n$ draws,

$$\hat R = \sqrt{\frac{n - 1}{n} + \frac{B}{W}}, \qquad
\mathrm{ESS} = \frac{M n}{-1 + 2 \sum_t \hat\rho_t},$$

where $\hat\rho_t$ is the autocorrelation at lag $t$, summed for as long as the sum of two
neighbours is positive. R-hat is the larger of that of the draws and that of their distances from
the median.
"""

from collections.abc import Callable
from math import prod

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.special import ndtri

from .._runtime import num_cores, thread_map

BLOCK_DRAWS = 2**17  # processed together by a thread, unless one scalar has more
MAX_ACTIVE_DRAWS = 2**20  # processed together by all threads: some 100 MB of arrays
MIN_DRAWS = 4  # of a chain, for both halves to have a variance

Chains = Float[np.ndarray, "series chain draw"]
Statistics = Float[np.ndarray, " series"]
Sorted = Float[np.ndarray, "series rank"]
Positions = Int[np.ndarray, "series rank"]


def rhat(values: np.ndarray) -> np.ndarray:
    """Return R-hat of draws with axes (shard, chain, draw, …), as an array (shard, …).

    It is NaN where it is undefined.
    """
    return _by_block(_rhat, values)


def ess(values: np.ndarray) -> np.ndarray:
    """Return bulk ESS of draws with axes (shard, chain, draw, …), as an array (shard, …)."""
    return _by_block(_ess, values)


def _by_block(statistic: Callable[[Chains], Statistics], values: np.ndarray) -> np.ndarray:
    """Compute a statistic of every scalar, in blocks of scalars on all cores."""
    (num_shards, num_chains, num_draws), shape = values.shape[:3], values.shape[3:]
    size, per_scalar = prod(shape), num_chains * num_draws
    result = np.full((num_shards, size), np.nan)
    if not values.size:
        return result.reshape(num_shards, *shape)
    values = values.reshape(num_shards, num_chains, num_draws, size)
    num_scalars = max(1, BLOCK_DRAWS // per_scalar)
    height, width = max(1, num_scalars // size), min(num_scalars, size)
    blocks = [
        (np.s_[row : row + height], np.s_[column : column + width])
        for row in range(0, num_shards, height)
        for column in range(0, size, width)
    ]
    # Freeing a large array tells glibc to keep the pages of smaller ones. It would otherwise fetch
    # them anew for every array of every block, which doubles the time.
    np.empty(64 * BLOCK_DRAWS, np.int8)
    num_threads = max(1, min(num_cores(), MAX_ACTIVE_DRAWS // max(BLOCK_DRAWS, per_scalar)))
    statistics = thread_map(
        lambda block: _of_block(statistic, values[block[0], ..., block[1]]), blocks, num_threads
    )
    for block, values_of_block in zip(blocks, statistics, strict=True):
        result[block] = values_of_block
    return result.reshape(num_shards, *shape)


def _of_block(
    statistic: Callable[[Chains], Statistics], block: Shaped[np.ndarray, "shard chain draw scalar"]
) -> Float[np.ndarray, "shard scalar"]:
    """Compute a statistic of a block, with each scalar's draws contiguous in memory."""
    dtype = block.dtype if np.issubdtype(block.dtype, np.floating) else float
    chains = np.ascontiguousarray(np.moveaxis(block, 3, 1), dtype)
    with np.errstate(all="ignore"):  # constants and infinities have no R-hat
        return statistic(chains.reshape(-1, *chains.shape[2:])).reshape(chains.shape[:2])


def _rhat(chains: Chains) -> Statistics:
    """Return R-hat of each series; a single chain is split in two, to have something to compare."""
    if chains.shape[1] == 1:
        chains = _halves(chains)
    if chains.shape[2] < MIN_DRAWS:
        return np.full(len(chains), np.nan)
    halves = _halves(chains)
    ascending, position = _ascending(halves)
    bulk = _ratio(_scores(ascending, position).reshape(halves.shape))

    middle = ascending.shape[1] // 2  # the number of draws is even
    median = (ascending[:, middle - 1 : middle] + ascending[:, middle : middle + 1]) / 2
    distances, nearest = _ascending(np.abs(ascending - median), merge=True)
    tail = _ratio(_scores(distances, position.take(nearest)).reshape(halves.shape))
    tail[np.isnan(distances[:, -1])] = np.nan  # infinity less infinity: a distance without a rank

    # Bulk if tail is NaN, as it is for draws with two values.
    result = np.where(tail > bulk, tail, bulk)
    result[np.isnan(chains).any(axis=(1, 2))] = np.nan
    return result


def _ess(chains: Chains) -> Statistics:
    """Return the ESS of each series; for constants, the number of draws."""
    if chains.shape[2] < MIN_DRAWS:
        return np.full(len(chains), np.nan)
    halves = _halves(chains)
    ascending, position = _ascending(halves)
    num_draws = ascending.shape[1]
    time = _autocorrelation_time(_scores(ascending, position).reshape(halves.shape))
    result = num_draws / np.maximum(time, 1 / np.log10(num_draws))
    result[ascending[:, 0] == ascending[:, -1]] = num_draws
    result[np.isnan(chains).any(axis=(1, 2))] = np.nan
    return result


def _halves(chains: Chains) -> Float[np.ndarray, "series part half"]:
    """Split each chain into its first and its last half, without a draw in the middle."""
    half = chains.shape[2] // 2
    return np.concatenate([chains[:, :, :half], chains[:, :, chains.shape[2] - half :]], axis=1)


def _ascending(
    draws: Float[np.ndarray, "series ..."], merge: bool = False
) -> tuple[Sorted, Positions]:
    """Sort each series, and return the position of each draw in the flattened array.

    `merge` is faster if a series consists of a few monotone runs.
    """
    draws = draws.reshape(len(draws), -1)
    position = np.argsort(draws, axis=1, kind="stable" if merge else "quicksort")
    position += np.arange(0, draws.size, draws.shape[1])[:, None]
    return draws.take(position), position


def _scores(ascending: Sorted, position: Positions) -> Float[np.ndarray, " all"]:
    """Return normal scores of the ranks in the order of the draws; ties share their mean rank."""
    count = ascending.shape[1]
    scores = np.tile(_normal_score(np.arange(1, count + 1), count), len(ascending))
    is_tied = np.zeros(ascending.shape, bool)
    np.equal(ascending[:, :-1], ascending[:, 1:], out=is_tied[:, :-1])
    if len(equal := np.flatnonzero(is_tied)):
        # A gap starts another run of ties, maybe in another series.
        opens = np.diff(equal, prepend=-2) > 1
        closes = np.append(opens[1:], True)
        mean_rank = (equal[opens] % count + equal[closes] % count + 3) / 2
        scores[equal] = scores[equal + 1] = _normal_score(mean_rank, count)[np.cumsum(opens) - 1]
    result = np.empty(ascending.size)
    result[position.ravel()] = scores
    return result


def _normal_score(rank: np.ndarray, count: int) -> np.ndarray:
    """Approximate the mean of a standard normal order statistic by Blom's rule."""
    return ndtri((rank - 3 / 8) / (count + 1 / 4))


def _ratio(scores: Chains) -> Statistics:
    """Return classical R-hat: the variance between chains over that within."""
    num_draws = scores.shape[2]
    between = num_draws * scores.mean(axis=2).var(axis=1, ddof=1)
    within = scores.var(axis=2, ddof=1).mean(axis=1)
    return np.sqrt((between / within + num_draws - 1) / num_draws)


def _autocorrelation_time(scores: Chains) -> Statistics:
    """Sum Geyer's initial monotone sequence of pairs: the sums of two neighbouring lags."""
    num_draws = scores.shape[2]
    covariance = _autocovariance(scores).mean(axis=1)
    within = covariance[:, :1] * num_draws / (num_draws - 1)
    total = within * (num_draws - 1) / num_draws + scores.mean(axis=2).var(axis=1, ddof=1)[:, None]
    num_pairs = max(1, (num_draws - 1) // 2)  # without the last lags, as in ArviZ
    correlation = 1 - (within - covariance[:, : 2 * num_pairs]) / total
    correlation[:, 0] = 1
    pairs = correlation[:, ::2] + correlation[:, 1::2]
    ended = ~(pairs > 0)
    ended[:, -1] = True
    end = ended.argmax(axis=1)[:, None]
    falling = np.minimum.accumulate(pairs[:, : end.max() + 1], axis=1)
    summed = np.where(np.arange(falling.shape[1]) < end, falling, 0).sum(axis=1)
    # Where the sequence ends, its even lag counts once if it, or the pair, is not negative.
    even, pair = (
        np.take_along_axis(values, end, axis=1)[:, 0] for values in (correlation[:, ::2], pairs)
    )
    return -1 + 2 * summed + np.where((pair >= 0) | (even > 0), even, 0)


def _autocovariance(scores: Chains) -> Float[np.ndarray, "series chain lag"]:
    """Return the autocovariance of each chain at all lags, by a padded Fourier transform."""
    from scipy.fft import next_fast_len  # here, as it adds to the time of `import vcmc`

    num_draws = scores.shape[2]
    length = next_fast_len(2 * num_draws, real=True)
    spectrum = np.fft.rfft(scores - scores.mean(axis=2, keepdims=True), n=length)
    spectrum *= spectrum.conj()
    return np.fft.irfft(spectrum, n=length)[:, :, :num_draws] / num_draws
