"""Hierarchical models that are given without groups, and models that only look like them."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.models.frontends.recognition import recognised_groups
from vcmc.space import Product

NUM_ROWS = 300
GENERATOR = np.random.default_rng(0)
ROWS = {
    "student": GENERATOR.integers(0, 60, NUM_ROWS),
    "question": GENERATOR.integers(0, 25, NUM_ROWS),
    "x": GENERATOR.normal(size=(NUM_ROWS, 30)),
    "y": GENERATOR.integers(0, 29, NUM_ROWS),
}


def recognised(log_likelihood, **space):
    return recognised_groups(log_likelihood, Product(space), ROWS)


def test_an_element_per_group_is_recognised():
    found = recognised(lambda params, rows: params["a"][rows["student"]] ** 2, a=vcmc.Real(60))
    assert found == (["a"], "student", 60)


def test_any_axis_may_be_that_of_groups():
    found = recognised(
        lambda params, rows: jnp.sum(params["a"][:, rows["student"]] ** 2, axis=0),
        a=vcmc.Real(2, 60),
    )
    assert found == (["a"], "student", 60)


def test_the_larger_of_two_factors_is_the_group():
    found = recognised(
        lambda params, rows: params["a"][rows["question"]] * params["b"][rows["student"]],
        a=vcmc.Real(25),
        b=vcmc.Real(60),
    )
    assert found == (["b"], "student", 60)


@pytest.mark.parametrize(
    ("log_likelihood", "size"),
    [
        (lambda params, rows: rows["y"] * (rows["x"] @ params["a"]), 30),  # coefficients, counts
        (lambda params, rows: jnp.cumsum(params["a"])[rows["student"]], 60),  # a random walk
        (lambda params, rows: params["a"][rows["student"]] + params["a"][0], 60),
        (lambda params, rows: params["a"][rows["student"] // 6], 10),  # few levels
    ],
)
def test_what_is_not_one_element_per_row_is_not(log_likelihood, size):
    assert recognised(log_likelihood, a=vcmc.Real(size)) is None


def answers(student, question, y, *, num_students):
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    with numpyro.plate("questions", 25):
        difficulty = numpyro.sample("difficulty", dist.Normal(0, 1))
    with numpyro.plate("students", num_students):
        ability = numpyro.sample("ability", dist.Normal(0, sd))
    rate = jnp.exp(ability[student] - difficulty[question])
    numpyro.sample("y", dist.Poisson(rate), obs=y)


def test_a_model_with_two_plates_gets_one_sentence():
    rows = {name: ROWS[name] for name in ("student", "question", "y")}
    with pytest.warns(UserWarning, match="hierarchical") as caught:
        vcmc.from_numpyro(answers, rows, constants={"num_students": 60})
    (message,) = (str(warning.message) for warning in caught)
    assert message == (
        "the model is hierarchical: 'ability' has a value for each of 60 groups of 'student', "
        'which shards cannot share well; write from_numpyro(..., groups="student", '
        'num_groups="num_students") without this constant.'
    )


def test_a_size_in_the_model_is_to_become_an_argument():
    def fixed(student, y):
        answers(student, student // 3, y, num_students=60)

    rows = {name: ROWS[name] for name in ("student", "y")}
    with pytest.warns(UserWarning, match="with the argument num_student as the plate's size"):
        vcmc.from_numpyro(fixed, rows)


def test_a_flat_model_with_a_plate_of_rows_is_not_mistaken():
    def flat(student, x, y, *, num_features):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([num_features]).to_event(1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Poisson(jnp.exp(x @ beta + 0.1 * student)), obs=y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vcmc.from_numpyro(
            flat, {n: ROWS[n] for n in ("student", "x", "y")}, constants={"num_features": 30}
        )


@pytest.mark.slow
def test_a_pymc_model_is_recognised(pm):
    with pm.Model() as model:
        student, y = pm.Data("student", ROWS["student"]), pm.Data("y", ROWS["y"])
        ability = pm.Normal("ability", 0, pm.HalfNormal("sd", 1), shape=60)
        pm.Poisson("obs", pm.math.exp(ability[student]), observed=y)
    with pytest.warns(UserWarning, match=r'groups="student"\) with dims="student" for \'ability\''):
        vcmc.from_pymc(model, {name: ROWS[name] for name in ("student", "y")})
