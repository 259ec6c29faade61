"""Data in place of constants: the copy of a model has the same log density, for any rows."""

import warnings

import numpy as np
import pytest

pytestmark = pytest.mark.slow  # importing PyMC takes seconds

NUM_ROWS = 40


@pytest.fixture(scope="module")
def built(pm):
    """A model in Bambi's manner: constants of rows, a centred intercept, and effects."""
    from vcmc.models.frontends.bambi_graph import BuiltModel, CentredIntercept

    generator = np.random.default_rng(0)
    x = generator.normal(size=(NUM_ROWS, 2))
    county = generator.integers(0, 3, NUM_ROWS)
    coords = {"__obs__": np.arange(NUM_ROWS), "x_dim": ["a", "b"]}
    coords["county__factor_dim"] = list("pqr")
    with warnings.catch_warnings(), pm.Model(coords=coords) as model:
        warnings.simplefilter("ignore")
        intercept = pm.Normal("Intercept", 0, 5)
        slope = pm.Normal("x", np.zeros(2), np.ones(2), dims="x_dim")
        spread = pm.HalfNormal("1|county_sigma", 1)
        effect = pm.Normal("1|county", 0, spread, dims="county__factor_dim")
        mean = intercept + x @ slope + effect[county] * np.ones(NUM_ROWS)
        mean = pm.Deterministic("mu", mean, dims="__obs__")
        pm.Normal("y", mean, 1.0, observed=generator.normal(size=NUM_ROWS), dims="__obs__")
    means = np.array([0.5, -1.0])
    intercepts = {"Intercept": CentredIntercept(means, ["x"])}
    return BuiltModel(model, {"county__factor_dim": county, "design": x}, intercepts, {})


@pytest.fixture(scope="module")
def copied(built):
    from vcmc.models.frontends.bambi_graph import with_row_data

    return with_row_data(built)


def log_density(model, values):
    """Return the log density at untransformed values, without a C compiler."""
    from pytensor.compile.mode import Mode

    mode = Mode(linker="py", optimizer="fast_compile")
    run = model.compile_fn(model.logp(jacobian=False), mode=mode)
    return float(run(values))


def test_rows_are_data_by_their_names(copied):
    model, rows = copied
    assert set(rows) == {"county__factor_dim", "design", "y__obs"}
    assert {variable.name for variable in model.data_vars} == set(rows)


def test_the_copy_has_the_same_log_density(built, copied):
    values = {
        "x": np.array([0.3, -0.2]),
        "1|county_sigma_log__": np.log(0.7),
        "1|county": np.ones(3),
    }
    expected = log_density(built.model, {**values, "Intercept": 0.4})
    actual = log_density(copied[0], {**values, "Intercept_centered": 0.4})
    assert actual == pytest.approx(expected, rel=1e-12)


def test_the_copy_takes_other_rows(built, copied):
    """The log densities of two halves of the rows add up to that of all, with the prior twice."""
    import pymc as pm

    model, rows = copied
    values = {
        "Intercept_centered": 0.4,
        "x": np.array([0.3, -0.2]),
        "1|county_sigma_log__": np.log(0.7),
        "1|county": np.array([0.1, 0.2, -0.5]),
    }
    whole = log_density(model, values)
    parts = []
    for part in (slice(0, 15), slice(15, None), slice(0, 0)):
        with model:
            pm.set_data({name: array[part] for name, array in rows.items()})
        parts.append(log_density(model, values))
    with model:
        pm.set_data(rows)
    assert parts[0] + parts[1] - parts[2] == pytest.approx(whole, rel=1e-12)


def test_values_by_row_are_left_out_and_the_intercept_is_that_of_the_formula(copied):
    model = copied[0]
    assert [value.name for value in model.deterministics] == ["Intercept"]
    shift = model["Intercept"].eval(
        {model["Intercept_centered"]: 2.0, model["x"]: np.array([1.0, 3.0])}
    )
    assert shift == pytest.approx(2.0 - (0.5 * 1.0 - 1.0 * 3.0))


def test_dims_keep_their_coordinates(copied):
    model = copied[0]
    assert model.named_vars_to_dims["1|county"] == ("county__factor_dim",)
    assert list(model.coords["county__factor_dim"]) == list("pqr")
    assert "__obs__" not in model.coords
