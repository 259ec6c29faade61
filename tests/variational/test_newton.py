"""Newton's method: exact for Gaussians, in few passes; safe where the curvature is not positive."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.aggregators import AffineFamily, Precision, Uniform
from vcmc.aggregators.weights import weights_of
from vcmc.combiners import Consensus, Subposteriors, Variational
from vcmc.space import Product, Real
from vcmc.target import Target
from vcmc.variational import Newton
from vcmc.variational.entropies import GaussianSum
from vcmc.variational.objective import Objective

SPACE = Product({"theta": Real(3)})


def maximize(shards, draws, target, family=None, start=None, **settings):
    aggregator = (family or AffineFamily()).fit(SPACE, draws, start or Precision())
    objective = Objective(target, GaussianSum(), aggregator, draws)
    found = Newton(**settings).maximize(objective, weights_of(aggregator), seed=0)
    return found, np.asarray(objective.aggregate(found.weights))


@pytest.mark.parametrize("start", [Precision(), Uniform()])
@pytest.mark.parametrize("num_shards", [2, 6])
def test_gaussian_shards_become_their_product(num_shards, start, gaussian_shards):
    """Whatever the start: uniform averages have another mean and covariance."""
    shards = gaussian_shards(num_shards, 3)
    found, merged = maximize(shards, shards.draws(500), shards.target(), start=start)
    mean, covariance = shards.product()
    np.testing.assert_allclose(merged.mean(axis=0), mean, atol=1e-8)
    np.testing.assert_allclose(np.cov(merged.T, bias=True), covariance, rtol=1e-7, atol=1e-9)
    assert found.warning == ""
    assert len(found.values) <= 5
    # the optimum, up to the target's constant: minus half the mean square plus the entropy
    target = float(shards.target()(jnp.asarray(mean)[None])[0][0])
    expected = target - 1.5 + 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1]
    # the last step, of less than 1.5e-4 nats, is not evaluated
    assert found.values[-1] == pytest.approx(expected, abs=4 * found.errors[-1] + 2e-4)


def test_few_draws_are_enough_where_the_target_is_gaussian(gaussian_shards):
    """With a known curvature they are exact; a larger last batch would be a wasted pass."""
    shards = gaussian_shards(4, 3)
    target = shards.target()
    batch_sizes = []

    class Counted(Target):
        def __call__(self, points, only=None):
            batch_sizes.append(len(points))
            return super().__call__(points, only)

    maximize(
        shards,
        shards.draws(500),
        Counted(target.model, target.shard_cache.partition, target.executor),
    )
    assert max(batch_sizes) == Newton().num_samples


def test_a_scale_for_every_coordinate(gaussian_shards):
    """Diagonal covariances: nothing is lost by it."""
    shards = gaussian_shards(4, 3)
    shards = type(shards)(shards.means, shards.covariances * np.eye(3))
    _, merged = maximize(
        shards, shards.draws(2000), shards.target(), family=AffineFamily(full=False)
    )
    mean, covariance = shards.product()
    sds = np.sqrt(np.diag(covariance))
    # without matrices there is no control variate: 2 000 draws have errors of .022 and .016 sds
    assert (np.abs(merged.mean(axis=0) - mean) < 0.05 * sds).all()
    assert (np.abs(merged.std(axis=0) / sds - 1) < 0.05).all()


def wiggly(scale, low=None):
    """A target with a slope that is not linear, and a domain that ends at `low`."""

    def log_likelihood(params, rows):
        theta = params["theta"]
        value = jnp.sum(theta - jnp.exp(theta) - 0.1 * theta**2)
        if low is not None:
            value = jnp.where(jnp.all(theta > low), value, -jnp.inf)
        return rows["one"] / 4 * scale * value

    model = vcmc.Model(SPACE, lambda params: 0.0 * jnp.sum(params["theta"]), log_likelihood)
    partition = vcmc.split({"one": np.ones(4)}, 2)
    return Target(model, [partition.load(shard) for shard in range(2)], vcmc.executors.Local())


@pytest.mark.slow
def test_it_settles_on_a_slope_beside_a_cliff():
    """Covariates without events: full steps alternate between two points."""

    def log_likelihood(params, rows):
        return 9 * rows["one"] * jnp.sum(jax.nn.log_sigmoid(4 - params["theta"]))

    def log_prior(params):
        return -0.5 * jnp.sum((params["theta"] / 5) ** 2)

    model = vcmc.Model(SPACE, log_prior, log_likelihood)
    partition = vcmc.split({"one": np.ones(4)}, 4)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", vcmc.DoubtfulWarning
        )  # affine maps are not all that it takes
        # a bent map would take over before it settles
        combiner = Variational(optimizer=Newton(max_unsettled=1_000_000))
        tree = vcmc.infer(
            model, partition, combiner=combiner, shard_draws=1000, seed=0, progress=False
        )
    assert "Newton" not in tree.attrs["verdict_text"]
    objective = tree["optimization"]["objective"].values
    assert np.ptp(objective[-4:]) < 0.05  # alternating steps differ by half a nat
    # the posterior of one coefficient, by quadrature
    theta = np.linspace(-40, 10, 20_001)
    density = np.exp(-0.5 * (theta / 5) ** 2 - 36 * np.logaddexp(0, theta - 4))
    density /= density.sum()
    mean = density @ theta
    sd = np.sqrt(density @ (theta - mean) ** 2)
    merged = vcmc.posterior_draws(tree)["theta"]
    assert (np.abs(merged.mean(axis=0) - mean) < 0.1 * sd).all()
    assert (np.abs(merged.std(axis=0) / sd - 1) < 0.15).all()


@pytest.mark.parametrize("place", [-3.0, 0.0, 3.0])
def test_it_never_lowers_the_objective_beyond_its_noise(place):
    """From starts far off, on a slope that grows exponentially."""
    draws = place + np.random.default_rng(0).normal(size=(2, 300, 3))
    found, merged = maximize(None, jnp.asarray(draws), wiggly(20.0))
    assert found.warning == ""
    assert (np.diff(found.values) > -4 * (found.errors[1:] + found.errors[:-1])).all()
    # E[20 (1 - exp θ - 0.2 θ)] = 0 at the mean, by hand for a lognormal of the fitted moments
    mean, variance = merged.mean(axis=0), merged.var(axis=0)
    np.testing.assert_allclose(np.exp(mean + variance / 2) + 0.2 * mean, 1, atol=0.02)


def test_a_valley_is_left_for_the_mode():
    """Draws lie in a valley, between two modes of different heights."""

    def log_likelihood(params, rows):
        theta = params["theta"]
        left, right = (-0.5 * jnp.sum((theta - c) ** 2) / 0.1 for c in (-1.0, 1.0))
        return rows["one"] / 4 * jnp.logaddexp(left, right + 2.0)

    model = vcmc.Model(SPACE, lambda params: 0.0 * jnp.sum(params["theta"]), log_likelihood)
    partition = vcmc.split({"one": np.ones(4)}, 2)
    target = Target(model, [partition.load(shard) for shard in range(2)], vcmc.executors.Local())
    centres = np.array([-1.0, 1.0])[:, None, None]
    draws = jnp.asarray(centres + 0.3 * np.random.default_rng(0).normal(size=(2, 300, 3)))
    _, merged = maximize(None, draws, target)
    np.testing.assert_allclose(merged.mean(axis=0), 1.0, atol=0.01)
    np.testing.assert_allclose(merged.std(axis=0), np.sqrt(0.1), rtol=0.05)


def test_draws_outside_the_domain_are_brought_back():
    draws = jnp.asarray(-2.0 + np.random.default_rng(0).normal(size=(2, 300, 3)))
    aggregator = AffineFamily().fit(SPACE, draws, Precision())
    start = Objective(wiggly(20.0, low=-2.0), GaussianSum(), aggregator, draws)
    inside = np.isfinite(start.target(start.aggregate(weights_of(aggregator)))[0])
    assert not inside.all()
    found, merged = maximize(None, draws, wiggly(20.0, low=-2.0))
    assert not found.failed
    assert np.isfinite(wiggly(20.0, low=-2.0)(jnp.asarray(merged))[0]).all()


def test_a_target_that_is_nowhere_finite_fails(gaussian_shards):
    shards = gaussian_shards(2, 3)
    draws = shards.draws(100)
    combined = Variational()(Subposteriors(draws, SPACE, wiggly(1.0, low=1e6)))
    consensus = Consensus()(Subposteriors(draws, SPACE))
    np.testing.assert_allclose(combined.draws, consensus.draws, atol=1e-10)
    assert "is not finite at the combined draws" in combined.notes[0]


def test_an_unfinished_optimization_warns():
    draws = jnp.asarray(3.0 + np.random.default_rng(0).normal(size=(2, 300, 3)))
    found, _ = maximize(None, draws, wiggly(20.0), max_iterations=1)
    assert "had not settled after 1 iterations: raise its max_iterations" in found.warning


def test_a_search_that_needs_a_larger_batch_ends_if_asked_to():
    draws = jnp.asarray(3.0 + np.random.default_rng(0).normal(size=(2, 2000, 3)))
    target = wiggly(20.0)
    settled, _ = maximize(None, draws, target)
    assert not settled.is_unsettled
    brief, _ = maximize(None, draws, target, max_unsettled=32)
    assert brief.is_unsettled
    assert len(brief.evaluated[0]) == 32
    assert len(brief.values) < len(settled.values)


def test_same_seed_same_path(gaussian_shards):
    draws = jnp.asarray(np.random.default_rng(0).normal(size=(2, 300, 3)))
    first, again = (maximize(None, draws, wiggly(20.0))[0] for _ in range(2))
    np.testing.assert_array_equal(first.values, again.values)


def test_other_families_are_refused(gaussian_shards):
    shards = gaussian_shards(2, 3)
    draws = shards.draws(100)
    aggregator = AffineFamily(per_shard=True).fit(SPACE, draws, Precision())
    objective = Objective(shards.target(), GaussianSum(), aggregator, draws)
    with pytest.raises(
        TypeError, match=r"Newton's method is for the family AffineFamily\(per_shard=False\)"
    ):
        Newton().maximize(objective, weights_of(aggregator), 0)
    with pytest.raises(ValueError, match="num_samples must be 2 or more; got 1"):
        Newton(num_samples=1)
    with pytest.raises(ValueError, match="max_iterations must be 1 or more; got 0"):
        Newton(max_iterations=0)
