"""Numbers of categories beyond a model's entries: a warning, in fits and in predictions."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.inference.index_check import IndexCheck
from vcmc.results.tree import make_tree

VALUES = jnp.array([1.0, 2.0, 3.0])


def by_region(region, count, y=None):
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(mean[region] + count, 1), obs=y)


def rows_of(region):
    region = np.asarray(region)
    return {"region": region, "count": 10 * np.arange(len(region)), "y": np.zeros(len(region))}


@pytest.fixture(scope="module")
def model():
    return vcmc.from_numpyro(by_region, rows_of([0, 1, 2, 1]))


def test_the_column_is_named_once():
    check = IndexCheck(lambda rows: VALUES[rows["region"]] + rows["count"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(rows_of([0, 1, 2]))
        check(rows_of([2]))
    with pytest.warns(UserWarning, match=r"numbers in rows\['region'\] \(from 0 to 3\), and JAX"):
        check(rows_of([0, 3, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(rows_of([0, 4]))


def test_functions_that_jax_cannot_check_are_left_alone():
    def fails(rows):
        raise TypeError("not here")

    IndexCheck(fails)(rows_of([7]))


def test_predictions_of_numbers_that_the_model_does_not_have_warn(model):
    tree = make_tree({"posterior": {"mean": np.zeros((1, 50, 3))}}, {"num_shards": 1})
    new = {"region": np.array([0, 7]), "count": np.array([5, 90])}
    with pytest.warns(UserWarning, match="index 7 is out of bounds for axis 0 with size 3"):
        vcmc.predict(tree, model, new, progress=False)


def test_numbers_that_start_at_one_warn_where_the_model_is_fitted(model):
    tree = make_tree({"posterior": {"mean": np.zeros((1, 50, 3))}}, {"num_shards": 2})
    rows = rows_of(np.arange(60) % 3 + 1) | {"count": np.arange(60) % 2}
    with pytest.warns(UserWarning, match=r"rows\['region'\] \(from 1 to 3\).*start at zero"):
        vcmc.loo(tree, model, rows, num_draws=50)
