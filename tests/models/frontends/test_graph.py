import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erfcx
from scipy.stats import binom, halfcauchy, norm, t

from vcmc.models.frontends.graph import Graph, ancestors, jaxify

Y = np.array([0.5, -1.0, 2.0])


@pytest.fixture(scope="module")
def graph(pm):
    with pm.Model() as model:
        y = pm.Data("y", Y)
        pm.Normal("obs", pm.Normal("mean", 0.0, 2.0), 1.0, observed=y)
    return Graph(model, ["y"])


def test_densities_are_functions_of_params_and_rows(graph):
    variables = [graph.model["mean"], graph.model["obs"]]
    function = graph.function([graph.log_density(variable) for variable in variables])
    assert list(function.params) == ["mean"]
    assert list(function.rows) == ["y"]
    prior, likelihood = function({"mean": 0.3}, {"y": Y[:2]})
    np.testing.assert_allclose(prior, norm.logpdf(0.3, 0, 2))
    np.testing.assert_allclose(likelihood, norm.logpdf(Y[:2], 0.3, 1))


def test_logarithms_of_constants_have_64_bits(pm):
    """PyTensor takes the logarithm of an integer constant in 32 bits."""
    with pm.Model() as model:
        location = pm.Normal("location", 0, 10)
        scale = pm.HalfCauchy("scale", 5)
        pm.StudentT("obs", nu=3, mu=location, sigma=scale, observed=pm.Data("y", Y))
    graph = Graph(model, ["y"])
    terms = [graph.log_density(model[name]).sum() for name in ("location", "scale", "obs")]
    values = graph.function(terms)({"location": 0.3, "scale": 1.7}, {"y": Y})
    expected = [norm.logpdf(0.3, 0, 10), halfcauchy.logpdf(1.7, 0, 5), t.logpdf(Y, 3, 0.3, 1.7)]
    np.testing.assert_allclose(values, [np.sum(value) for value in expected], rtol=1e-13)


def test_functions_of_integers_have_64_bits(pm):
    """PyMC holds counts in 32 bits, and JAX takes their log-gamma function in as many."""
    rows = {"won": np.array([1, 4, 9]), "trials": np.array([5, 7, 11])}
    with pm.Model() as model:
        won, trials = (pm.Data(name, array) for name, array in rows.items())
        pm.Binomial("obs", trials, pm.Beta("share", 1, 1), observed=won)
    graph = Graph(model, list(rows))
    (values,) = graph.function([graph.log_density(model["obs"])])({"share": 0.3}, rows)
    expected = binom.logpmf(rows["won"], rows["trials"], 0.3)
    np.testing.assert_allclose(values, expected, rtol=1e-13)


def test_categories_of_many_rows(pm):
    """PyTensor numbers the rows from a constant of eight bits."""
    rows = {"group": np.arange(200) % 3, "kind": np.arange(200) % 2}
    with pm.Model() as model:
        group, kind = (pm.Data(name, array) for name, array in rows.items())
        shares = pm.Dirichlet("shares", np.ones((3, 2)))
        pm.Categorical("obs", shares[group], observed=kind)
    graph = Graph(model, list(rows))
    shares = np.array([[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]])
    (values,) = graph.function([graph.log_density(model["obs"])])({"shares": shares}, rows)
    np.testing.assert_allclose(values, np.log(shares[rows["group"], rows["kind"]]))


def test_functions_take_only_what_they_need(graph):
    prior = graph.function([graph.log_density(graph.model["mean"])])
    assert list(prior.rows) == []


def test_shapes_follow_the_rows(graph):
    variables = [graph.model["mean"], graph.model["y"]]
    assert graph.shapes(variables, {"y": np.zeros(7)}) == [(), (7,)]


def test_ancestors_include_the_variables(pm):
    import pytensor.tensor as pt

    a, b = pt.dscalar("a"), pt.dscalar("b")
    total = a + b
    assert {a, b, total} <= set(ancestors([total]))
    assert b not in ancestors([a + 1])


@pytest.mark.parametrize("value", [-5.0, 0.0, 3.0, 30.0])
def test_erfcx_is_scipys(pm, value):
    import pytensor.tensor as pt

    x = pt.dscalar("x")
    (found,) = jaxify([x], [pt.erfcx(x)])(jnp.asarray(value))
    np.testing.assert_allclose(found, erfcx(value), rtol=1e-10)
