r"""The laws of a sampler.

The same key gives the same draws, whatever the length of the run and of its blocks, and also if
its state was stored in between; padding does not count; and moments are right. Moments are compared
with the exact ones of a regression whose posterior is a known Gaussian. On any other density with
scores $s$, draws $u$ must satisfy Stein's identities $\mathbb E\, s_i = 0$ and
$\mathbb E\, u_i s_i = -1$, which determine a Gaussian.
"""

import json
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
from ..samplers.state import NotPlain, PackedState, StateMismatch, pack_state
from .gaussians import Gaussian, regression
from .law import Law, name_of

NUM_SHORT, NUM_LONG = 30, 130  # draws; the long run has more than one block
THIN = 3  # steps per draw
PIECE = 25  # steps per call of advance
NUM_ROWS = 60  # of the default regression
NUM_PADDING = 100  # rows of weight zero
MAX_ERROR_SE = 4.5  # standard errors of a moment: exceeded by chance once in 150 000


def check_sampler(
    sampler: AbstractSampler,
    model: Model | None = None,
    rows: Any = None,
    *,
    num_draws: int = 3000,
    seed: int = 0,
) -> None:
    """Raise `LawError` unless a sampler obeys the laws of samplers.

    Args:
        sampler: the sampler.
        model: a model to sample; by default a linear regression whose posterior is known.
        rows: rows of the model, a few hundred at most.
        num_draws: draws from which moments are estimated; 0 skips the laws on moments and padding.
        seed: seed of the chains.
    """
    if (model is None) != (rows is None):
        raise ValueError("give both a model and its rows, or neither of them.")
    posterior = None
    if model is None:
        model, posterior = regression().model, regression().posterior(slice(0, NUM_ROWS))
        rows = {name: array[:NUM_ROWS] for name, array in regression().rows.items()}
    shard = split(rows, 1).load(0)
    density = Subposterior(model.fitted([shard]), shard, jnp.asarray(1.0))
    case = _Case(sampler, density, seed)
    chain = _check_key(case)
    _check_lengths(case, chain)
    _check_thinning(case, chain)
    _check_blocks(case, chain)
    _check_storage(case, chain)
    if not num_draws:
        return
    points = case.run(num_draws, 3).points
    _check_moments(case, points, posterior)
    _check_padding(case, points)


class _Case(NamedTuple):
    """A sampler with the density that it samples."""

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

    def law(self, statement: str, hint: str) -> Law:
        return Law(name_of(self.sampler), statement, hint)


def _check_key(case: _Case) -> Chain:
    law = case.law("the same key gives the same draws", "derive all random numbers from the key.")
    steps: list[int] = []
    first = case.run(NUM_LONG, on_block=steps.append)
    law.has_shape(first.points, (NUM_LONG, len(case.start)), "draws")
    total = case.sampler.num_warmup + NUM_LONG
    law.holds(sum(steps) == total, f"{total} steps reported", str(sum(steps)))
    law.close(case.run(NUM_LONG).points, first.points)
    share = (first.points != case.run(NUM_LONG, 1).points).all(axis=1).mean()
    other_law = case.law("another key gives other draws", "derive all random numbers from the key.")
    other_law.holds(share > 0.9, "more than 0.9 of the draws to differ", f"{share:.2g}")
    return first


HINT = (
    "carry the number of the step in the state, and fold it into the key: both the randomness of a "
    "step and whether it adapts must depend on that number only."
)


def _check_lengths(case: _Case, chain: Chain) -> None:
    case.law("a longer run begins like a shorter one", HINT).close(
        case.run(NUM_SHORT).points, chain.points[:NUM_SHORT]
    )


def _check_thinning(case: _Case, chain: Chain) -> None:
    law = case.law(f"thinning keeps every {THIN}rd draw", HINT)
    count = NUM_LONG // THIN
    thinned = case.run(count, thin=THIN)
    law.close(thinned.points, chain.points[THIN - 1 :: THIN][:count])
    for name, values in chain.stats.items():
        law.close(thinned.stats[name], values[THIN - 1 :: THIN][:count])


def _check_blocks(case: _Case, chain: Chain) -> None:
    law = case.law("the length of blocks does not matter", HINT)
    sampler, key = case.sampler, case.key(0)
    setup = sampler.setup(case.density)
    state = sampler.init(setup, case.start, key)
    points, stats, remaining = [], [], sampler.num_warmup + NUM_LONG
    while remaining:
        # no call may cross a multiple of BLOCK, and pieces do not
        num_steps = min(PIECE, remaining)
        state, block_points, block_stats = sampler.advance(setup, state, key, num_steps)
        points.append(np.asarray(block_points))
        stats.append(block_stats)
        remaining -= num_steps
    law.close(np.concatenate(points)[sampler.num_warmup :], chain.points)
    for name, values in chain.stats.items():
        chain_stats = np.concatenate([np.asarray(block[name]) for block in stats])
        law.close(chain_stats[sampler.num_warmup :], values)


def _check_storage(case: _Case, chain: Chain) -> None:
    """Continue the chain from its state after a block, as a run directory stores it."""
    law = case.law(
        "a chain continues from its stored state",
        "keep arrays, numbers and NumPy's generators in the state, each once, in the same "
        "structure as init returns.",
    )
    sampler, key = case.sampler, case.key(0)
    blocks = sampler.blocks(case.density, case.start, key, NUM_LONG)
    checkpoint = next(blocks).checkpoint
    try:
        packed = pack_state(checkpoint.state)
        description = json.loads(json.dumps(packed.description))
        stored = checkpoint._replace(state=PackedState(packed.arrays, description))
        rest = list(sampler.blocks(case.density, case.start, key, NUM_LONG, after=stored))
    except (NotPlain, StateMismatch) as error:
        raise law.broken("a state of plain data", str(error)) from error
    points = np.concatenate([block.points for block in rest])
    law.close(points, chain.points[len(chain.points) - len(points) :])


def _check_moments(case: _Case, points: np.ndarray, posterior: Gaussian | None) -> None:
    if posterior is not None:
        law = case.law(
            "moments are those of the known posterior",
            "check the acceptance step and the warm-up.",
        )
        sds = np.sqrt(np.diag(posterior.covariance))
        standardized = (points - posterior.mean) / sds
        _check_mean(law, standardized, np.zeros(len(sds)))
        _check_mean(law, standardized**2, np.ones(len(sds)))
    law = case.law(
        "draws are of the density, by Stein's identities: the mean of the scores is 0, and that of "
        "coordinates times scores is -1",
        "check the acceptance step, the warm-up, and the power of the prior, density.prior_power.",
    )
    scores = np.asarray(evaluate(case.density, jnp.asarray(points))[1])
    # the origin of the coordinates does not matter; centring them reduces the noise
    centred = points - points.mean(axis=0)
    _check_mean(law, scores, np.zeros(points.shape[1]))
    _check_mean(law, centred * scores, -np.ones(points.shape[1]))


def _check_mean(law: Law, values: np.ndarray, mean: np.ndarray) -> None:
    error = values.std(axis=0) / np.sqrt(ess(values[None, None])[0])
    law.close(values.mean(axis=0), mean, atol=MAX_ERROR_SE * error)


def _check_padding(case: _Case, points: np.ndarray) -> None:
    """Compare the first two moments with those on the same rows plus rows of weight zero."""
    law = case.law(
        "rows of weight zero do not count (first or second moments with and without padding)",
        "weight rows by density.shard.weights, and sum these weights to count rows.",
    )
    shard = case.density.shard
    rows = {
        name: jnp.concatenate([array, jnp.repeat(array[:1], NUM_PADDING, axis=0)])
        for name, array in shard.rows.items()
    }
    padded_shard = Shard(rows, jnp.concatenate([shard.weights, jnp.zeros(NUM_PADDING)]))
    padded = case._replace(
        density=Subposterior(case.density.model, padded_shard, case.density.prior_power)
    )
    padded_points = padded.run(len(points), 3).points
    for power in (1, 2):
        expected, actual = points**power, padded_points**power
        variance = sum(
            values.var(axis=0) / ess(values[None, None])[0] for values in (expected, actual)
        )
        tolerance = MAX_ERROR_SE * np.sqrt(variance)
        law.close(actual.mean(axis=0), expected.mean(axis=0), atol=tolerance)
