r"""Draw the local parameters of groups, given draws of the global ones.

In coordinates $z$ in which a group's local coordinates $v = \hat v(\phi) + R(\phi) z$ are nearly
standard normal, their density hardly depends on the global draw $\phi$. So chains go along the
draws: every draw takes one step of independence Metropolis sampling from the $z$ of a draw before.
A step costs two values of the group's density, and its bias is the share of rejected proposals
times what $\phi$ does to the density of $z$: both are small.

Sixteen chains share the draws, and their proposals are stratified: each chain's proposals are
independent, and together they are spread evenly, so that means over draws are more precise.

The modes $\hat v$ and the roots $R$ follow the global draws. If they are close to linear, their
values at the draws' mean and one sd to both sides along every coordinate predict all others;
otherwise they are sought at every draw.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._runtime import FAST_COMPILATION, compiled_per_model
from ..data.shard import Shard
from ..density import buffers
from ..space import Point, Product
from .local_model import LocalModel, groups_of
from .local_modes import LocalNormals, local_normals

NUM_CHAINS = 16
NUM_STEPS = 8  # of every chain in one call
# Chains need not be centred at the mode: Metropolis steps correct for what is left.
MAX_DECREMENT = 1e-2
MAX_STEPS = 20
# A logistic distribution divided by this is within 0.01 of a standard normal, with longer tails.
LOGISTIC_SCALE = 1.702
# Of predicted normal approximations: on average over groups, and in all but a twentieth of them.
MIN_ACCEPTANCE, MIN_GROUP_ACCEPTANCE = 0.85, 0.7
NUM_TRIALS = 128  # draws that tell whether predictions are good enough

Whites = Float[Array, "chain group local"]


class LocalDraws(NamedTuple):
    """Local draws of a shard's groups.

    Attributes:
        params: local params and derived local quantities by name, (draw, group, …).
        acceptance: for each group, the share of proposals that were accepted.
    """

    params: dict[str, np.ndarray]
    acceptance: Float[np.ndarray, " group"]


def draw_locals(
    space: Product,
    local: LocalModel,
    shard: Shard,
    points: Float[np.ndarray, "draw dim"],
    key: Array,
    advance: Callable[[int], None] = lambda _: None,
) -> LocalDraws:
    """Draw the local parameters of a shard's groups, one value for each draw of a point.

    Padding among the groups is left out. `advance` is called with the number of draws made.
    """
    prediction = _predict(space, local, shard, points)
    drawing = partial(_draw_chains, space, local, shard, prediction, key)
    num_trials = min(len(points), NUM_TRIALS)
    trial = drawing(points[:num_trials], True)
    is_predicted = _is_accurate(trial.acceptance)
    if is_predicted and num_trials == len(points):
        advance(len(points))
        return trial
    return drawing(points, is_predicted, advance)


def _is_accurate(acceptance: Float[np.ndarray, " group"]) -> bool:
    """Return whether predicted normal approximations are good enough as proposals."""
    lowest = np.quantile(acceptance, 0.05)
    return bool(acceptance.mean() >= MIN_ACCEPTANCE and lowest >= MIN_GROUP_ACCEPTANCE)


def _draw_chains(
    space: Product,
    local: LocalModel,
    shard: Shard,
    prediction: "Prediction",
    key: Array,
    points: Float[np.ndarray, "draw dim"],
    is_predicted: bool,
    advance: Callable[[int], None] = lambda _: None,
) -> LocalDraws:
    """Run the chains along all draws."""
    num_groups = groups_of(shard).num_groups
    parts: list[dict[str, np.ndarray]] = []
    accepted = np.zeros(num_groups)
    size = NUM_STEPS * NUM_CHAINS
    whites = jnp.asarray(np.zeros((NUM_CHAINS, *prediction.centres.shape)))
    run = partial(_run_chains, space, local, is_predicted, shard, prediction)
    warmup = np.tile(points[np.arange(NUM_CHAINS) % len(points)], (NUM_STEPS, 1))
    whites, _, _ = run(whites, _by_step(warmup), _propose(key, 0, whites.shape))
    for first in range(0, len(points), size):
        batch = points[first : first + size]
        padded = np.concatenate([batch, np.repeat(batch[-1:], size - len(batch), axis=0)])
        proposals = _propose(key, first + 1, whites.shape)
        whites, values, rates = run(whites, _by_step(padded), proposals)
        parts.append(
            {
                name: np.asarray(value).reshape(size, *value.shape[2:])[: len(batch), :num_groups]
                for name, value in values.items()
            }
        )
        rates = np.asarray(rates).reshape(size, -1)[: len(batch), :num_groups]
        accepted += rates.sum(axis=0)
        advance(len(batch))
    params = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return LocalDraws(params, accepted / len(points))


def _by_step(points: Float[np.ndarray, "draw dim"]) -> Float[np.ndarray, "step chain dim"]:
    return points.reshape(NUM_STEPS, NUM_CHAINS, -1)


class Proposals(NamedTuple):
    """The random numbers of some steps of all chains."""

    whites: Float[np.ndarray, "step chain group local"]
    uniforms: Float[np.ndarray, "step chain group"]


def _propose(key: Array, number: int, shape: tuple[int, ...]) -> Proposals:
    r"""Return logistic proposals for all chains: along each coordinate, one in every stratum.

    Strata are permuted at random by $m \mapsto a m + b$ modulo their number, a power of two, with
    an odd factor. Random numbers are NumPy's, which takes a tenth of the time of JAX's on a CPU.
    """
    seeds = [*np.asarray(jax.random.key_data(key)).ravel().tolist(), number]
    generator = np.random.Generator(np.random.SFC64(seeds))
    count, *groups = shape
    by_group = (NUM_STEPS, 1, *groups)
    factors = 2 * generator.integers(0, count // 2, by_group, np.int16) + 1
    offsets = generator.integers(0, count, by_group, np.int16)
    numbers = np.arange(count, dtype=np.int16).reshape(1, -1, *[1] * len(groups))
    strata = (factors * numbers + offsets) % count
    uniform = np.clip((strata + generator.random(strata.shape)) / count, 1e-16, 1 - 1e-16)
    whites = np.log(uniform / (1 - uniform)) / LOGISTIC_SCALE
    return Proposals(whites, generator.random(strata.shape[:3]))


class Prediction(NamedTuple):
    """The normal approximations of all groups as functions of the point, close to linear.

    Attributes:
        point: where they are known.
        centres: the modes there.
        roots: the roots there.
        centre_slopes: derivatives of the modes along each coordinate.
        root_slopes: derivatives of the roots, of the logarithms on their diagonal.
    """

    point: Point
    centres: Float[Array, "group local"]
    roots: Float[Array, "group local local"]
    centre_slopes: Float[Array, "dim group local"]
    root_slopes: Float[Array, "dim group local local"]

    def at(self, point: Point) -> LocalNormals:
        """Return the normal approximations at another point."""
        offset = point - self.point
        centres = self.centres + jnp.tensordot(offset, self.centre_slopes, 1)
        roots = _exp_diagonal(
            _log_diagonal(self.roots) + jnp.tensordot(offset, self.root_slopes, 1)
        )
        return LocalNormals(centres, roots)


def _log_diagonal(roots: Any) -> Any:
    eye = np.eye(roots.shape[-1], dtype=bool)
    library: Any = np if isinstance(roots, np.ndarray) else jnp
    return library.where(eye, library.log(library.where(eye, roots, 1.0)), roots)


def _exp_diagonal(values: Array) -> Array:
    eye = np.eye(values.shape[-1], dtype=bool)
    return jnp.where(eye, jnp.exp(jnp.where(eye, values, 0.0)), values)


def _predict(
    space: Product, local: LocalModel, shard: Shard, points: Float[np.ndarray, "draw dim"]
) -> Prediction:
    """Find the normal approximations around the mean of draws."""
    mean, sds = points.mean(axis=0), points.std(axis=0)
    sds = np.where(sds > 0, sds, 1e-3)
    steps = np.diag(sds)
    around = np.concatenate([mean[None], mean + steps, mean - steps])
    centres, roots = _find_normals(space, local, shard, around)
    dim = len(mean)

    def slopes(values: np.ndarray) -> np.ndarray:
        changes = values[1 : dim + 1] - values[dim + 1 :]
        return changes / (2 * sds).reshape(-1, *[1] * (values.ndim - 1))

    parts = (mean, centres[0], roots[0], slopes(centres), slopes(_log_diagonal(roots)))
    return Prediction(*(jnp.asarray(np.nan_to_num(part)) for part in parts))


def _find_normals(
    space: Product, local: LocalModel, shard: Shard, points: Float[np.ndarray, "point dim"]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the centres and roots of normal approximations at several points, stacked."""
    parts = []
    for buffer, count in buffers(points):
        found = _normals_in_turn(space, local, shard, buffer, np.asarray(count))
        parts.append([np.asarray(array)[:count] for array in found])
    centres, roots = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return centres, roots


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1), compiler_options=FAST_COMPILATION)
def _normals_in_turn(
    space: Product,
    local: LocalModel,
    shard: Shard,
    points: Float[Array, "buffer dim"],
    num_points: Int[Array, ""],
) -> LocalNormals:
    """Find the normal approximations at the first points of a buffer, each from the one before."""

    def find(number: Array, carry: Any) -> Any:
        modes, all_normals = carry
        normals = local.normals(space.constrain(points[number]), shard, modes)
        written = jax.tree.map(lambda array, new: array.at[number].set(new), all_normals, normals)
        return normals.centres, written

    start = local.start(shard)
    shape = (len(points), *start.shape)
    empty = LocalNormals(jnp.zeros(shape), jnp.zeros((*shape, start.shape[1])))
    return jax.lax.fori_loop(0, num_points, find, (start, empty))[1]


@compiled_per_model
@partial(jax.jit, static_argnums=(0, 1, 2), compiler_options=FAST_COMPILATION)
def _run_chains(
    space: Product,
    local: LocalModel,
    is_predicted: bool,
    shard: Shard,
    prediction: Prediction,
    whites: Whites,
    points: Float[Array, "step chain dim"],
    proposals: Proposals,
) -> tuple[Whites, dict[str, Array], Float[Array, "step chain group"]]:
    """Move every chain along its next draws.

    Return the last coordinates, and the local params and the acceptance of all draws.
    """
    first_rows = groups_of(shard).first_rows(shard.rows)

    def draw(arguments: tuple[Point, Array, Proposals]) -> Any:
        point, white, proposal = arguments
        params = space.constrain(point)
        log_joint = local.log_joint(params, shard)
        normals = prediction.at(point)
        if not is_predicted:
            normals = local_normals(log_joint, normals.centres, MAX_DECREMENT, MAX_STEPS)
        white, rates = _step(lambda z: log_joint(normals.at(z)), white, proposal)
        values = local.constrain(normals.at(white))
        if local.derived is not None:
            values |= dict(local.derived(params, values, first_rows))
        return white, values, rates

    def step(whites: Whites, arguments: Any) -> tuple[Whites, Any]:
        points, proposals = arguments
        whites, values, rates = jax.lax.map(draw, (points, whites, proposals))
        return whites, (values, rates)

    whites, (values, rates) = jax.lax.scan(step, whites, (points, proposals))
    return whites, values, rates


def _step(
    log_density: Callable[[Float[Array, "group local"]], Float[Array, " group"]],
    white: Float[Array, "group local"],
    proposal: Proposals,
) -> tuple[Float[Array, "group local"], Float[Array, " group"]]:
    """Accept or reject a proposal for every group; return the probabilities, too."""

    def log_ratio(white: Float[Array, "group local"]) -> Float[Array, " group"]:
        scaled = LOGISTIC_SCALE * jnp.abs(white)
        log_proposal = -scaled - 2 * jnp.log1p(jnp.exp(-scaled))
        values = log_density(white) - jnp.sum(log_proposal, axis=1)
        return jnp.where(jnp.isfinite(values), values, -jnp.inf)

    current, proposed = jax.lax.map(log_ratio, jnp.stack([white, proposal.whites]))
    # a chain that is nowhere accepts
    rates = jnp.where(jnp.isneginf(current), 1.0, jnp.exp(jnp.minimum(0.0, proposed - current)))
    return jnp.where((proposal.uniforms < rates)[:, None], proposal.whites, white), rates


STATISTICS = ("mean", "sd", "q05", "q50", "q95")


def summarize_locals(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return mean, sd and quantiles over draws, stacked along a first axis."""
    return {
        name: np.concatenate(
            [
                value.mean(axis=0, keepdims=True),
                value.std(axis=0, keepdims=True),
                np.quantile(value, [0.05, 0.5, 0.95], axis=0),
            ]
        )
        for name, value in params.items()
    }
