"""Draws of a result as points, and results of other models."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.data.space_description import describe_space
from vcmc.inference.result_points import posterior_points, spaced_draws
from vcmc.results.tree import add_groups, make_tree

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=60)
ROWS = {"x": X, "y": 1 + 2 * X + GENERATOR.normal(size=60)}


def line(x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 5))
    b = numpyro.sample("b", dist.Normal(0, 5))
    numpyro.deterministic("total", a + b)
    numpyro.sample("y", dist.Normal(a + b * x, 1), obs=y)


def constant(x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 5))
    numpyro.sample("y", dist.Normal(a, 1).expand([x.shape[0]]), obs=y)


def by_group(g, num_groups, y=None):
    a = numpyro.sample("a", dist.Normal(0, 5))
    with numpyro.plate("groups", num_groups):
        effects = numpyro.sample("effects", dist.Normal(a, 1))
    numpyro.sample("y", dist.Normal(effects[g], 1), obs=y)


@pytest.fixture(scope="module")
def large():
    return vcmc.from_numpyro(line, ROWS)


@pytest.fixture(scope="module")
def small():
    return vcmc.from_numpyro(constant, ROWS)


@pytest.fixture(scope="module")
def tree(large):
    return vcmc.infer(large, ROWS, num_shards=1, num_draws=200, progress=False)


VERBS = {
    "loo": lambda tree, model: vcmc.loo(tree, model, ROWS),
    "waic": lambda tree, model: vcmc.waic(tree, model, ROWS),
    "predict": lambda tree, model: vcmc.predict(tree, model, ROWS, progress=False),
    "posterior_check": lambda tree, model: vcmc.posterior_check(tree, model, ROWS, progress=False),
    "evidence": lambda tree, model: vcmc.evidence(tree, model, ROWS),
    "diagnose": lambda tree, model: vcmc.diagnose(tree, model, ROWS),
    "refine": lambda tree, model: vcmc.refine(tree, model, ROWS, progress=False),
    "update": lambda tree, model: vcmc.update(tree, model, ROWS, progress=False),
    "combine": lambda tree, model: vcmc.combine(tree, model=model, rows=ROWS, progress=False),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_result_of_a_larger_model_is_refused(verb, tree, small):
    message = r"parameters \['a'\], but the (tree has|draws are of) \['b'\], too.*another model"
    with pytest.raises(ValueError, match=message):
        VERBS[verb](tree, small)


def test_a_result_with_groups_is_refused_by_a_model_without(small):
    rows = {"y": ROWS["y"], "g": np.arange(60) % 6}
    model = vcmc.from_numpyro(by_group, rows, groups="g", num_groups="num_groups")
    for mode in ("draws", "none"):
        options = {"num_shards": 1, "num_draws": 1000, "locals": mode, "progress": False}
        tree = vcmc.infer(model, rows, **options)
        assert posterior_points(tree, model).shape[2] == 1
        with pytest.raises(ValueError, match=r"the tree has \['effects'\], too"):
            vcmc.loo(tree, small, ROWS)


def test_draws_from_elsewhere_have_no_other_variables(large, small):
    arrays = {"a": np.ones((2, 50)), "b": np.zeros((2, 50))}
    tree = make_tree({"posterior": {**arrays, "total": np.ones((2, 50))}}, {"num_shards": 1})
    assert posterior_points(tree, large).shape == (2, 50, 2)  # which computes the total
    match = r"the tree has \['b', 'total'\], too.*are no parameters, drop them from the tree"
    with pytest.raises(ValueError, match=match):
        posterior_points(tree, small)


def test_users_may_add_and_drop_variables(tree, large, small):
    ratio = {"ratio": tree["posterior"]["a"].to_numpy() / 2}
    a = {"a": tree["posterior"]["a"].to_numpy()}
    more = add_groups(tree, {"posterior": {**a, "b": a["a"], **ratio}}, {})
    assert posterior_points(more, large).shape[2] == 2
    fewer = add_groups(tree, {"posterior": {**a, **ratio}}, {})
    assert posterior_points(fewer, small).shape[2] == 1


def test_a_model_may_compute_what_was_a_parameter():
    """The same posterior in other coordinates: the result has draws of all that the model has."""

    def model_of(name, other):
        return vcmc.Model(
            space={name: vcmc.Real()},
            log_prior=lambda params: -0.5 * params[name] ** 2,
            log_likelihood=lambda params, rows: -0.5 * (rows["y"] - params[name]) ** 2,
            derived=lambda params: {other: jnp.tanh(params[name])},
        )

    first, second = model_of("mean", "squashed"), model_of("squashed", "mean")
    posterior = {name: np.full((1, 20), 0.5) for name in ("mean", "squashed")}
    tree = make_tree({"posterior": posterior}, {"space": describe_space(first.space)})
    for model in (first, second):
        assert posterior_points(tree, model).shape == (1, 20, 1)


def test_draws_are_spaced_evenly():
    assert spaced_draws(np.zeros((2, 10, 1)), 10).tolist() == [0, 2, 4, 6, 8]
    assert spaced_draws(np.zeros((2, 3, 1)), None).tolist() == [0, 1, 2]
