"""Given draws of shards that are not what they should be, combined by consensus.

The model is a linear regression with known noise, so that shards and posterior are Gaussian. The
default combiner corrects most of these faults, as it looks at the rows; consensus does not, and
only the verdict can tell.
"""

import jax.numpy as jnp
import numpy as np
from case import Case
from jax.scipy.stats import norm

import vcmc

NUM_SHARDS, NUM_ROWS, NUM_DRAWS, DIM = 8, 800, 1000, 3
PRIOR_PRECISION = 0.01
CONSENSUS = vcmc.combiners.Consensus()

LINEAR = vcmc.Model(
    space={"beta": vcmc.Real(DIM)},
    log_prior=lambda params: -0.5 * PRIOR_PRECISION * jnp.sum(params["beta"] ** 2),
    log_likelihood=lambda params, rows: norm.logpdf(rows["y"], rows["x"] @ params["beta"]),
)


def _posterior(x: np.ndarray, y: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
    covariance = np.linalg.inv(x.T @ x + power * PRIOR_PRECISION * np.eye(DIM))
    return covariance @ (x.T @ y), covariance


class Regression:
    """Rows of a linear regression, its posterior, and exact draws of its shards."""

    def __init__(self, seed: int):
        self.generator = np.random.default_rng(seed)
        x = self.generator.normal(size=(NUM_ROWS, DIM))
        y = x @ self.generator.normal(size=DIM) + self.generator.normal(size=NUM_ROWS)
        self.partition = vcmc.split({"x": x, "y": y}, NUM_SHARDS, seed=seed)
        mean, covariance = _posterior(x, y, 1.0)
        self.truth = {"beta": (mean, np.sqrt(np.diag(covariance)))}
        rows = self.partition.rows
        shards = [
            _posterior(rows["x"][members], rows["y"][members], 1 / NUM_SHARDS)
            for members in self.partition.members
        ]
        self.means = np.stack([mean for mean, _ in shards])
        self.sds = np.stack([np.sqrt(np.diag(covariance)) for _, covariance in shards])
        self.draws = np.stack(
            [self.generator.multivariate_normal(*shard, size=NUM_DRAWS) for shard in shards]
        )

    def case(self) -> Case:
        """Return the case with the draws as they are now."""
        return Case(
            LINEAR,
            self.partition,
            self.truth,
            draws={"beta": self.draws},
            combiner=CONSENSUS,
        )


def wrong_draws(seed: int) -> Case:
    """Return draws of which one shard saw other rows, or whose scale is wrong in one or all."""
    regression = Regression(seed)
    generator, shard = regression.generator, int(seed % NUM_SHARDS)
    centred = regression.draws - regression.means[:, None]
    if seed % 3 == 0:  # a shard of rows with other coefficients
        shift = generator.uniform(1.5, 5.0) * generator.choice([-1, 1], size=DIM)
        regression.draws[shard] += shift * regression.sds[shard]
    elif seed % 3 == 1:
        regression.draws = regression.means[:, None] + generator.choice([0.6, 0.75, 1.5]) * centred
    else:
        factor = generator.choice([0.2, 0.3])
        regression.draws[shard] = regression.means[shard] + factor * centred[shard]
    return regression.case()


def bad_chains(seed: int) -> Case:
    """Return chains that got stuck, come from far away, or were cut on one side."""
    regression = Regression(seed)
    draws, generator = regression.draws, regression.generator
    shard = int(seed % NUM_SHARDS)
    if seed % 3 == 0:  # stuck in the tail
        first = int(generator.integers(200, 600))
        draws[shard, first:] = regression.means[shard] + 2.5 * regression.sds[shard]
    elif seed % 3 == 1:  # all chains still approach the mode from the same side
        start = generator.uniform(5, 20)
        decay = start * 0.99 ** np.arange(NUM_DRAWS)
        draws += decay[:, None] * regression.sds[:, None]
    else:  # draws above a bound are missing, in all shards
        bound = generator.uniform(0.0, 1.0)
        highest = regression.means[:, None] + bound * regression.sds[:, None]
        regression.draws = np.where(draws > highest, 2 * highest - draws, draws)
    return regression.case()
