"""Spaces of PyMC's random variables."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import vcmc

generator = np.random.default_rng(0)
X = generator.normal(size=(400, 2))
Y = {"y": generator.normal(size=60)}


def transform(pm, name):
    return getattr(pm.distributions.transforms, name)


SPACES = {
    "ordered": (
        lambda pm: pm.Normal(
            "a", 0, 1, shape=3, transform=transform(pm, "ordered"), initval=[0.0, 1.0, 2.0]
        ),
        "Ordered(shape=(3,))",
        dist.Normal(0, 1).log_prob,
    ),
    "lower": (
        lambda pm: pm.TruncatedNormal("a", 0.0, 1.0, lower=0.0),
        "Positive(shape=())",
        dist.HalfNormal(1).log_prob,
    ),
    "lower, not 0": (
        lambda pm: pm.Pareto("a", 3.0, 1.5, shape=2),
        "Space(GreaterThan(lower_bound=1.5), shape=(2,))",
        dist.Pareto(1.5, 3.0).log_prob,
    ),
    "upper": (
        lambda pm: pm.TruncatedNormal("a", 0.0, 1.0, upper=-1.0),
        "Space(LessThan(upper_bound=-1.0), shape=())",
        dist.Normal(0, 1).log_prob,
    ),
    "unit": (
        lambda pm: pm.LogitNormal("a", 0.0, 1.0, shape=2),
        "Interval(shape=(2,))",
        lambda a: -0.5 * jax.scipy.special.logit(a) ** 2 - jnp.log(a * (1 - a)),
    ),
    "zero sum": (
        lambda pm: pm.ZeroSumNormal("a", shape=3),
        "Space(PyMC's ZeroSumTransform, shape=(3,))",
        dist.Normal(0, 1).log_prob,
    ),
    "no transform": (
        lambda pm: pm.HalfNormal("a", 1.0, default_transform=None),
        "Positive(shape=())",
        dist.HalfNormal(1).log_prob,
    ),
    "matrix": (
        lambda pm: pm.Wishart("a", nu=4, V=np.eye(2)),
        "PositiveDefinite(shape=(2, 2))",
        dist.Wishart(4, scale_matrix=np.eye(2)).log_prob,
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_spaces_are_those_of_the_supports(pm, name, around):
    make, expected_space, expected_prior = SPACES[name]
    model = vcmc.from_pymc(around(pm, make), Y)
    assert str(model.space["a"]) == expected_space

    @jax.jit
    def look(point):
        params, log_det = model.space.constrain_with_log_det(point)
        slopes = jax.jacobian(lambda point: model.space.constrain(point)["a"].reshape(-1))(point)
        return params, log_det, slopes, model.space.unconstrain(params), model.log_prior(params)

    point = np.random.default_rng(2).normal(size=model.space.dim)
    params, log_det, slopes, back, log_prior = look(point)
    other, *_, other_log_prior = look(0.5 * point)
    np.testing.assert_allclose(back, point, atol=1e-10)
    expected = np.sum(expected_prior(params["a"])) - np.sum(expected_prior(other["a"]))
    np.testing.assert_allclose(
        log_prior - other_log_prior, expected, atol=1e-10
    )  # PyMC's constants have 32 bits
    if name == "matrix":  # as many coordinates as numbers on and below the diagonal
        slopes = slopes[np.array([0, 2, 3])]
    volume = 0.5 * np.linalg.slogdet(slopes.T @ slopes)[1]
    np.testing.assert_allclose(log_det, volume, atol=1e-10)


def test_bounds_may_depend_on_parameters(pm, around):
    def nested(pm):
        width = pm.HalfNormal("width", 1.0)
        return pm.Uniform("a", -width, 2 * width)

    model = vcmc.from_pymc(around(pm, nested), Y)
    params, log_det = model.space.constrain_with_log_det(jnp.array([0.7, 0.0]))
    np.testing.assert_allclose(params["a"], 0.5 * params["width"])  # the middle
    np.testing.assert_allclose(log_det, 0.7 + jnp.log(3 * params["width"] / 4))


@pytest.mark.slow
def test_cholesky_factors_of_covariances(pm, around):
    rows = {"x": X}

    def covariance(pm, x):
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0))
        pm.MvNormal("obs", mu=np.zeros(2), chol=chol, observed=x)

    model = vcmc.from_pymc(around(pm, covariance, rows), rows)
    params = model.space.constrain(jnp.array([0.3, -0.2, 0.1]))
    np.testing.assert_allclose(params["chol"], [np.exp(0.3), -0.2, np.exp(0.1)])
    root = np.array([[params["chol"][0], 0.0], [params["chol"][1], params["chol"][2]]])
    expected = scipy.stats.multivariate_normal(np.zeros(2), root @ root.T).logpdf(X)
    np.testing.assert_allclose(jax.jit(model.log_likelihood)(params, rows), expected, rtol=1e-10)
    assert model.derived(params)["chol_corr"].shape == (2, 2)


def test_space_can_say_more_than_the_support(pm, around):
    def mixture(pm, y):
        centres = pm.Normal("centres", 0, 3, shape=3)
        pm.NormalMixture("obs", w=np.ones(3) / 3, mu=centres, sigma=1.0, observed=y)

    model = around(pm, mixture)
    exchangeable = vcmc.Exchangeable(3, vcmc.Real())
    assert (
        vcmc.from_pymc(model, Y, space={"centres": exchangeable}).space["centres"] is exchangeable
    )
    with pytest.raises(ValueError, match=r"must have the variable's shape \(3,\)"):
        vcmc.from_pymc(model, Y, space={"centres": vcmc.Real(2)})
    with pytest.raises(ValueError, match="the free random variables are"):
        vcmc.from_pymc(model, Y, space={"center": exchangeable})
