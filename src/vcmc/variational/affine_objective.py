r"""The objective of affine maps, for Newton's method.

In the whitened coordinates of an `Affine` aggregator a draw is $u = a + V z$, and the objective is
$\mathbb E \log p(a + V z) + \log |\det V|$ up to a constant.
"""

from functools import cached_property, partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..aggregators.affine import Affine
from ..aggregators.base import AbstractAggregator
from ..aggregators.combinatorial import Combinatorial
from ..aggregators.weights import Free
from ..linalg.operators import AbstractMatrix, DenseOperator, DiagonalOperator
from ..linalg.pairing import sum_pairs
from ..linalg.shrinkage import TINY
from ..linalg.stein import Directions, Draws, Vector
from ..linalg.whitening import Whitening
from ..target import Target
from .curvature import (
    AbstractCurvature,
    CoordinateCurvature,
    DenseCurvature,
    Evaluation,
    FrameCurvature,
    NewtonStep,
)
from .objective import Objective
from .optimizer import Weights

# With fewer draws, whitening them exactly would move single draws by much.
MIN_DRAWS_PER_DIM = 5
MAX_HALVINGS = 6  # of a step, in a line search
MAX_NOISE = 0.5  # nats per root of the dimension; more noise than that does not excuse a fall
BATCH_GROWTH = 4  # factor between sizes of batches
MAX_BATCH_DRAWS = 1000  # draws of the last batch: means are then off by 0.03 sd at most
# lengths of steps towards the mode, relative to Newton's, that are tried at once
MODE_STEPS = np.array([2.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 1e-3])
MAX_MODE_STEPS = 50
MIN_MODE_GAIN = 1e-3  # nats; a smaller gain ends the search for the mode


class LineSearch(NamedTuple):
    """The end of a line search, and the rise of the objective on the way, in nats."""

    end: Evaluation
    rise: float


class AffineObjective:
    """The objective of affine maps with one scale for all shards, in whitened coordinates.

    It stands beside `Objective` because an affine map has more structure: the sum of the shards'
    parts does not depend on the weights, so that all draws are affine images of one white sample;
    entropy and control variate have closed forms in shift and scale; and Newton's method needs the
    curvature of the target, not gradients with respect to weights. All arithmetic is NumPy on a
    batch of draws at once, so that nothing but the target is compiled. Prepared draws and the
    target are those of the `Objective` that it is made of.

    Args:
        objective: the objective of an `Affine` aggregator with one scale.
        max_noise: standard error of a mean by the last batch, in posterior sds.
    """

    def __init__(self, objective: Objective, max_noise: float):
        affine, target = _affine(objective.aggregator), objective.target
        if affine is None or affine.per_shard or not isinstance(target, Target):
            raise TypeError(
                "Newton's method is for the family AffineFamily(per_shard=False) and all rows; for "
                "other families use variational.Adaptive(). Got "
                f"{type(objective.aggregator).__name__}."
            )
        self._affine = affine
        self._target = target
        self._max_noise = max_noise
        self._whitening = Whitening(np.asarray(affine.whitening.centre), affine.root.numpy())
        self._curvature = _curvature_kind(affine)
        sums = sum_pairs(np.asarray(objective.prepared), objective.pairs)
        self.num_draws, self.dim = sums.shape
        self._mean = sums.mean(axis=0)
        self._inverse_root = self._inverse_symmetric_root(sums - self._mean)
        self.white = (sums - self._mean) @ self._inverse_root.T

    def _inverse_symmetric_root(self, draws: Draws) -> AbstractMatrix:
        """Return the inverse of the symmetric root of the covariance of centred draws.

        Of few draws, or for diagonal scales, it is that of the variances.
        """
        kind, count = type(self._affine.transforms), len(draws)
        if kind is DiagonalOperator or count < MIN_DRAWS_PER_DIM * self.dim:
            sds = draws.std(axis=0)
            inverse_sds = 1 / np.where(sds > 0, sds, 1.0)
            return kind(inverse_sds) if kind is DiagonalOperator else kind(np.diag(inverse_sds))
        values, vectors = np.linalg.eigh(draws.T @ draws / count)
        return kind((vectors / np.sqrt(np.maximum(values, TINY))) @ vectors.T)

    def batch(self, num_draws: int, generator: np.random.Generator) -> Draws:
        """Return some of the white draws, in random order, with the moments of all.

        The linear and quadratic parts of the scores then have the same mean as over all draws.
        """
        if num_draws >= self.num_draws:
            return self.white
        batch = self.white[generator.permutation(self.num_draws)[:num_draws]]
        batch = batch - batch.mean(axis=0)
        return batch @ self._inverse_symmetric_root(batch).T

    @cached_property
    def _second_moment(self) -> AbstractMatrix:
        """The second moment of all white draws, as far as the scale's kind can hold it."""
        return type(self._affine.transforms).second_moment(self.white)

    def start(self, weights: Weights) -> tuple[Vector, AbstractMatrix]:
        """Return the shift and the scale of white draws that weights stand for.

        The scale is that of the paired draws made symmetric, from which it differs by noise.
        """
        shift, scale = (np.asarray(part.values) for part in weights)
        kind = type(self._affine.transforms)
        operator = kind((scale + scale.T) / 2 if kind is DenseOperator else scale)
        return shift + operator @ self._mean, operator

    def weights(self, shift: Vector, scale: AbstractMatrix) -> Weights:
        """Return the weights of the aggregator for a shift and a scale of white draws."""
        scale = scale.compose(self._inverse_root)
        return [Free(jnp.asarray(shift - scale @ self._mean)), Free(jnp.asarray(scale.values))]

    def evaluate(self, shift: Vector, scale: AbstractMatrix, white: Draws) -> Evaluation:
        """Evaluate the target at the draws that a shift and a scale make of white ones."""
        values, scores = self._log_densities(shift + white @ scale.T)
        return Evaluation(shift, scale, white, values, scores)

    def _log_densities(self, points: Draws) -> tuple[Float[np.ndarray, " draw"], Draws]:
        values, scores = self._target(self._whitening.unwhiten(points))
        return np.asarray(values), self._whitening.whiten_scores(np.asarray(scores))

    def evaluated(self, evaluation: Evaluation) -> tuple[Draws, Draws]:
        """Return the points of an evaluation and the scores there, in the target's coordinates."""
        points = self._whitening.unwhiten(evaluation.shift + evaluation.offsets)
        transposed_root = self._whitening.unwhiten_directions(np.eye(self.dim))
        return points, np.linalg.solve(transposed_root, evaluation.scores.T).T

    def hessian_products(self, shift: Vector, directions: Directions) -> Directions:
        """Return products of minus the Hessian at a shift with directions."""
        products = self._target.hessian_products(
            jnp.asarray(self._whitening.unwhiten(shift)),
            jnp.asarray(self._whitening.unwhiten_directions(directions)),
        )
        return -self._whitening.whiten_scores(np.asarray(products))

    def curvature(self, shift: Vector) -> AbstractCurvature:
        """Return the target's curvature at a shift."""
        return self._curvature.from_products(partial(self.hessian_products, shift), self.dim)

    def initial_curvature(self) -> AbstractCurvature:
        """Return the curvature of a Gaussian with the averages' covariance."""
        return self._curvature.identity(self.dim)

    def value(self, evaluation: Evaluation, curvature: AbstractCurvature) -> tuple[float, float]:
        """Return the objective and its Monte Carlo error."""
        control, expected = curvature.control(evaluation, evaluation.shift, self._second_moment)
        differences = evaluation.values - control
        entropy = float(evaluation.scale.log_det()) + float(self._root_log_det)
        entropy += 0.5 * self.dim * np.log(2 * np.pi * np.e)
        return float(differences.mean() + expected + entropy), _standard_error(differences)

    @cached_property
    def _root_log_det(self) -> Float[np.ndarray, ""]:
        return self._affine.root.numpy().log_det()

    def newton_step(
        self, evaluation: Evaluation, curvature: AbstractCurvature, force: bool = False
    ) -> NewtonStep | None:
        """Return the next step; None if the curvature is not positive, unless forced."""
        products = partial(self.hessian_products, evaluation.shift)
        return curvature.newton_step(evaluation, products, force)

    def line_search(
        self, evaluation: Evaluation, step: NewtonStep, length: float = 1.0
    ) -> LineSearch | None:
        """Halve a step until the objective does not fall by more than its noise."""
        for _ in range(MAX_HALVINGS):
            shift = evaluation.shift + length * (step.shift - evaluation.shift)
            scale = evaluation.scale.interpolate(step.scale, length)
            end = self.evaluate(shift, scale, evaluation.white)
            if end.is_finite:
                rise, error = self._rise(evaluation, end, step)
                if rise > -2 * min(error, MAX_NOISE * self.dim**0.5):
                    return LineSearch(end, float(rise))
            length /= 2
        return None

    def _rise(self, start: Evaluation, end: Evaluation, step: NewtonStep) -> tuple[float, float]:
        """Return the difference of the objective between two evaluations, and its error."""
        moment = self._second_moment
        before, expected_before = step.curvature.control(start, step.shift, moment)
        after, expected_after = step.curvature.control(end, step.shift, moment)
        differences = end.values - start.values - after + before
        rise = differences.mean() + expected_after - expected_before
        rise += float(end.scale.log_det()) - float(start.scale.log_det())
        return rise, _standard_error(differences)

    def restart(self, shift: Vector, scale: AbstractMatrix, white: Draws) -> Evaluation:
        """Evaluate the target around its mode, with the scale of the curvature there."""
        mode = self.find_mode(shift, shift + white @ scale.T)
        return self.evaluate(mode, self.curvature(mode).optimal_scale(), white)

    def is_below(self, evaluation: Evaluation, shift: Vector, scale: AbstractMatrix) -> bool:
        """Return whether another shift and scale are finite and have a higher objective."""
        other = self.evaluate(shift, scale, evaluation.white)
        rise = (
            np.mean(evaluation.values - other.values)
            + float(evaluation.scale.log_det())
            - float(other.scale.log_det())
        )
        return other.is_finite and float(rise) < 0

    def distance(self, start: Evaluation, end: Evaluation) -> float:
        """Return the length of a step, in sds per coordinate."""
        return float(np.sqrt(np.mean(end.scale.solve(end.shift - start.shift) ** 2)))

    def sufficient_draws(self, evaluation: Evaluation, curvature: AbstractCurvature) -> int:
        """Return the number of draws for which the noise of a step is small enough.

        If that is clearly no more than the current batch, return the size of the batch.
        """
        residuals = curvature.residual_scores(evaluation) @ evaluation.scale.T
        batch_size = len(evaluation.white)
        num_draws = int(np.mean(residuals.var(axis=0)) / self._max_noise**2)
        num_draws = min(num_draws, MAX_BATCH_DRAWS)
        if BATCH_GROWTH * num_draws <= batch_size:
            return batch_size
        return min(self.num_draws, max(BATCH_GROWTH * batch_size, num_draws))

    def find_mode(self, shift: Vector, draws: Draws) -> Vector:
        """Maximize the target from the best of a shift, the shards' means and some draws."""
        means = self._whitening.whiten(np.asarray(self._affine.means))
        starts = np.concatenate([shift[None], means, draws])
        values = np.nan_to_num(self._log_densities(starts)[0], nan=-np.inf)
        point, value = starts[int(np.argmax(values))], values.max()
        for _ in range(MAX_MODE_STEPS if np.isfinite(value) else 0):
            slope = self._log_densities(point[None])[1][0]
            products = partial(self.hessian_products, point)
            direction = self.curvature(point).ascent_direction(slope, products)
            candidates = point + MODE_STEPS[:, None] * direction
            values = np.nan_to_num(self._log_densities(candidates)[0], nan=-np.inf)
            rise, best = values.max() - value, int(np.argmax(values))
            if not rise > 0:
                break
            point, value = candidates[best], values[best]
            if rise < MIN_MODE_GAIN:
                break
        return point


def _affine(aggregator: AbstractAggregator) -> Affine | None:
    while isinstance(aggregator, Combinatorial):
        aggregator = aggregator.inner
    return aggregator if isinstance(aggregator, Affine) else None


def _curvature_kind(affine: Affine) -> type[AbstractCurvature]:
    """Return the kind of curvature that suits the scale of an affine map."""
    if affine.frame is not None:
        return FrameCurvature
    return DenseCurvature if isinstance(affine.transforms, DenseOperator) else CoordinateCurvature


def _standard_error(values: Float[np.ndarray, " draw"]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))
