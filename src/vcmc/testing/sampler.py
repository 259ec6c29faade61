r"""The laws of a sampler: the same key gives the same draws, however long a run and its blocks are; padding does not count; and moments are right.

On a regression whose posterior is a known Gaussian, moments are compared with those on paper. On any other density with scores $s$, by Stein's
identities: $\mathbb E\, s_i = 0$ and $\mathbb E\, u_i s_i = -1$ for draws $u$ of it, and of no other Gaussian if it is one.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..data.partition import split
from ..data.shard import Shard
from ..density import Subposterior, evaluate
from ..diagnostics.convergence import ess
from ..model import Model
from ..samplers import AbstractSampler, Chain
from .gaussians import regression
from .law import Law, name_of

NUM_SHORT, NUM_LONG, THIN, PIECE = (
    30,
    130,
    3,
    25,
)  # draws, draws, and steps: a long run has more than one block
PADDING = 100  # rows
ERRORS = 4.5  # Monte Carlo errors that a moment may be off: passed once in 150 000


def check_sampler(
    sampler: AbstractSampler,
    model: Model | None = None,
    rows: Any = None,
    *,
    num_draws: int = 3000,
    seed: int = 0,
) -> None:
    """Raise `LawError` unless a sampler keeps its laws.

    Args:
        sampler: the sampler.
        model: a model that it can sample; by default a linear regression with known noise, whose posterior is known.
        rows: the model's rows, a few hundred at most.
        num_draws: draws by which moments are judged; with 0, they are not.
        seed: seed of the chains.
    """
    if (model is None) != (rows is None):
        raise ValueError("give both a model and its rows, or neither of them.")
    known = None
    if model is None:
        known = regression().posterior(slice(0, 60))
        model, rows = (
            regression().model,
            {name: array[:60] for name, array in regression().rows.items()},
        )
    shard = split(rows, 1).load(0)
    density = Subposterior(model.fitted([shard]), shard, jnp.asarray(1.0))
    case = _Case(sampler, density, seed)
    chain = _same_key(case)
    _lengths(case, chain)
    _thinning(case, chain)
    _blocks(case, chain)
    if not num_draws:
        return
    plain = case.run(num_draws, 3).points
    _moments(case, plain, known)
    _padding(case, plain)


class _Case(NamedTuple):
    """A sampler on a density."""

    sampler: AbstractSampler
    density: Subposterior
    seed: int

    @property
    def start(self) -> jax.Array:
        return 0.1 * jnp.arange(self.density.model.space.dim)

    def key(self, number: int) -> jax.Array:
        return jax.random.key(self.seed + number)

    def run(self, num_draws: int, number: int = 0, **options: Any) -> Chain:
        return self.sampler.run(self.density, self.start, self.key(number), num_draws, **options)

    def law(self, says: str, hint: str) -> Law:
        return Law(name_of(self.sampler), says, hint)


def _same_key(case: _Case) -> Chain:
    law = case.law(
        "the same key gives the same draws", "draw all random numbers from the key that is given."
    )
    steps: list[int] = []
    first = case.run(NUM_LONG, on_block=steps.append)
    law.has_shape(first.points, (NUM_LONG, len(case.start)), "draws")
    total = case.sampler.num_warmup + NUM_LONG
    law.holds(sum(steps) == total, f"{total} steps reported", str(sum(steps)))
    law.close(case.run(NUM_LONG).points, first.points)
    other = (first.points != case.run(NUM_LONG, 1).points).all(axis=1).mean()
    case.law(
        "another key gives other draws", "fold the key that is given into what is random."
    ).holds(other > 0.9, "more than 0.9 of the draws to differ", f"{other:.2g}")
    return first


HINT = "carry the step's number in the state, and fold it into the key: what is random in a step, and whether it adapts, follows from it alone."


def _lengths(case: _Case, chain: Chain) -> None:
    case.law("a longer run begins like a shorter one", HINT).close(
        case.run(NUM_SHORT).points, chain.points[:NUM_SHORT]
    )


def _thinning(case: _Case, chain: Chain) -> None:
    law = case.law(f"thinning keeps every {THIN}rd draw", HINT)
    count = NUM_LONG // THIN
    some = case.run(count, thin=THIN)
    law.close(some.points, chain.points[THIN - 1 :: THIN][:count])
    for name, values in chain.stats.items():
        law.close(some.stats[name], values[THIN - 1 :: THIN][:count])


def _blocks(case: _Case, chain: Chain) -> None:
    law = case.law("the length of blocks does not matter", HINT)
    sampler, key = case.sampler, case.key(0)
    setup = sampler.setup(case.density)
    state = sampler.init(setup, case.start, key)
    points, stats, left = [], [], sampler.num_warmup + NUM_LONG
    while left:
        # no call may step over a multiple of BLOCK, which pieces do not
        num_steps = min(PIECE, left)
        state, passed, reported = sampler.advance(setup, state, key, num_steps)
        points.append(np.asarray(passed))
        stats.append(reported)
        left -= num_steps
    law.close(np.concatenate(points)[sampler.num_warmup :], chain.points)
    for name, values in chain.stats.items():
        found = np.concatenate([np.asarray(each[name]) for each in stats])[sampler.num_warmup :]
        law.close(found, values)


def _moments(case: _Case, points: np.ndarray, known: Any) -> None:
    if known is not None:
        law = case.law(
            "moments are those of the posterior, which is known",
            "look at the acceptance, and at the warm-up.",
        )
        sds = np.sqrt(np.diag(known.covariance))
        white = (points - known.mean) / sds
        _is_mean(law, white, np.zeros(len(sds)))
        _is_mean(law, white**2, np.ones(len(sds)))
    law = case.law(
        "draws are of the density, by Stein's identities: scores are 0, and coordinates times scores -1, on average",
        "look at the acceptance, at the warm-up, and at what the sampler takes for the prior, whose power is density.prior_power.",
    )
    scores = np.asarray(evaluate(case.density, jnp.asarray(points))[1])
    # from where coordinates are measured does not matter, but to the noise
    centred = points - points.mean(axis=0)
    _is_mean(law, scores, np.zeros(points.shape[1]))
    _is_mean(law, centred * scores, -np.ones(points.shape[1]))


def _is_mean(law: Law, values: np.ndarray, mean: np.ndarray) -> None:
    error = values.std(axis=0) / np.sqrt(ess(values[None, None])[0])
    law.close(values.mean(axis=0), mean, atol=ERRORS * error)


def _padding(case: _Case, plain: np.ndarray) -> None:
    """The same rows with others of weight zero: the same distribution, by its first two moments."""
    law = case.law(
        "rows of weight zero do not count (first moments, or second ones, with padding and without)",
        "weigh rows by density.shard.weights, and count them by these.",
    )
    shard = case.density.shard
    rows = {
        name: jnp.concatenate([array, jnp.repeat(array[:1], PADDING, axis=0)])
        for name, array in shard.rows.items()
    }
    longer = Shard(rows, jnp.concatenate([shard.weights, jnp.zeros(PADDING)]))
    padded = case._replace(
        density=Subposterior(case.density.model, longer, case.density.prior_power)
    )
    points = padded.run(len(plain), 3).points
    for power in (1, 2):
        one, two = plain**power, points**power
        variance = sum(each.var(axis=0) / ess(each[None, None])[0] for each in (one, two))
        law.close(two.mean(axis=0), one.mean(axis=0), atol=ERRORS * np.sqrt(variance))
