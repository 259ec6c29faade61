import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import wishart

import vcmc
from vcmc.combiners import Consensus
from vcmc.data.params import to_params
from vcmc.density import Subposterior
from vcmc.models.normal_wishart import scott_design
from vcmc.samplers import NUTS, WishartExact


@pytest.fixture(scope="module")
def small():
    model = vcmc.models.NormalWishart(
        3, dof=6.5, scale=np.diag([1.0, 2.0, 0.5]), mean=[1.0, 0.0, -1.0]
    )
    return model, model.simulate(0, 40).rows


def exact(model, x, power):
    centred = x - model.mean
    dof = power * (model.dof - 4) + len(x) + 4
    return wishart(dof, np.linalg.inv(power * np.linalg.inv(model.scale) + centred.T @ centred))


@pytest.mark.slow
@pytest.mark.parametrize(("power", "temper_jacobian"), [(1.0, True), (1.0, False), (0.1, False)])
def test_exact_draws_have_the_moments_of_the_closed_form(small, power, temper_jacobian):
    model, rows = small
    density = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(power))
    sampler = WishartExact(temper_jacobian=temper_jacobian)
    points, _ = sampler.run(density, jnp.zeros(6), jax.random.key(0), 20_000)
    draws = np.asarray(jax.vmap(model.space.constrain)(jnp.asarray(points))["precision"])
    truth = exact(model, rows["x"], power)
    sds = np.sqrt(truth.var())
    assert (np.abs(draws.mean(axis=0) - truth.mean()) < 4 * sds / np.sqrt(20_000)).all()
    kurtosis = ((draws - draws.mean(axis=0)) ** 4).mean(axis=0) / draws.var(axis=0) ** 2
    assert (np.abs(draws.std(axis=0) / sds - 1) < 4 * np.sqrt((kurtosis - 1) / 4 / 20_000)).all()


@pytest.mark.parametrize("power", [1.0, 0.1])
def test_the_log_density_is_that_of_the_closed_form(small, power):
    """Differences of log densities between points, so that constants and the tempered Jacobian drop
    out."""
    model, rows = small
    density = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(power))
    points = jax.random.normal(jax.random.key(1), (5, 6))
    truth = exact(model, rows["x"], power)
    expected, found = [], []
    for point in points:
        params, log_det = model.space.constrain_with_log_det(point)
        expected.append(truth.logpdf(np.asarray(params["precision"])))
        found.append(float(density(point) - power * log_det))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("power", [1.0, 0.1])
def test_nuts_agrees_with_exact_draws(small, power):
    """In real coordinates, with the Jacobian tempered by both; ten rows, so that it matters."""
    model, rows = small
    rows = {"x": rows["x"][:10]}
    density = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(power))
    exact_points, _ = WishartExact().run(density, jnp.zeros(6), jax.random.key(0), 20_000)
    points, _ = NUTS().run(density, jnp.zeros(6), jax.random.key(1), 4000)
    sds = exact_points.std(axis=0)
    for function in (lambda u: u, lambda u: u**2):
        one, two = function(exact_points), function(points)
        effective = array_stats.ess(two[None], chain_axis=0, draw_axis=1)
        error = one.std(axis=0) * np.sqrt(1 / len(one) + 1 / effective)
        assert (np.abs(one.mean(axis=0) - two.mean(axis=0)) < 4 * error).all()
    untempered, _ = WishartExact(temper_jacobian=False).run(
        density, jnp.zeros(6), jax.random.key(0), 20_000
    )
    gap = np.abs(untempered.mean(axis=0) - exact_points.mean(axis=0)) / sds
    assert gap.max() > 0.3 if power < 1 else gap.max() < 0.05  # the test would see the difference


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_shards_multiply_to_the_posterior():
    """Small shards and full consensus: exact up to the shards' skewness, far from so without
    tempering."""
    model = vcmc.models.NormalWishart(4, mean=np.zeros(4))
    rows = model.simulate(0, 2000).rows
    whole = model.posterior_of(vcmc.split(rows, 1).load(0))
    truth = wishart(float(whole.dof), np.asarray(whole.scale))
    gaps = []
    partition = vcmc.split(rows, 20)
    shards = [Subposterior(model, partition.load(k), jnp.asarray(1 / 20)) for k in range(20)]
    for sampler in (WishartExact(), WishartExact(temper_jacobian=False)):
        runs = [
            sampler.run(shard, jnp.zeros(10), jax.random.key(k), 4000)
            for k, shard in enumerate(shards)
        ]
        draws = to_params(model.space, jnp.stack([jnp.asarray(points) for points, _ in runs]))
        tree = vcmc.combine(draws, space=model.space, combiner=Consensus())
        mean = tree["posterior"]["precision"].mean(("chain", "draw")).to_numpy()
        gaps.append(np.median(np.abs(mean - truth.mean()) / np.sqrt(truth.var())))
    assert gaps[0] < 0.5
    assert gaps[0] < 0.3 * gaps[1]


@pytest.mark.slow
def test_the_mean_is_aggregated_over_shards():
    mean, covariance = scott_design()
    model = vcmc.models.NormalWishart(5)
    x = np.random.default_rng(0).multivariate_normal(mean, covariance, size=1003)
    tree = vcmc.infer(model, {"x": x}, num_shards=7, shard_draws=200)
    np.testing.assert_allclose(tree["posterior"]["mean"][0, 0], x.mean(axis=0), rtol=1e-10)
    found = np.linalg.inv(tree["posterior"]["precision"].mean(("chain", "draw")))
    np.testing.assert_allclose(found, covariance, atol=0.15)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
@pytest.mark.parametrize(("prior", "power"), [("subposterior", 0.25), ("partial", 1.0)])
def test_shards_have_the_prior_that_was_asked_for(small, prior, power):
    model, _ = small
    rows = model.simulate(1, 40).rows
    partition = vcmc.split(rows, 4)
    sampler = WishartExact(temper_jacobian=False)  # the closed form is in the space of matrices
    tree = vcmc.infer(
        model,
        partition,
        prior=prior,
        shard_draws=4000,
        combiner=vcmc.combiners.Average(),
        sampler=sampler,
    )
    for shard, members in enumerate(partition.members):
        draws = tree["subposterior"]["precision"].to_numpy()[shard, 0]
        truth = exact(model, rows["x"][members], power)
        assert (np.abs(draws.mean(axis=0) - truth.mean()) < 4.5 * np.sqrt(truth.var() / 4000)).all()


def test_test_functions_are_moments_of_eigenvalues():
    functions = vcmc.models.NormalWishart(2).test_functions(
        {"precision": jnp.diag(jnp.array([0.5, 0.25]))}
    )
    np.testing.assert_allclose(functions["first"], [4.0, 2.0])
    np.testing.assert_allclose(functions["mixed second"], [8.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vcmc.models.NormalWishart(3, dof=2), "dof must be above dim - 1 = 2; got 2.0"),
        (lambda: vcmc.models.NormalWishart(2, scale=[[1, 2], [2, 1]]), "positive-definite 2 × 2"),
        (
            lambda: vcmc.models.NormalWishart(2).posterior_of(
                vcmc.split({"x": np.zeros((4, 2))}, 1).load(0)
            ),
            "the mean is not known yet",
        ),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_combining_a_tree_again_needs_no_space(small):
    model, rows = small
    tree = vcmc.infer(model, rows, num_shards=2, shard_draws=200, combiner=Consensus())
    for again in (vcmc.combine(tree), vcmc.combine(tree, space=model.space)):
        np.testing.assert_allclose(
            again["posterior"]["precision"], tree["posterior"]["precision"], rtol=1e-6
        )


def test_columns_must_fit():
    with pytest.raises(ValueError, match=r"must have 3 columns; got shape \(2,\)"):
        vcmc.infer(vcmc.models.NormalWishart(3), {"x": np.zeros((9, 2))}, num_shards=2)


@pytest.mark.slow
def test_log_densities_of_points_are_those_of_params():
    model = vcmc.models.NormalWishart(
        4, dof=7.5, scale=np.diag([1.0, 2.0, 0.5, 1.5]) + 0.1, mean=np.arange(4.0)
    )
    rows = model.simulate(0, 30).rows
    shard = vcmc.split(rows, 1).load(0)
    for point in jnp.asarray(np.random.default_rng(0).normal(size=(3, model.space.dim))):
        params = model.space.constrain(point)
        plain = vcmc.Model(model.space, model.log_prior, model.log_likelihood)
        np.testing.assert_allclose(model.log_prior_at(point), plain.log_prior_at(point), rtol=1e-10)
        likelihood = jnp.sum(model.log_likelihood(params, shard.rows))
        np.testing.assert_allclose(model.log_likelihood_at(point, shard), likelihood, rtol=1e-10)
