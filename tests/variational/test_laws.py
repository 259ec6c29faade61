"""Laws of optimizers: they find SciPy's optimum, stop there, and return valid weights."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize

from vcmc import variational
from vcmc.aggregators import Precision, Uniform, VectorFamily
from vcmc.aggregators.weights import weights_of, with_weights
from vcmc.space import Product, Real
from vcmc.target import Minibatch
from vcmc.variational import Adaptive, Newton, ProjectedGradient
from vcmc.variational.entropies import Relaxed
from vcmc.variational.objective import Objective

OPTIMIZERS = {
    "adaptive": Adaptive(),
    "adaptive, Adamax, 20 samples": Adaptive(optax.adamax, learning_rate=0.1, num_samples=20),
    "adaptive, half of the rows": Adaptive(data_fraction=0.5),
    "projected": ProjectedGradient(),
    "projected, a schedule": ProjectedGradient(step=optax.exponential_decay(0.01, 30, 0.5)),
}
NUM_SHARDS, DIM = 6, 3
SPACE = Product({"theta": Real(DIM)})


@pytest.fixture(scope="module")
def shards(gaussian_shards):
    return gaussian_shards(NUM_SHARDS, DIM, spread=0.5)


@pytest.fixture(scope="module")
def draws(shards):
    return shards.draws(500)


def closed_form(shards, matrices):
    """The relaxed objective of weights on Gaussian shards, up to a constant."""
    cross = shards.expected_log_density(matrices)
    return cross + np.linalg.slogdet(matrices)[1].mean()


def matrices_of(aggregator):
    weights = aggregator.frame.similarity(aggregator.weights.operators)
    if weights.values.ndim == 2:
        return np.stack([np.diag(row) for row in np.asarray(weights.values)])
    return np.asarray(weights.values)


def best_value(shards, aggregator):
    """The highest value in the family, by SciPy over free coordinates."""
    (weights,) = weights_of(aggregator)
    shape = weights.values.shape

    def negative(free):
        built = with_weights(aggregator, [weights.from_free(jnp.asarray(free.reshape(shape)))])
        return -closed_form(shards, matrices_of(built))

    return -minimize(
        negative, np.asarray(weights.free()).ravel(), method="L-BFGS-B", options={"maxfun": 10**5}
    ).fun


def test_every_optimizer_is_here(members):
    classes = members(variational, variational.AbstractOptimizer)
    assert classes == {type(optimizer) for optimizer in OPTIMIZERS.values()} | {
        Newton
    }  # test_newton.py


@pytest.fixture(scope="module")
def optima(shards, draws):
    families = {
        full: VectorFamily(full=full).fit(SPACE, draws, Uniform()) for full in (False, True)
    }
    return {
        full: (aggregator, best_value(shards, aggregator)) for full, aggregator in families.items()
    }


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_finds_the_optimum(name, full, shards, draws, optima):
    aggregator, best = optima[full]
    target = shards.target()
    optimizer = OPTIMIZERS[name]
    if optimizer.data_fraction < 1:
        target = Minibatch(target, aggregator(draws.mean(axis=1)), NUM_SHARDS // 2, seed=0)
    objective = Objective(target, Relaxed(), aggregator, draws)
    result = optimizer.maximize(objective, weights_of(aggregator), seed=0)
    found = closed_form(shards, matrices_of(with_weights(aggregator, result.weights)))
    start = closed_form(shards, matrices_of(aggregator))
    assert result.warning == ""
    assert len(result.values) == len(result.errors) < optimizer.max_iterations
    # it ends when rises are below the noise of a window, here a few hundredths of a nat;
    # half the rows are noisier
    assert best - found < max(0.05, 0.02 * (best - start)) * (
        1 if optimizer.data_fraction == 1 else 5
    )
    total = result.weights[0].values.sum(axis=0)
    np.testing.assert_allclose(total, np.ones(DIM) if total.ndim == 1 else np.eye(DIM), atol=1e-9)


@pytest.mark.parametrize("name", ["adaptive, half of the rows", "projected"])
def test_same_seed_same_path(name, shards, draws, optima):
    aggregator, _ = optima[False]
    optimizer, target = OPTIMIZERS[name], shards.target()
    results = [
        optimizer.maximize(
            Objective(target, Relaxed(), aggregator, draws), weights_of(aggregator), seed
        )
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(results[0].values, results[1].values)
    assert results[0].values[0] != results[2].values[0]


def test_an_optimum_is_left_soon(gaussian_shards):
    """Equal shards: precision weights are the best, and nothing is to be gained."""
    shards = gaussian_shards(1, 2)
    shards = type(shards)(np.tile(shards.means, (4, 1)), np.tile(shards.covariances, (4, 1, 1)))
    draws = shards.draws(500)
    aggregator = VectorFamily(full=False).fit(SPACE, draws, Precision())
    result = Adaptive().maximize(
        Objective(shards.target(), Relaxed(), aggregator, draws), weights_of(aggregator), 0
    )
    assert result.warning == ""
    assert len(result.values) <= 40
    np.testing.assert_allclose(result.weights[0].values, 0.25, atol=0.02)


def test_an_unfinished_optimization_warns(shards, draws):
    aggregator = VectorFamily(full=False).fit(SPACE, draws, Uniform())
    objective = Objective(shards.target(), Relaxed(), aggregator, draws)
    result = Adaptive(max_iterations=7).maximize(objective, weights_of(aggregator), 0)
    assert len(result.values) == 7
    assert (
        "had not levelled off after 7 iterations: raise the optimizer's max_iterations"
        in result.warning
    )


def test_a_target_that_is_not_finite_fails(draws):
    def target(points):
        return jnp.full(len(points), jnp.nan), jnp.full(points.shape, jnp.nan)

    aggregator = VectorFamily(full=False).fit(SPACE, draws, Uniform())
    result = Adaptive().maximize(
        Objective(target, Relaxed(), aggregator, draws), weights_of(aggregator), 0
    )
    assert "was not finite in iteration 1" in result.warning
    np.testing.assert_array_equal(result.weights[0].values, weights_of(aggregator)[0].values)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_samples": 1}, "num_samples must be 2 or more; got 1"),
        ({"data_fraction": 0.0}, "data_fraction must be above 0 and at most 1; got 0.0"),
        ({"max_iterations": 0}, "max_iterations must be 1 or more; got 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ProjectedGradient(**settings)
