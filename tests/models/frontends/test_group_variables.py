"""Which variables of a PyMC model with groups are local."""

import numpy as np
import pytest

from vcmc.models.frontends.graph import Graph
from vcmc.models.frontends.group_terms import checked_groups
from vcmc.models.frontends.group_variables import (
    deterministic_axes,
    group_spaces,
    group_variables,
)
from vcmc.space import Product

pytestmark = pytest.mark.slow  # importing PyMC takes seconds
ROWS = {"group": np.arange(24) % 6, "y": np.linspace(-1, 1, 24)}
TABLE = {"height": np.linspace(0, 1, 6)}


@pytest.fixture(scope="module")
def model(pm):
    with pm.Model(coords={"group": np.arange(6), "effect": ["a", "b"]}) as model:
        group, y = (pm.Data(name, array) for name, array in ROWS.items())
        height = pm.Data("height", TABLE["height"], dims="group")
        mu = pm.Normal("mu", 0, 1, dims="effect")
        alpha = pm.Normal("alpha", mu[:, None], 1, dims=("effect", "group"))
        pm.Deterministic("square", mu**2)
        pm.Deterministic("double", 2 * alpha)
        pm.Normal("tall", alpha[1], 1, observed=height, dims="group")
        mean = pm.Deterministic("mean", alpha[0, group])
        pm.Normal("obs", mean, 1, observed=y)
    return model


def test_variables_with_the_dim_of_groups_are_local(model):
    variables = group_variables(model, "group")
    assert variables.latents == ["mu"]
    assert variables.local_latents == {"alpha": 1}
    assert variables.observed == ["obs"]
    assert variables.group_observed == ["tall"]
    assert variables.parts.local_prior == ["alpha", "tall"]


def test_deterministic_values_are_local_by_their_shapes(model):
    variables = group_variables(model, "group")
    graph = Graph(model, [*ROWS, *TABLE], variables.local_latents)
    one = {name: array[:1] for name, array in (ROWS | TABLE).items()}
    spaces, local_spaces = group_spaces(graph, variables, one, {})
    assert {name: part.shape for name, part in spaces.items()} == {"mu": (2,)}
    assert {name: part.shape for name, part in local_spaces.items()} == {"alpha": (2,)}
    some = checked_groups(ROWS, "group", TABLE)
    with pytest.warns(UserWarning, match="'mean' depend on rows"):
        axes = deterministic_axes(graph, variables, (Product(spaces), Product(local_spaces)), some)
    assert axes == {"square": None, "double": 1}
