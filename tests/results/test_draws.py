"""Combining draws that were made elsewhere."""

import numpy as np
import pytest
import xarray
from numpyro.distributions import constraints

import vcmc
from vcmc import combiners
from vcmc.space import Dependent

generator = np.random.default_rng(0)
BETA = generator.normal(size=(4, 500, 2)) + generator.normal(size=(4, 1, 2))
SIGMA = np.exp(0.3 * generator.normal(size=(4, 500)))


def test_named_arrays_are_combined():
    draws, space = {"beta": BETA, "sigma": SIGMA}, {"sigma": vcmc.Real()}
    tree = vcmc.combine(draws, combiner=vcmc.combiners.Average(), space=space)
    sizes = tree["posterior"].sizes
    assert sizes["chain"] * sizes["draw"] == 5000  # every draw of a shard is used ten times
    mean = tree["posterior"]["beta"].mean(("chain", "draw"))
    np.testing.assert_allclose(mean, BETA.mean(axis=(0, 1)))
    np.testing.assert_allclose(tree["posterior"]["sigma"].mean(), SIGMA.mean())
    assert dict(tree["subposterior"].sizes) == {
        "shard": 4,
        "chain": 1,
        "draw": 500,
        "beta_dim_0": 2,
    }


def test_spaces_are_combined_in_real_coordinates():
    tree = vcmc.combine(
        {"sigma": SIGMA}, combiner=vcmc.combiners.Average(), space={"sigma": vcmc.Positive()}
    )
    logs = np.log(tree["posterior"]["sigma"])
    np.testing.assert_allclose(logs.mean(), np.log(SIGMA).mean())
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
    dataset = xarray.Dataset(
        {"beta": (("shard", "chain", "draw", "d"), BETA.reshape(4, 2, 250, 2))}
    )
    tree = vcmc.combine(dataset, combiner=vcmc.combiners.Average(), num_draws=1000)
    assert tree["subposterior"].sizes["chain"] == 2
    assert dict(tree["posterior"].sizes) == {"chain": 2, "draw": 500, "d": 2}
    found = tree["posterior"]["beta"].mean(("chain", "draw"))
    np.testing.assert_allclose(found, BETA.mean(axis=(0, 1)))


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
            {"beta": [BETA[0], BETA[1][:400]], "sigma": SIGMA},
            r"the same number of shards; got .*'beta': 2, 'sigma': 4",
        ),
        ([{"beta": BETA[0]}, {"beta": BETA[1, :, 0]}], r"shard 0, .*shard 1 has {'beta': \(\)}"),
        (
            [{"beta": BETA[0]}, {"beta": BETA[1, :1]}],
            "at least 2 draws in every shard; got 1 of shard 1",
        ),
        ([], "at least one shard"),
        (
            {"beta": BETA, "sigma": SIGMA[:, :100]},
            r"share their axes .* beta: \(4, 500\), sigma: \(4, 100\)",
        ),
        ({"beta": BETA[0, :, 0]}, r"with axes \(shard, draw, …\); got shape \(500,\)"),
        ({"beta": BETA.astype(str)}, "numeric array"),
        ({"beta": BETA[:, :1]}, "at least 2 draws"),
        ({}, "at least one parameter"),
        ({"beta": stuck()}, "shard 2: one of its chains never moved"),
        ({"beta": not_finite()}, "shard 3: its draws are not finite"),
        (
            xarray.Dataset({"beta": (("worker", "draw"), SIGMA)}),
            "must have the dimensions shard and draw",
        ),
        (
            xarray.DataTree.from_dict({"posterior": xarray.Dataset()}),
            "must have the group 'subposterior'",
        ),
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
        (
            {"sigma": vcmc.Positive(3)},
            r"have values of shape \(\), but space\['sigma'\] is Positive",
        ),
        ({"sigma": vcmc.Interval(0, 1)}, "its draws are not finite"),
    ],
)
def test_spaces_must_fit_the_draws(space, message):
    with pytest.raises(ValueError, match=message):
        vcmc.combine({"sigma": SIGMA}, space=space)


COUNTS = [500, 400, 130, 500]
UNEQUAL = [
    {"beta": beta[:count], "sigma": sigma[:count]}
    for beta, sigma, count in zip(BETA, SIGMA, COUNTS, strict=True)
]
SPACES = {"sigma": vcmc.Positive()}


def test_unequal_counts_are_evened_out_and_no_draw_is_lost():
    average = vcmc.combiners.Average()
    tree = vcmc.combine(UNEQUAL, combiner=average, space=SPACES, num_draws=500)
    means = np.mean([each["beta"].mean(axis=0) for each in UNEQUAL], axis=0)
    found = np.concatenate(tree["posterior"]["beta"].to_numpy())
    assert found.shape == (500, 2)
    # draws are repeated three or four times, so that means are those of all draws but for that
    assert (np.abs(found.mean(axis=0) - means) < 0.02).all()
    shard = tree["subposterior"]["sigma"].to_numpy()[2, 0]
    np.testing.assert_allclose(shard[:130], UNEQUAL[2]["sigma"])
    assert np.isnan(shard[130:]).all()
    assert list(tree.attrs["draw_counts"]) == COUNTS


def test_all_forms_of_unequal_draws_give_the_same():
    expected = vcmc.combine(UNEQUAL, space=SPACES)
    by_name = {name: [each[name] for each in UNEQUAL] for name in ("beta", "sigma")}
    lazy = vcmc.LazyDraws(UNEQUAL.__getitem__, len(UNEQUAL))
    for draws in (by_name, lazy, expected):
        found = vcmc.combine(draws, space=SPACES)
        for name in by_name:
            np.testing.assert_allclose(
                found["posterior"][name], expected["posterior"][name], rtol=1e-12
            )
            np.testing.assert_allclose(
                found["subposterior_ess"][name], expected["subposterior_ess"][name]
            )
    assert "subposterior" not in vcmc.combine(lazy, space=SPACES).children


def test_a_list_of_equal_shards_is_an_array():
    shards = [{"beta": beta} for beta in BETA]
    expected = vcmc.combine({"beta": BETA})
    for draws in (shards, vcmc.LazyDraws(shards.__getitem__, 4)):
        found = vcmc.combine(draws)
        np.testing.assert_allclose(
            found["posterior"]["beta"], expected["posterior"]["beta"], rtol=1e-12
        )


@pytest.mark.parametrize(
    "combiner", [combiners.Average(), combiners.Consensus(), combiners.Parametric()]
)
def test_lazy_draws_are_not_held(combiner, lazy):
    loaded = lazy(np.random.default_rng(0).normal(size=(30, 1000, 3)))
    draws = vcmc.LazyDraws(lambda shard: {"beta": loaded[shard]}, 30)
    tree = vcmc.combine(draws, combiner=combiner, num_draws=1000)
    assert tree["posterior"]["beta"].shape == (4, 250, 3)
    assert loaded.most <= 3


def test_labels_of_lazy_draws_are_made_common():
    centres = np.array([[-5.0], [0.0], [5.0]])
    orders = [[0, 1, 2], [2, 0, 1], [1, 0, 2], [2, 1, 0]]
    shards = [
        {"centres": centres[order] + 0.1 * np.random.default_rng(k).normal(size=(300 - k, 3, 1))}
        for k, order in enumerate(orders)
    ]
    space = {"centres": vcmc.Exchangeable(3, vcmc.Real(1))}
    for combiner in (combiners.Consensus(), combiners.Average(), combiners.Parametric()):
        tree = vcmc.combine(vcmc.LazyDraws(shards.__getitem__, 4), combiner=combiner, space=space)
        found = np.concatenate(tree["posterior"]["centres"].to_numpy()).mean(axis=0)
        np.testing.assert_allclose(found, centres, atol=0.02)


@pytest.mark.parametrize(
    ("load", "num_shards", "error", "message"),
    [
        ({"beta": BETA}, 4, TypeError, "load must be a function"),
        (
            UNEQUAL.__getitem__,
            0,
            ValueError,
            "num_shards must be an integer of at least 1.*; got 0",
        ),
    ],
)
def test_bad_lazy_draws_are_refused(load, num_shards, error, message):
    with pytest.raises(error, match=message):
        vcmc.LazyDraws(load, num_shards)


def test_a_broken_lazy_shard_is_named():
    broken = [*UNEQUAL[:3], UNEQUAL[0]]
    with pytest.raises(ValueError, match="shard 3: its draws are the same as those of shard 0"):
        vcmc.combine(vcmc.LazyDraws(broken.__getitem__, 4), space=SPACES)


def test_a_generator_is_refused():
    with pytest.raises(TypeError, match=r"LazyDraws\(load, num_shards\); got generator"):
        vcmc.combine(each for each in UNEQUAL)


def test_shards_can_be_chosen_from_a_tree_of_unequal_ones():
    tree = vcmc.combine(UNEQUAL, space=SPACES)
    chosen = vcmc.combine(tree.isel(shard=[2, 0]), combiner=combiners.Average(), space=SPACES)
    expected = vcmc.combine([UNEQUAL[2], UNEQUAL[0]], combiner=combiners.Average(), space=SPACES)
    np.testing.assert_allclose(
        chosen["posterior"]["beta"], expected["posterior"]["beta"], rtol=1e-12
    )


def test_a_tree_remembers_its_space():
    tree = vcmc.combine(
        {"sigma": SIGMA, "tau": SIGMA[:, ::-1]}, space={**SPACES, "tau": vcmc.Positive()}
    )
    again = vcmc.combine(tree)
    for name in ("sigma", "tau"):
        np.testing.assert_allclose(
            again["posterior"][name], tree["posterior"][name], rtol=1e-12
        )  # draws are stored as values: the logarithm rounds
    # space= on top of what the tree remembers: real coordinates give other averages
    other = vcmc.combine(tree, space={"tau": vcmc.Real()})
    gap = np.abs(other["posterior"]["tau"] / tree["posterior"]["tau"] - 1)
    assert gap.max() > 1e-4


def test_a_space_that_cannot_be_described_must_be_passed():
    def find(earlier):
        return constraints.interval(0.0, earlier["sigma"])

    share = Dependent(find, constraints.interval(0.0, 1.0))
    draws = {"sigma": SIGMA, "part": SIGMA * np.random.default_rng(0).uniform(size=SIGMA.shape)}
    space = {"sigma": vcmc.Positive(), "part": share}
    tree = vcmc.combine(draws, space=space)
    with pytest.raises(ValueError, match=r"'part'.*pass model=\.\.\. or space=model\.space"):
        vcmc.combine(tree)
    again = vcmc.combine(tree, space={"part": share})
    np.testing.assert_allclose(again["posterior"]["part"], tree["posterior"]["part"], rtol=1e-12)


@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # R-hat of so few draws
def test_sound_shards_of_few_draws_do_not_disagree():
    draws = np.random.default_rng(0).normal(size=(6, 90, 40))
    shards = [{"beta": each[: 90 - k]} for k, each in enumerate(draws)]
    tree = vcmc.combine({"beta": draws[:, :80]}, combiner=combiners.Average(), chains=False)
    unequal = vcmc.combine(shards, combiner=combiners.Average(), chains=False)
    for each in (tree, unequal):
        assert not any("disagree" in note for note in np.atleast_1d(each.attrs["warnings"]))


def test_draws_without_an_axis_of_draws_are_refused():
    with pytest.raises(ValueError, match=r"with axes \(shard, draw, …\)"):
        vcmc.combine({"mu": [0.1, 0.2]})


SHARES = np.random.default_rng(2).dirichlet(np.ones(3), size=(4, 500))


@pytest.mark.parametrize(
    ("name", "draws", "space", "option"),
    [
        ("sigma", SIGMA, "vcmc.Positive()", "--space sigma=positive"),
        ("rates", np.exp(BETA), "vcmc.Positive(2)", "--space rates=positive"),
        ("p", 1 / (1 + SIGMA), "vcmc.Interval(0, 1)", "--space p=interval"),
        ("shares", SHARES, "vcmc.Simplex(3)", "--space shares=simplex"),
    ],
)
def test_constrained_draws_without_a_space_are_pointed_out(name, draws, space, option):
    forms = [
        {name: draws},
        [{name: shard[: 500 - index]} for index, shard in enumerate(draws)],
        xarray.Dataset({name: (("shard", "draw", "d")[: draws.ndim], draws)}),
    ]
    for form in forms:
        with pytest.warns(vcmc.DoubtfulWarning, match=f"[Aa]ll draws of {name} are") as warned:
            tree = vcmc.combine(form)
        message = str(warned[0].message)
        assert f"space={{{name!r}: {space}}}" in message
        assert option in message
        assert any(f"draws of {name}" in note for note in np.atleast_1d(tree.attrs["warnings"]))
    # told either way, nothing is said
    values = draws.shape[2:]
    vcmc.combine({name: draws}, space={name: vcmc.Real(*values)})
    vcmc.combine(vcmc.combine({name: draws}, space={name: eval(space)}))


def test_draws_of_both_signs_need_no_space():
    vcmc.combine({"beta": BETA, "counts": np.abs(BETA) - 0.01})
