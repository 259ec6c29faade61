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


@pytest.mark.parametrize(
    "convert", [lambda codes: codes.astype(float), lambda codes: np.stack([codes, codes], axis=1)]
)
def test_numbers_may_be_floats_or_several_in_a_row(convert):
    def mean(rows):
        return VALUES[rows["region"].astype(int)].reshape(len(rows["region"]), -1).sum(axis=1)

    check = IndexCheck(mean)
    others = {"x": np.linspace(0, 1, 200)}  # no whole numbers
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check({**others, "region": convert(np.arange(200) % 3)})
    codes = np.arange(200) % 3
    codes[150] = 3
    with pytest.warns(UserWarning, match=r"numbers in rows\['region'\] \(from"):
        check({**others, "region": convert(codes)})


def optional(x, region=None, y=None):
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(x if region is None else mean[region] + x, 1), obs=y)


def test_one_row_of_any_shard_is_found_in_an_optional_column():
    """Not only in the first two shards, which other checks look at."""
    tree = make_tree({"posterior": {"mean": np.zeros((1, 50, 3))}}, {"num_shards": 8})
    rows = {"x": np.zeros(64), "region": np.arange(64) % 3, "y": np.zeros(64)}
    converted = vcmc.from_numpyro(optional, rows)
    partition = vcmc.split(rows, 8)
    for members in partition.members[::3]:
        region = rows["region"].copy()
        region[members[0]] = 3
        wrong = {**rows, "region": region}
        with pytest.warns(UserWarning, match=r"rows\['region'\] \(from 0 to 3\)"):
            vcmc.waic(tree, converted, wrong)
        with pytest.warns(UserWarning, match=r"rows\['region'\] \(from 0 to 3\)"):
            vcmc.posterior_check(tree, converted, wrong, num_draws=2, progress=False)


def test_rows_of_models_with_groups_are_checked():
    def model(region, g, num_groups, y=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1).expand([3]).to_event(1))
        with numpyro.plate("groups", num_groups):
            effect = numpyro.sample("effect", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(effect[g] + mean[region], 1), obs=y)

    rows = {"region": np.arange(60) % 3, "g": np.arange(60) % 12, "y": np.zeros(60)}
    converted = vcmc.from_numpyro(model, rows, groups="g", num_groups="num_groups")
    tree = make_tree({"posterior": {"mean": np.zeros((1, 50, 3))}}, {"num_shards": 6})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        vcmc.waic(tree, converted, rows)
    for group in (1, 4, 7, 10):
        region = np.where(rows["g"] == group, 4, rows["region"])
        with pytest.warns(UserWarning, match=r"rows\['region'\] \(from 0 to 4\)"):
            vcmc.waic(tree, converted, {**rows, "region": region})
