"""The objective against finite differences and closed forms; the theorems on its concavity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcmc
from vcmc.aggregators import (
    AffineFamily,
    BlockFamily,
    Blocks,
    CombinatorialFamily,
    Diagonal,
    Matrices,
    Precision,
    SpectralFamily,
    Vector,
    VectorFamily,
)
from vcmc.aggregators.weights import weights_of
from vcmc.space import Product
from vcmc.variational.entropies import (
    EntropyInputs,
    EntropyPower,
    GaussianSum,
    Relaxed,
    Tighter,
)
from vcmc.variational.objective import Objective

ENTROPIES = [Relaxed(), Tighter(), EntropyPower()]
FAMILIES = {
    "vector": (VectorFamily(full=False), Product({"theta": vcmc.Real(3)})),
    "vector, full": (VectorFamily(full=True), Product({"theta": vcmc.Real(3)})),
    "vector, full, as in the paper": (
        VectorFamily(full=True, framed=False),
        Product({"theta": vcmc.Real(3)}),
    ),
    "affine": (AffineFamily(), Product({"theta": vcmc.Real(3)})),
    "affine, each shard": (AffineFamily(per_shard=True), Product({"theta": vcmc.Real(3)})),
    "affine, each shard, diagonal": (
        AffineFamily(full=False, per_shard=True),
        Product({"theta": vcmc.Real(3)}),
    ),
    "spectral": (SpectralFamily(), Product({"precision": vcmc.PositiveDefinite(2)})),
    "spectral, full": (SpectralFamily(full=True), Product({"precision": vcmc.PositiveDefinite(2)})),
    "combinatorial": (
        CombinatorialFamily(),
        Product({"centres": vcmc.Exchangeable(2, vcmc.Real(2))}),
    ),
    "blocks": (
        BlockFamily({"precision": SpectralFamily(full=True)}),
        Product(
            {"beta": vcmc.Real(2), "precision": vcmc.PositiveDefinite(2), "scale": vcmc.Positive()}
        ),
    ),
}


@jax.jit
def target(points):
    """A smooth density that is neither Gaussian nor log-concave."""

    def one(point):
        return (
            -0.5 * jnp.sum((point - 0.3) ** 2)
            - 0.2 * point[0] * point[1] ** 2
            + jnp.sum(jnp.sin(2 * point))
        )

    return jax.vmap(jax.value_and_grad(one))(points)


def random_draws(dim, num_shards=3, num_draws=40):
    generator = np.random.default_rng(dim)
    return jnp.asarray(
        0.5 * generator.normal(size=(num_shards, 1, dim))
        + generator.uniform(0.3, 1, size=(num_shards, 1, dim))
        * generator.normal(size=(num_shards, num_draws, dim))
    )


PAIRS = [
    (name, entropy) for name in FAMILIES for entropy in ENTROPIES if not name.startswith("affine")
]
PAIRS += [(name, GaussianSum()) for name in FAMILIES if name.startswith(("vector", "affine"))]
PAIRS += [("affine", EntropyPower())]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "entropy"), PAIRS)
def test_gradients_are_finite_differences(name, entropy):
    family, space = FAMILIES[name]
    draws = random_draws(space.dim)
    objective = Objective(target, entropy, family.fit(space, draws, Precision()), draws)
    batch = np.random.default_rng(0).integers(40, size=(6, 3))
    weights = weights_of(objective.aggregator)
    objective.localize(weights, batch)
    objective.update_control()  # with a control, where the family has one
    gradient = objective(weights, batch).gradient
    for seed in range(2):
        generator = np.random.default_rng(seed)
        steps = [jnp.asarray(generator.normal(size=part.values.shape)) for part in weights]
        steps = [step + jnp.swapaxes(step, 1, 2) if step.ndim == 3 else step for step in steps]

        def moved(length, steps=steps):
            kinds = [
                type(part)(part.values + length * step)
                for part, step in zip(weights, steps, strict=True)
            ]
            return float(objective(kinds, batch).value)

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
        expected = sum(
            float(jnp.sum(part * step)) for part, step in zip(gradient, steps, strict=True)
        )
        assert expected == pytest.approx(slope, rel=1e-5, abs=1e-6)


def closed_form(shards, matrices, entropy):
    """The objective of weights on Gaussian shards, on paper."""
    cross = shards.expected_log_density(matrices)
    entropies = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * shards.covariances)[1]
    log_dets = np.linalg.slogdet(matrices)[1]
    bounds = {
        Relaxed: entropies.min() + log_dets.mean(),
        Tighter: entropies.min() + log_dets.max(),
        GaussianSum: 0.5 * np.linalg.slogdet(2 * np.pi * np.e * shards.combined(matrices))[1],
        EntropyPower: 0.5
        * shards.dim
        * np.log(np.sum(np.exp(2 * (entropies + log_dets) / shards.dim))),
    }
    return cross + bounds[type(entropy)]


ALL_PAIRS = np.stack(np.meshgrid(np.arange(60), np.arange(60), indexing="ij"), axis=-1).reshape(
    -1, 2
)


KINDS = [
    (kind, entropy)
    for kind in ("vector", "vector, full", "combinatorial", "blocks")
    for entropy in ENTROPIES
]
KINDS += [(kind, GaussianSum()) for kind in ("vector", "vector, full", "combinatorial")]


@pytest.mark.parametrize(("kind", "entropy"), KINDS)
def test_gaussian_shards_have_a_closed_form(kind, entropy, gaussian_shards):
    """All pairs of draws with exact moments: only the entropies have a Monte Carlo error."""
    shards = gaussian_shards(2, 2, spread=0.3)
    draws = shards.draws(60)
    share = np.array([[0.3, 0.6], [0.7, 0.4]])
    matrices = np.stack([np.diag(row) for row in share])
    vector = Vector(Diagonal(jnp.asarray(share)))
    if kind == "vector, full":
        matrices = np.array([[[0.4, 0.1], [0.1, 0.6]], [[0.6, -0.1], [-0.1, 0.4]]])
        vector = Vector(Matrices(jnp.asarray(matrices)))
    if kind == "combinatorial":
        space = Product({"theta": vcmc.Exchangeable(2, vcmc.Real())})
        aggregator = vcmc.aggregators.Combinatorial(vector, jnp.array([[0, 1], [0, 1]]), space)
    elif kind == "blocks":
        parts = tuple(Vector(Diagonal(jnp.asarray(share[:, [i]]))) for i in range(2))
        aggregator = Blocks(parts, ((0,), (1,)))
    else:
        aggregator = vector
    objective = Objective(shards.target(), entropy, aggregator, draws)
    weights = weights_of(aggregator)
    estimates = [objective(weights, ALL_PAIRS)]
    objective.update_control()
    estimates.append(objective(weights, ALL_PAIRS))  # with a control
    # the entropies of shards are estimated with one degree of freedom less
    expected = closed_form(shards, matrices, entropy)
    expected += 0 if isinstance(entropy, GaussianSum) else 0.5 * 2 * np.log(60 / 59)
    for estimate in estimates:
        assert float(estimate.value) == pytest.approx(expected, abs=1e-8)
    assert float(estimates[1].error) < 0.2 * float(estimates[0].error)


def logistic(points):
    """A log-concave density of three coordinates."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(20, 3)))

    def one(point):
        return jnp.sum(jax.nn.log_sigmoid(x @ point)) - 0.5 * jnp.sum(point**2)

    return jax.vmap(jax.value_and_grad(one))(points)


def simplex_segment(seed, full, dim=3):
    """Two random members of the family, and the one between them."""
    shape = (3, dim, dim) if full else (3, dim)
    free = 1.5 * jax.random.normal(jax.random.key(seed), (2, *shape))
    kind = Matrices if full else Diagonal
    ends = [kind(part).from_free(part).values for part in free]
    return [kind(ends[0]), kind((ends[0] + ends[1]) / 2), kind(ends[1])]


class NoEntropy(Relaxed):
    """The cross-entropy alone."""

    def __call__(self, parts):
        return 0.0 * jnp.sum(parts.log_dets)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([Relaxed(), NoEntropy()]))
def test_the_relaxed_objective_is_concave_for_log_concave_models(seed, full, entropy):
    """Theorem 1 (the cross-entropy) and the corollary (the objective), along random segments."""
    draws = random_draws(3)
    batch = np.random.default_rng(seed).integers(40, size=(5, 3))
    segment = simplex_segment(seed, full)
    objective = Objective(logistic, entropy, Vector(segment[0]), draws)
    low, middle, high = (float(objective([weights], batch).value) for weights in segment)
    assert middle >= (low + high) / 2 - 1e-9 * abs(middle)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_the_relaxed_entropy_is_concave(seed, full):
    """Theorem 2."""
    values = [
        float(Relaxed()(EntropyInputs(jnp.zeros(3), weights.log_dets(), None, 3)))
        for weights in simplex_segment(seed, full)
    ]
    assert values[1] >= (values[0] + values[2]) / 2 - 1e-12


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0, 1]))
def test_products_are_concave_in_each_block(seed, varied):
    """Theorem 1 for a density that is concave in each of two blocks, but not in both."""

    def density(points):
        return jax.vmap(jax.value_and_grad(lambda point: -jnp.sum((point[:2] * point[2:]) ** 2)))(
            points
        )

    draws = random_draws(4)
    segments = [simplex_segment(seed + block, full=False, dim=2) for block in range(2)]
    aggregator = Blocks((Vector(segments[0][0]), Vector(segments[1][0])), ((0, 1), (2, 3)))
    objective = Objective(density, Relaxed(), aggregator, draws)
    batch = np.random.default_rng(seed).integers(40, size=(5, 3))

    def value(index):
        weights = [segments[block][index if block == varied else 0] for block in range(2)]
        return float(objective(weights, batch).value)

    assert value(1) >= (value(0) + value(2)) / 2 - 1e-9


def test_the_error_is_that_of_batches():
    shards_space = Product({"theta": vcmc.Real(3)})
    draws = random_draws(3, num_draws=2000)
    objective = Objective(
        target,
        EntropyPower(),
        VectorFamily(full=False).fit(shards_space, draws, Precision()),
        draws,
    )
    generator, weights = np.random.default_rng(0), weights_of(objective.aggregator)

    def sample(count):
        return [objective(weights, generator.integers(2000, size=(20, 3))) for _ in range(count)]

    plain = sample(100)
    objective.update_control()
    helped = sample(100)
    for estimates in (plain, helped):
        spread = np.std([estimate.value for estimate in estimates], ddof=1)
        claimed = np.sqrt(np.mean([estimate.error**2 for estimate in estimates]))
        assert claimed == pytest.approx(spread, rel=4 / np.sqrt(2 * 100))
    gap = np.mean([e.value for e in plain]) - np.mean([e.value for e in helped])
    noise = (
        np.sqrt(np.mean([e.error**2 for e in plain]) + np.mean([e.error**2 for e in helped])) / 10
    )
    assert abs(gap) < 4 * noise  # the control does not bias
    assert np.mean([e.error for e in helped]) < np.mean([e.error for e in plain])
