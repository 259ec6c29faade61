"""Results have the names of plates and of columns."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import pytest

import vcmc
from vcmc.data.params import to_params
from vcmc.results.tree import build_tree

generator = np.random.default_rng(0)
ROWS = {"x": generator.normal(size=(60, 2)), "y": generator.normal(size=60)}


def hierarchical(x, y):
    with numpyro.plate("county", 3):
        effects = numpyro.sample("effects", dist.Normal(0, 1).expand([1]).to_event(1))
        numpyro.deterministic("doubled", 2 * effects[:, 0])
    with numpyro.plate("draw", 2), numpyro.plate("shard", 2):
        others = numpyro.sample("others", dist.Normal(0, 1))
    with numpyro.plate("a", 3, dim=-2), numpyro.plate("b", 2, dim=-1):
        numpyro.sample("table", dist.Normal(0, 1))
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta + effects.sum() + others.sum(), 1.0), obs=y)


def test_results_have_the_names_of_plates_and_of_columns():
    frame = pandas.DataFrame(ROWS["x"], columns=["age", "income"])
    model = vcmc.from_numpyro(hierarchical, {"x": frame, "y": ROWS["y"]})
    tree = build_tree(
        {
            "posterior": to_params(model.space, jnp.zeros((1, 4, model.space.dim)), model.derived),
            **model.labels.groups,
        },
        {},
    )
    dims = {name: array.dims[2:] for name, array in tree["posterior"].data_vars.items()}
    assert dims == {
        "effects": ("county", "effects_dim_1"),
        "others": ("others_dim_0", "others_dim_1"),  # which mean something else in a result
        "table": ("a", "b"),
        "beta": ("x_column",),
        "doubled": ("county",),
    }
    assert tree["posterior"]["x_column"].values.tolist() == ["age", "income"]
    assert tree["posterior"]["county"].values.tolist() == [0, 1, 2]


def test_dims_and_coords_can_be_given():
    model = vcmc.from_numpyro(
        hierarchical,
        ROWS,
        dims={"beta": ["feature"]},
        coords={"feature": ["age", "income"], "county": ["A", "B", "C"]},
    )
    assert model.labels.dims["beta"] == ("feature",)
    assert model.labels.dims["effects"] == ("county", None)
    assert model.labels.coords["county"].tolist() == ["A", "B", "C"]
    with pytest.raises(ValueError, match=r"coords\['county'\] must have one label for each of the"):
        vcmc.from_numpyro(hierarchical, ROWS, coords={"county": ["A", "B"]})
    with pytest.raises(ValueError, match=r"dims\['beta'\] must name the 1 axes"):
        vcmc.from_numpyro(hierarchical, ROWS, dims={"beta": ["a", "b"]})
    with pytest.raises(ValueError, match=r"dims names \['gamma'\], but the sites are"):
        vcmc.from_numpyro(hierarchical, ROWS, dims={"gamma": ["a"]})


def test_a_model_of_a_fixed_number_of_columns_has_no_names_of_columns():
    def fixed(x, y):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ beta, 1.0), obs=y)

    frame = pandas.DataFrame(ROWS["x"], columns=["age", "income"])
    assert vcmc.from_numpyro(fixed, {"x": frame, "y": ROWS["y"]}).labels.dims == {}
