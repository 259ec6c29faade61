"""Diagnose the shards' draws: convergence, stuck chains, and disagreement between shards."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import chdtri  # scipy.stats takes a second to import

from ..space import Product
from . import convergence
from .batch_drift import batch_drift

MAX_RHAT = 1.05  # of a parameter within a shard that has many draws
MIN_ESS = 100  # effective draws, or a fifth of all draws if these are fewer than 500
CHAIN_PARTS = 4  # of a single chain, whose means R-hat compares
# Of a shard. With fewer, the estimate for a single parameter says little: of 100 independent draws,
# one in a thousand is below 10 effective ones. Medians over parameters and over shards do.
MIN_DRAWS_FOR_ESS = 500
MAX_CORRELATION_TIME = 2.0  # of sound chains, which widens the spread of R-hat by chance
MAX_DIVERGENT_SHARE = 0.005  # of a shard's transitions
MAX_WIDTH_RATIO = 20.0  # of a shard's sd to the median sd of the shards
NUM_LABELLED_DRAWS = 50  # of a shard, whose labels are compared
MAX_SWITCHED_SHARE = 0.02  # of these draws may seem switched by chance
MIN_DRAWS_PER_DIM = 5  # with fewer, covariances are too noisy, and coordinates are tested singly
MAX_CONDITION_NUMBER = 1e12  # of a covariance: above, some coordinates determine each other
MAX_SPREAD_FACTOR = 3.0  # by which shards that are not Gaussian may all be further apart
MAX_NAMED_SHARDS = 10  # in a warning
MAX_MINOR_SHARE = 0.1  # of the shards, whose faults scores of the result can outweigh
FALSE_ALARM_RATE = 1e-4  # of the test for disagreement, per run, whatever the number of shards

Draws = Float[np.ndarray, "shard chain draw dim"]


class ShardWarnings(NamedTuple):
    """Warnings about shards, each a sentence or two.

    Attributes:
        notes: warnings that make a result doubtful.
        remarks: warnings about so few shards that a result is good all the same, if scores say so.
    """

    notes: list[str]
    remarks: list[str]

    @classmethod
    def sorted(
        cls, warnings: Sequence[tuple[Sequence[int], str]], num_shards: int
    ) -> "ShardWarnings":
        """Sort warnings by the number of shards that each is about."""
        most = MAX_MINOR_SHARE * num_shards
        return cls(
            [text for shards, text in warnings if len(shards) > most],
            [text for shards, text in warnings if len(shards) <= most],
        )


class ShardChecker:
    """Check the draws of one shard after the other; `reasons` has the shards that are broken."""

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
        if reason := chain_fault(points):
            self.reasons[shard] = reason
        elif points.shape[1] > 1 and (fixed := (points == points[:1, :1]).all(axis=(0, 1))).any():
            self.reasons[shard] = f"its coordinates {_numbers(np.flatnonzero(fixed))} never change"
        elif twin < shard:
            self.reasons[shard] = f"its draws are the same as those of shard {twin}"


def broken_shards(draws: Draws) -> dict[int, str]:
    """Return the shards whose draws cannot be used, with the reason."""
    checker = ShardChecker()
    for points in draws:
        checker.add(points)
    return checker.reasons


def chain_fault(points: Float[np.ndarray, "chain draw dim"]) -> str:
    """Return why the chains of a shard cannot be used; an empty string if they can."""
    if not np.isfinite(points).all():
        return "its draws are not finite"
    if points.shape[1] > 1 and (points == points[:, :1]).all(axis=(1, 2)).any():
        return "one of its chains never moved: all draws are the same"
    return ""


def shard_rhat(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return rank-normalized split R-hat of every parameter within each shard, axes (shard, …)."""
    return {name: convergence.rhat(values) for name, values in params.items()}


def shard_ess(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the bulk effective sample size of every parameter within each shard, (shard, …)."""
    return {name: convergence.ess(values) for name, values in params.items()}


def max_rhat(num_draws: int, num_series: int) -> float:
    """Return the largest R-hat that chance explains in shards of sound chains, at least 1.05.

    The means of a chain's parts differ by chance, the more so the fewer draws there are.

    Args:
        num_draws: draws of a shard.
        num_series: number of parameters of all shards, each of which has an R-hat.
    """
    part = max(1, num_draws // CHAIN_PARTS)
    freedom = CHAIN_PARTS - 1
    chance = chdtri(freedom, FALSE_ALARM_RATE / max(1, num_series)) / freedom
    return max(MAX_RHAT, float(np.sqrt(1 + (MAX_CORRELATION_TIME * chance - 1) / part)))


def min_ess(num_draws: int) -> float:
    """Return the least number of effective draws of a shard."""
    return min(MIN_ESS, num_draws / 5)


def disagreeing_shards(draws: Draws, num_draws: int | None = None) -> dict[int, int]:
    r"""Return the shards that disagree with the others, each with its most deviating coordinate.

    If shard $k$ is Gaussian with mean $m_k$ and precision $P_k$, and all shards have the same
    parameters, then with the other shards' consensus $m_{-k}$ and
    $P_{-k} = \sum_{j \ne k} P_j$,
    $(m_k - m_{-k})^\top (P_k^{-1} + P_{-k}^{-1})^{-1} (m_k - m_{-k})$ is about $\chi^2_d$. The
    worst shard is removed and the others are tested again, so that it cannot make others deviate.
    With few draws for the number of coordinates, each coordinate is tested by itself.

    Args:
        draws: draws of all shards, or some of them.
        num_draws: draws of a shard, if these are only some.
    """
    num_shards, _, _, dim = draws.shape
    points = draws.reshape(num_shards, -1, dim)
    means = points.mean(axis=1)
    by_coordinate = min(points.shape[1], num_draws or points.shape[1]) < MIN_DRAWS_PER_DIM * dim
    if by_coordinate:
        covariances = points.var(axis=1, ddof=1)
        precisions = 1 / covariances
        limit = chdtri(1, FALSE_ALARM_RATE / (num_shards * dim))
    else:
        covariances = np.array([np.atleast_2d(np.cov(shard.T)) for shard in points])
        if np.linalg.cond(covariances).max() > MAX_CONDITION_NUMBER:
            return {}
        precisions = np.linalg.inv(covariances)
        limit = chdtri(dim, FALSE_ALARM_RATE / num_shards)
    remaining = list(range(num_shards))
    disagreeing: dict[int, int] = {}
    while len(remaining) > 2 and len(disagreeing) < MAX_NAMED_SHARDS:
        distances = _distances(remaining, means, precisions, covariances)
        worst = max(distances, key=lambda shard: distances[shard][0])
        if distances[worst][0] < limit:
            break
        remaining.remove(worst)
        if not by_coordinate and len(remaining) > 2:
            # shards that are not Gaussian are all further apart than a chi-squared variable
            others = _distances(remaining, means, precisions, covariances).values()
            typical = float(np.median([distance for distance, _ in others]))
            if distances[worst][0] < limit * min(typical / chdtri(dim, 0.5), MAX_SPREAD_FACTOR):
                break
        disagreeing[worst] = distances[worst][1]
    return dict(sorted(disagreeing.items()))


def _distances(
    shards: list[int], means: np.ndarray, precisions: np.ndarray, covariances: np.ndarray
) -> dict[int, tuple[float, int]]:
    """Return each shard's squared distance from the consensus of the others, and its coordinate.

    Precisions and covariances are matrices, or variances if coordinates are tested singly.
    """
    diagonal = precisions.ndim == 2
    product = np.multiply if diagonal else np.matmul
    total = precisions[shards].sum(axis=0)
    weighted = {shard: product(precisions[shard], means[shard]) for shard in shards}
    total_weighted = np.sum(list(weighted.values()), axis=0)
    distances = {}
    for shard in shards:
        precision = total - precisions[shard]
        weighted_mean = total_weighted - weighted[shard]
        if diagonal:
            difference = means[shard] - weighted_mean / precision
            squares = difference**2 / (covariances[shard] + 1 / precision)
            distances[shard] = float(squares.max()), int(np.argmax(squares))
            continue
        difference = means[shard] - np.linalg.solve(precision, weighted_mean)
        covariance = covariances[shard] + np.linalg.inv(precision)
        squares = difference**2 / np.diag(covariance)
        distance = float(difference @ np.linalg.solve(covariance, difference))
        distances[shard] = distance, int(np.argmax(squares))
    return distances


def wide_shards(draws: Draws) -> dict[int, int]:
    """Return the shards that are far wider than the others, each with its widest coordinate."""
    sds = draws.std(axis=(1, 2))
    ratios = sds / np.median(sds, axis=0)
    return {
        shard: int(np.argmax(row))
        for shard, row in enumerate(ratios)
        if len(ratios) > 2 and row.max() > MAX_WIDTH_RATIO
    }


def switching_shards(space: Product, draws: Draws) -> list[int]:
    """Return the shards in whose chains exchangeable components switch labels."""
    # Imported here, as it adds to the time of `import vcmc`.
    from scipy.optimize import linear_sum_assignment

    switching = set()
    for block, part in space.labelled():
        count = min(draws.shape[2], NUM_LABELLED_DRAWS)
        indices = np.linspace(0, draws.shape[2] - 1, count).astype(int)
        points = draws[:, :, indices][..., np.array(block)]
        points = points.reshape(len(draws), -1, points.shape[-1])
        components = np.asarray(jax.jit(jax.vmap(jax.vmap(part.components)))(jnp.asarray(points)))
        for shard, path in enumerate(components):
            steps = np.median(np.abs(np.diff(path, axis=0)), axis=(0, 1))
            # A chain may stay where it is: steps of zero would make any change a switch.
            steps = np.maximum(steps, 1e-3 * path.std(axis=(0, 1)) + 1e-12)
            costs = np.sum(((path[0][None, :, None] - path[:, None]) / steps) ** 2, axis=-1)
            switched = [
                bool((linear_sum_assignment(cost)[1] != np.arange(len(cost))).any())
                for cost in costs
            ]
            if np.mean(switched) > MAX_SWITCHED_SHARE:
                switching.add(shard)
    return sorted(switching)


def shard_warnings(
    draws: Draws,
    rhat: Mapping[str, np.ndarray],
    ess: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
    space: Product,
    num_draws: int | None = None,
    batches: Sequence[int] | None = None,
) -> ShardWarnings:
    """Return warnings about the shards' draws.

    If `draws` are only some of the draws, `num_draws` is the number of draws of a shard. If rows
    came in batches, `batches` has that of every shard: a shard is compared with those of its batch,
    as batches may differ for reasons of their own.
    """
    num_draws = num_draws or draws.shape[1] * draws.shape[2]
    found = [
        *_convergence_warnings(rhat, ess, stats, num_draws),
        *_width_warnings(draws, space),
        *_switching_warnings(draws, space),
    ]
    notes, remarks = ShardWarnings.sorted(found, len(draws))
    # one shard that disagrees may hold rows that do not belong there
    notes += _disagreement_warnings(draws, space, num_draws, batches)
    if batches is not None and (drift := batch_drift(draws, batches, space.coordinates)):
        remarks.append(drift)  # on the model: the posterior of all rows is what it is
    return ShardWarnings(notes, remarks)


def has_converged(
    rhat: Mapping[str, np.ndarray], ess: Mapping[str, np.ndarray], num_draws: int
) -> bool:
    """Return whether no shard has a large R-hat or few effective draws for its draws."""
    return not _convergence_warnings(rhat, ess, {}, num_draws)


def _convergence_warnings(
    rhat: Mapping[str, np.ndarray],
    ess: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
    num_draws: int,
) -> list[tuple[Sequence[int], str]]:
    """Return warnings, each with the shards that it is about."""
    found: list[tuple[Sequence[int], str]] = []
    largest_rhat = np.fmax.reduce([_by_shard(values, np.fmax) for values in rhat.values()])
    least_ess = _least_ess(ess, num_draws)
    limit = max_rhat(num_draws, sum(values.size for values in rhat.values()))
    if len(unconverged := np.flatnonzero(largest_rhat > limit)):
        text = (
            f"{_shards(unconverged)} did not converge: R-hat up to "
            f"{largest_rhat[unconverged].max():.2f} (should be below {limit:.2f}). Try a longer "
            "warm-up or more draws."
        )
        found.append((unconverged.tolist(), text))
    if len(low := np.flatnonzero(least_ess < min_ess(num_draws))):
        text = (
            f"{_shards(low)} {'has' if len(low) == 1 else 'have'} few effective draws: as few as "
            f"{least_ess[low].min():.0f} of {num_draws}. Try more draws."
        )
        found.append((low.tolist(), text))
    if "diverging" in stats:
        shares = np.nanmean(stats["diverging"], axis=(1, 2))
        if len(divergent := np.flatnonzero(shares > MAX_DIVERGENT_SHARE)):
            count = np.nansum(stats["diverging"][divergent])
            text = (
                f"{_shards(divergent)} had {count:.0f} divergent transitions. "
                "Try a higher target_accept, or reparameterize the model."
            )
            found.append((divergent.tolist(), text))
    return found


def _least_ess(ess: Mapping[str, np.ndarray], num_draws: int) -> Float[np.ndarray, " shard"]:
    """Return the least number of effective draws of each shard.

    Of few draws, it is the median over parameters, or the least median over shards if that is less.
    """
    by_shard = np.concatenate([values.reshape(len(values), -1) for values in ess.values()], axis=1)
    if num_draws >= MIN_DRAWS_FOR_ESS or not np.isfinite(by_shard).any():
        return np.fmin.reduce(by_shard, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # constants have no ESS
        typical = np.nanmedian(by_shard, axis=1)
        of_parameters = np.nanmedian(by_shard, axis=0)
    return np.fmin(typical, np.fmin.reduce(of_parameters))


def _disagreement_warnings(
    draws: Draws, space: Product, num_draws: int, batches: Sequence[int] | None
) -> list[str]:
    of_shard = np.zeros(len(draws), int) if batches is None else np.asarray(batches)
    disagreeing: dict[int, int] = {}
    for batch in np.unique(of_shard):
        members = np.flatnonzero(of_shard == batch)
        found = disagreeing_shards(draws[members], num_draws)
        disagreeing |= {int(members[place]): worst for place, worst in found.items()}
    if not disagreeing:
        return []
    return [
        f"{_shards(list(disagreeing))} {'disagrees' if len(disagreeing) == 1 else 'disagree'} "
        "with the others by more than the shards' own spread explains "
        f"({_worst(disagreeing, space)}). Were the rows shuffled, are they sound, and does the "
        "model describe how far they scatter (vcmc.posterior_check)? Inspect them with "
        "partition.load(k); try vcmc.split(...) with its default shuffle, or fewer shards."
    ]


def _width_warnings(draws: Draws, space: Product) -> list[tuple[Sequence[int], str]]:
    if not (wide := wide_shards(draws)):
        return []
    text = (
        f"{_shards(list(wide))} {'is' if len(wide) == 1 else 'are'} more than "
        f"{MAX_WIDTH_RATIO:.0f} times as wide as the others ({_worst(wide, space)}): the rows "
        "say next to nothing there, and the tempered prior is weak. Spread rare rows evenly "
        "with vcmc.split(..., stratify=...), use fewer shards, or give every shard the full "
        'prior: prior="partial", with the default combiner.'
    )
    return [(list(wide), text)]


def _switching_warnings(draws: Draws, space: Product) -> list[tuple[Sequence[int], str]]:
    if not (switching := switching_shards(space, draws)):
        return []
    text = (
        f"{_shards(switching)}: exchangeable components switch labels within the chains, so that "
        "averages mix different components. Order the components, or relabel the draws before "
        "combining them."
    )
    return [(switching, text)]


def _worst(shards: Mapping[int, int], space: Product) -> str:
    shard, index = next(iter(shards.items()))
    return f"in shard {shard} most of all on {space.coordinates[index]}"


def _by_shard(values: np.ndarray, extreme: np.ufunc) -> Float[np.ndarray, " shard"]:
    """Return the extreme value of each shard, without the NaN of constants."""
    return extreme.reduce(values.reshape(len(values), -1), axis=1)


def _shards(shards: np.ndarray | list[int]) -> str:
    return ("Shard " if len(shards) == 1 else "Shards ") + _numbers(shards)


def _numbers(numbers: np.ndarray | list[int]) -> str:
    """Return the first few numbers of a list as text."""
    shown = ", ".join(str(int(number)) for number in numbers[:MAX_NAMED_SHARDS])
    num_left = len(numbers) - MAX_NAMED_SHARDS
    return shown + (f" and {num_left} more" if num_left > 0 else "")
