"""Combining draws that were made elsewhere."""

import numpy as np
import pytest
import xarray

import vcmc

generator = np.random.default_rng(0)
BETA = generator.normal(size=(4, 500, 2)) + generator.normal(size=(4, 1, 2))
SIGMA = np.exp(0.3 * generator.normal(size=(4, 500)))


def test_named_arrays_are_combined():
    tree = vcmc.combine({"beta": BETA, "sigma": SIGMA}, combiner=vcmc.combiners.Average())
    np.testing.assert_allclose(tree["posterior"]["beta"][0], BETA.mean(axis=0))
    np.testing.assert_allclose(tree["posterior"]["sigma"][0], SIGMA.mean(axis=0))
    assert dict(tree["subposterior"].sizes) == {"shard": 4, "chain": 1, "draw": 500, "beta_dim_0": 2}


def test_spaces_are_combined_in_real_coordinates():
    tree = vcmc.combine({"sigma": SIGMA}, combiner=vcmc.combiners.Average(), space={"sigma": vcmc.Positive()})
    np.testing.assert_allclose(tree["posterior"]["sigma"][0], np.exp(np.log(SIGMA).mean(axis=0)))
    np.testing.assert_allclose(tree["subposterior"]["sigma"][:, 0], SIGMA)


def test_lists_datasets_and_trees_give_the_same():
    dataset = xarray.Dataset({"beta": (("shard", "draw", "feature"), BETA)})
    expected = vcmc.combine({"beta": BETA})
    for draws in (
        {"beta": list(BETA)},
        dataset,
        dataset.expand_dims("chain"),
        xarray.DataTree.from_dict({"subposterior": dataset}),
        expected,
    ):
        found = vcmc.combine(draws)
        np.testing.assert_array_equal(found["posterior"]["beta"], expected["posterior"]["beta"])


def test_chains_are_kept_apart():
    dataset = xarray.Dataset({"beta": (("shard", "chain", "draw", "d"), BETA.reshape(4, 2, 250, 2))})
    tree = vcmc.combine(dataset, combiner=vcmc.combiners.Average())
    np.testing.assert_allclose(tree["posterior"]["beta"], BETA.reshape(4, 2, 250, 2).mean(axis=0))


def stuck():
    draws = BETA.copy()
    draws[2] = draws[2, 0]
    return draws


def not_finite():
    draws = BETA.copy()
    draws[3, 7, 0] = np.nan
    return draws


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (
            {"beta": [BETA[0], BETA[1][:400]]},
            r"same number of draws; got \[500, 400\] draws of 'beta'.* to 400",
        ),
        ({"beta": BETA, "sigma": SIGMA[:, :100]}, r"share their axes .* beta: \(4, 500\), sigma: \(4, 100\)"),
        ({"beta": BETA[0, :, 0]}, r"with axes \(shard, draw, …\); got shape \(500,\)"),
        ({"beta": BETA.astype(str)}, "array of numbers"),
        ({"beta": BETA[:, :1]}, "at least 2 draws"),
        ({}, "at least one parameter"),
        ({"beta": stuck()}, "shard 2: a chain of it is stuck"),
        ({"beta": not_finite()}, "shard 3: its draws are not finite"),
        (xarray.Dataset({"beta": (("worker", "draw"), SIGMA)}), "must have the dimensions shard and draw"),
        (xarray.DataTree.from_dict({"posterior": xarray.Dataset()}), "must have the group 'subposterior'"),
    ],
)
def test_bad_draws_are_refused(draws, message):
    with pytest.raises(ValueError, match=message):
        vcmc.combine(draws)


def test_a_bare_array_is_refused():
    with pytest.raises(TypeError, match="mapping from names to arrays"):
        vcmc.combine(BETA)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"tau": vcmc.Positive()}, r"space names \['tau'\], but the draws are of \['sigma'\]"),
        ({"sigma": vcmc.Positive(3)}, r"hold values of shape \(\), but space\['sigma'\] is Positive"),
        ({"sigma": vcmc.Interval(0, 1)}, "its draws are not finite"),
    ],
)
def test_spaces_must_fit_the_draws(space, message):
    with pytest.raises(ValueError, match=message):
        vcmc.combine({"sigma": SIGMA}, space=space)
