import numpy as np
import pytest
from scipy import stats

from vcmc.results.quantities import (
    densities,
    density_range,
    outlier_threshold,
    quantities,
    shard_distances,
)
from vcmc.results.tree import make_tree


@pytest.fixture(scope="module")
def tree():
    generator = np.random.default_rng(0)
    posterior = {
        "beta": generator.normal(size=(2, 50, 3)),
        "odds": np.exp(generator.normal(size=(2, 50))),
    }
    subposterior = {"beta": generator.normal(size=(4, 2, 50, 3))}
    return make_tree({"posterior": posterior, "subposterior": subposterior}, {"num_shards": 4})


def test_numbers_have_labels_and_draws(tree):
    found = list(quantities(tree))
    assert [each.label for each in found] == ["beta[0]", "beta[1]", "beta[2]", "odds"]
    np.testing.assert_array_equal(
        found[1].combined, tree["posterior"]["beta"].to_numpy()[..., 1].reshape(-1)
    )
    np.testing.assert_array_equal(
        found[2].shards, tree["subposterior"]["beta"].to_numpy()[..., 2].reshape(4, -1)
    )
    assert found[3].shards is None  # a derived quantity, which shards have no draws of


def test_local_parameters_are_left_out_unless_they_are_named():
    groups = {
        "posterior": {"mu": np.zeros((1, 9)), "alpha": np.zeros((1, 9, 4))},
        "dims": {"alpha": np.array(["county"])},
        "coords": {"county": np.arange(4)},
    }
    tree = make_tree(groups, {"groups": "county"})
    assert [each.label for each in quantities(tree)] == ["mu"]
    assert [each.label for each in quantities(tree, ["alpha[2]"])] == ["alpha[2]"]


def test_elements_are_named_by_their_coordinates_if_these_are_unique():
    groups = {
        "posterior": {"beta": np.zeros((1, 9, 2, 2))},
        "dims": {"beta": np.array(["region", "kind"])},
        "coords": {"region": np.array(["south", "north"]), "kind": np.array(["x", "x"])},
    }
    tree = make_tree(groups, {})
    labels = ["beta[south,0]", "beta[south,1]", "beta[north,0]", "beta[north,1]"]
    assert [each.label for each in quantities(tree)] == labels
    for name in ("beta[north,0]", "beta[1,0]"):
        assert [each.indices for each in quantities(tree, [name])] == [(1, 0)]


def test_some_are_chosen_by_parameter_or_label(tree):
    assert [each.label for each in quantities(tree, ["odds", "beta[1]"])] == ["beta[1]", "odds"]
    assert [each.label for each in quantities(tree, "beta")] == ["beta[0]", "beta[1]", "beta[2]"]
    with pytest.raises(ValueError, match=r"parameters of the result.*got 'gamma'"):
        list(quantities(tree, ["gamma"]))


def test_a_tree_without_draws_is_refused():
    with pytest.raises(
        TypeError, match="with a group 'posterior' or 'subposterior'; got the groups"
    ):
        list(quantities(make_tree({"weights": {"a": np.ones(2)}}, {})))


def test_distances_are_standard_normal_where_shards_agree():
    generator = np.random.default_rng(1)
    sds = np.array([1.0, 2.0, 0.5, 1.5])
    found = []
    for _ in range(500):  # shards whose means differ as much as their spreads say
        draws = generator.normal(sds * generator.normal(size=4), sds, size=(400, 4)).T
        found.append(shard_distances(draws))
    assert stats.kstest(np.array(found)[:, 2], "norm").pvalue > 0.001
    away = shard_distances(np.stack([*draws[:3], draws[3] + 100]))
    assert (np.abs(away) > outlier_threshold(4)).tolist() == [False, False, False, True]


def test_distances_of_shards_with_powered_likelihoods_are_as_others():
    draws = np.random.default_rng(2).normal(size=(9, 300)) + np.arange(9)[:, None]
    centres = draws.mean(axis=1, keepdims=True)
    powered = centres + (draws - centres) / 3
    np.testing.assert_allclose(shard_distances(powered, widening=9.0), shard_distances(draws))


def test_densities_are_scipys_and_add_up_to_one():
    generator = np.random.default_rng(3)
    draws = np.stack([generator.normal(size=2000), 2 * generator.normal(size=2000) + 1])
    grid = np.linspace(-8, 9, 200)
    found = densities(draws, grid)
    for curve, each in zip(found, draws, strict=True):
        spread = min(each.std(), np.subtract(*np.quantile(each, [0.75, 0.25])) / 1.34)
        bandwidth = 0.9 * spread * len(each) ** -0.2
        expected = stats.gaussian_kde(each, bandwidth / each.std(ddof=1))(grid)
        np.testing.assert_allclose(curve, expected, atol=0.01 * expected.max())
        assert np.trapezoid(curve, grid) == pytest.approx(1, abs=0.01)
    padded = np.concatenate([draws, np.full((2, 500), np.nan)], axis=1)
    np.testing.assert_allclose(densities(padded, grid), found)


def test_what_does_not_vary_has_no_density():
    assert (densities(np.ones((1, 50)), np.linspace(0, 2, 20)) == 0).all()


def test_combined_draws_stay_visible_beside_wide_shards(tree):
    (quantity,) = quantities(tree, ["beta[0]"])
    wide = quantity._replace(shards=1000 * quantity.shards)
    low, high = density_range(wide)
    assert 20 < (high - low) / quantity.combined.std() < 25
    flat = quantity._replace(combined=np.ones(10), shards=None)
    assert density_range(flat) == (0.5, 1.5)
