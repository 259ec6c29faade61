r"""R-hat and effective number of draws of many scalars at once.

Both are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (Bayesian Analysis 16, 2021), with
ArviZ's details, which `tests/diagnostics/test_convergence.py` compares them with. Each chain is cut into
halves, and the draw of rank $r$ among all $S$ draws becomes $z = \Phi^{-1}((r - 3/8) / (S + 1/4))$. With $B$
the variance of the $M$ halves' means and $W$ the mean of their variances over $n$ draws,

$$\hat R = \sqrt{\frac{n - 1}{n} + \frac{B}{W}}, \qquad
\mathrm{ESS} = \frac{M n}{-1 + 2 \sum_t \hat\rho_t},$$

where $\hat\rho_t$ is the autocorrelation at lag $t$, summed for as long as two neighbours add up to more
than zero. R-hat is the larger one of the draws' and of their distances from the median.
"""

from collections.abc import Callable
from math import prod

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.special import ndtri

from .._runtime import num_cores, thread_map

BLOCK = 2**17  # draws that a thread looks at together, if a scalar has no more than that
AT_ONCE = 2**20  # draws that all threads look at together: some 100 MB of arrays
MIN_DRAWS = 4  # of a chain, for both halves to have a variance

Chains = Float[np.ndarray, "series chain draw"]
Numbers = Float[np.ndarray, " series"]
Sorted = Float[np.ndarray, "series rank"]
Places = Int[np.ndarray, "series rank"]


def rhat(values: np.ndarray) -> np.ndarray:
    """R-hat of draws with axes (shard, chain, draw, …), as an array (shard, …); NaN if there is none."""
    return _by_block(_rhat, values)


def ess(values: np.ndarray) -> np.ndarray:
    """Effective number (bulk) of draws with axes (shard, chain, draw, …), as an array (shard, …)."""
    return _by_block(_ess, values)


def _by_block(statistic: Callable[[Chains], Numbers], values: np.ndarray) -> np.ndarray:
    """A statistic of every scalar, a few scalars at a time and on all cores."""
    (num_shards, num_chains, num_draws), shape = values.shape[:3], values.shape[3:]
    size, per_scalar = prod(shape), num_chains * num_draws
    result = np.full((num_shards, size), np.nan)
    if not values.size:
        return result.reshape(num_shards, *shape)
    values = values.reshape(num_shards, num_chains, num_draws, size)
    scalars = max(1, BLOCK // per_scalar)
    height, width = max(1, scalars // size), min(scalars, size)
    blocks = [
        (np.s_[row : row + height], np.s_[column : column + width])
        for row in range(0, num_shards, height)
        for column in range(0, size, width)
    ]
    # Freeing a large array tells glibc to keep the pages of smaller ones. It would otherwise fetch them anew
    # for every array of every block, which doubles the time.
    np.empty(64 * BLOCK, np.int8)
    num_threads = max(1, min(num_cores(), AT_ONCE // max(BLOCK, per_scalar)))
    found = thread_map(
        lambda block: _of_block(statistic, values[block[0], ..., block[1]]), blocks, num_threads
    )
    for block, numbers in zip(blocks, found, strict=True):
        result[block] = numbers
    return result.reshape(num_shards, *shape)


def _of_block(
    statistic: Callable[[Chains], Numbers], block: Shaped[np.ndarray, "shard chain draw scalar"]
) -> Float[np.ndarray, "shard scalar"]:
    """A statistic of some scalars in some shards, with each scalar's draws side by side in memory."""
    dtype = block.dtype if np.issubdtype(block.dtype, np.floating) else float
    chains = np.ascontiguousarray(np.moveaxis(block, 3, 1), dtype)
    with np.errstate(all="ignore"):  # constants and infinities have no R-hat, and need no warning
        return statistic(chains.reshape(-1, *chains.shape[2:])).reshape(chains.shape[:2])


def _rhat(chains: Chains) -> Numbers:
    """R-hat of each series; a lone chain counts as two, as there would be nothing to compare it with."""
    if chains.shape[1] == 1:
        chains = _halves(chains)
    if chains.shape[2] < MIN_DRAWS:
        return np.full(len(chains), np.nan)
    halves = _halves(chains)
    ascending, place = _ascending(halves)
    bulk = _ratio(_scores(ascending, place).reshape(halves.shape))

    middle = ascending.shape[1] // 2  # the number of draws is even
    median = (ascending[:, middle - 1 : middle] + ascending[:, middle : middle + 1]) / 2
    distances, nearest = _ascending(np.abs(ascending - median), merge=True)
    tail = _ratio(_scores(distances, place.take(nearest)).reshape(halves.shape))
    tail[np.isnan(distances[:, -1])] = np.nan  # infinity less infinity: a distance without a rank

    found = np.where(
        tail > bulk, tail, bulk
    )  # bulk too if tail is NaN, as for draws with two values
    found[np.isnan(chains).any(axis=(1, 2))] = np.nan
    return found


def _ess(chains: Chains) -> Numbers:
    """Effective number of draws of each series; of constants, the number of draws."""
    if chains.shape[2] < MIN_DRAWS:
        return np.full(len(chains), np.nan)
    halves = _halves(chains)
    ascending, place = _ascending(halves)
    number = ascending.shape[1]
    time = _autocorrelation_time(_scores(ascending, place).reshape(halves.shape))
    found = number / np.maximum(time, 1 / np.log10(number))
    found[ascending[:, 0] == ascending[:, -1]] = number
    found[np.isnan(chains).any(axis=(1, 2))] = np.nan
    return found


def _halves(chains: Chains) -> Float[np.ndarray, "series part half"]:
    """Each chain as two, its first and its last half; a draw in the middle is left out."""
    half = chains.shape[2] // 2
    return np.concatenate([chains[:, :, :half], chains[:, :, chains.shape[2] - half :]], axis=1)


def _ascending(
    draws: Float[np.ndarray, "series ..."], merge: bool = False
) -> tuple[Sorted, Places]:
    """Each series in ascending order, and at which place of the flattened array each draw was.

    To `merge` is faster than to sort afresh if a series consists of a few runs that rise or fall.
    """
    draws = draws.reshape(len(draws), -1)
    place = np.argsort(draws, axis=1, kind="stable" if merge else "quicksort")
    place += np.arange(0, draws.size, draws.shape[1])[:, None]
    return draws.take(place), place


def _scores(ascending: Sorted, place: Places) -> Float[np.ndarray, " all"]:
    """Normal scores of the ranks, each put in its draw's place; equal draws share their mean rank."""
    number = ascending.shape[1]
    scores = np.tile(_normal_score(np.arange(1, number + 1), number), len(ascending))
    as_next = np.zeros(ascending.shape, bool)
    np.equal(ascending[:, :-1], ascending[:, 1:], out=as_next[:, :-1])
    if len(equal := np.flatnonzero(as_next)):
        opens = (
            np.diff(equal, prepend=-2) > 1
        )  # another run of equal draws, maybe in another series
        closes = np.append(opens[1:], True)
        mean_rank = (equal[opens] % number + equal[closes] % number + 3) / 2
        scores[equal] = scores[equal + 1] = _normal_score(mean_rank, number)[np.cumsum(opens) - 1]
    found = np.empty(ascending.size)
    found[place.ravel()] = scores
    return found


def _normal_score(rank: np.ndarray, number: int) -> np.ndarray:
    """About the mean of a standard normal draw of that rank, by Blom's rule."""
    return ndtri((rank - 3 / 8) / (number + 1 / 4))


def _ratio(scores: Chains) -> Numbers:
    """R-hat as it was before ranks: the variance between chains over that within."""
    num_draws = scores.shape[2]
    between = num_draws * scores.mean(axis=2).var(axis=1, ddof=1)
    within = scores.var(axis=2, ddof=1).mean(axis=1)
    return np.sqrt((between / within + num_draws - 1) / num_draws)


def _autocorrelation_time(scores: Chains) -> Numbers:
    """Geyer's initial monotone sequence, summed; sums of neighbouring lags are called pairs here."""
    num_draws = scores.shape[2]
    covariance = _autocovariance(scores).mean(axis=1)
    within = covariance[:, :1] * num_draws / (num_draws - 1)
    total = within * (num_draws - 1) / num_draws + scores.mean(axis=2).var(axis=1, ddof=1)[:, None]
    num_pairs = max(1, (num_draws - 1) // 2)  # the last lags are left out, as ArviZ does
    correlation = 1 - (within - covariance[:, : 2 * num_pairs]) / total
    correlation[:, 0] = 1
    pairs = correlation[:, ::2] + correlation[:, 1::2]
    ended = ~(pairs > 0)
    ended[:, -1] = True
    end = ended.argmax(axis=1)[:, None]
    falling = np.minimum.accumulate(pairs[:, : end.max() + 1], axis=1)
    summed = np.where(np.arange(falling.shape[1]) < end, falling, 0).sum(axis=1)
    # Where the sequence ends, its even lag still counts, once, if it or the pair is not negative.
    even, pair = (
        np.take_along_axis(values, end, axis=1)[:, 0] for values in (correlation[:, ::2], pairs)
    )
    return -1 + 2 * summed + np.where((pair >= 0) | (even > 0), even, 0)


def _autocovariance(scores: Chains) -> Float[np.ndarray, "series chain lag"]:
    """Autocovariance of each chain at all lags, padded so that its ends do not meet."""
    from scipy.fft import next_fast_len  # here, not above: it adds to the time of `import vcmc`

    num_draws = scores.shape[2]
    length = next_fast_len(2 * num_draws, real=True)
    spectrum = np.fft.rfft(scores - scores.mean(axis=2, keepdims=True), n=length)
    spectrum *= spectrum.conj()
    return np.fft.irfft(spectrum, n=length)[:, :, :num_draws] / num_draws
