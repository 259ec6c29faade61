"""Plots of a result: curves, intervals, bars and labels."""

import numpy as np
import pytest

import vcmc
from vcmc.results.comparison import Comparison, Entry
from vcmc.results.posterior_checks import Line, PosteriorCheck
from vcmc.results.tree import make_tree

NUM_SHARDS = 5


@pytest.fixture(scope="module")
def tree():
    generator = np.random.default_rng(0)
    shards = generator.normal(size=(NUM_SHARDS, 1, 200, 2))
    shards[3, ..., 1] += 30  # far from the others
    errors = {"beta": np.array([0.02, -0.3]), "scale": np.array(0.1)}
    standard_errors = {"beta": np.full(2, 0.3), "scale": np.array(0.1)}
    groups = {
        "posterior": {
            "beta": shards.mean(axis=0),
            "scale": np.exp(generator.normal(size=(1, 200))),
        },
        "subposterior": {
            "beta": shards,
            "scale": np.exp(generator.normal(size=(NUM_SHARDS, 1, 200))),
        },
        "weights": {
            "beta": np.full((NUM_SHARDS, 2), 0.2),
            "scale": np.linspace(0.1, 0.3, NUM_SHARDS),
        },
        "optimization": {
            "objective": np.array([-5.0, -1.0, 0.0]),
            "objective_error": np.full(3, 0.2),
        },
        "sample_seconds": {"begin": np.arange(5.0)[:, None], "end": np.arange(5.0)[:, None] + 2},
        **dict.fromkeys(("mean_error", "sd_error"), errors),
        **dict.fromkeys(("mean_error_se", "sd_error_se"), standard_errors),
    }
    return make_tree(groups, {"num_shards": NUM_SHARDS, "prior": "subposterior"})


def shown(figure):
    return [axes for axes in figure.axes if axes.get_visible()]


@pytest.mark.parametrize("name", ["density", "forest", "weights", "objective", "errors", "timings"])
def test_figures_can_be_saved_and_shown_in_notebooks(name, tree, tmp_path):
    figure = getattr(vcmc, f"plot_{name}")(tree)
    figure.savefig(tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 5000
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_density_plot_has_a_curve_per_shard_and_a_combined_one(tree):
    panels = shown(vcmc.plot_density(tree))
    assert [axes.get_title() for axes in panels] == ["beta[0]", "beta[1]", "scale"]
    assert len(panels[0].lines) == NUM_SHARDS + 1
    low, high = panels[0].get_xlim()
    centre = tree["posterior"]["beta"].to_numpy()[..., 0].mean()
    assert low < centre < high


def test_a_forest_shows_which_shard_is_far(tree):
    _, far, _ = shown(vcmc.plot_forest(tree))
    red = {line.get_ydata()[0] for line in far.lines if line.get_color() == "tab:red"}
    assert red == {3}


def test_names_choose(tree):
    assert [axes.get_title() for axes in shown(vcmc.plot_forest(tree, ["beta[1]"]))] == ["beta[1]"]
    with pytest.raises(ValueError, match="names must be among"):
        vcmc.plot_weights(tree, ["gamma"])


def test_weights_are_relative_to_uniform_ones(tree):
    axes = vcmc.plot_weights(tree, ["scale"]).axes[0]
    np.testing.assert_allclose(axes.images[0].get_array()[0], [0.5, 0.75, 1, 1.25, 1.5])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["scale"]


def test_the_objective_is_relative_to_its_last_value(tree):
    (line,) = vcmc.plot_objective(tree).axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), [-5, -1, 0])


def test_errors_have_bars_of_two_standard_errors(tree):
    means, sds = vcmc.plot_errors(tree, ["beta"]).axes
    bars = means.containers[0]
    np.testing.assert_allclose(bars[0].get_xdata(), [0.02, -0.3])
    np.testing.assert_allclose(np.array(bars[2][0].get_segments())[1, :, 0], [-0.9, 0.3])
    np.testing.assert_allclose(sds.containers[0][0].get_xdata(), [2, -30])


def test_timings_are_bars_from_begin_to_end(tree):
    bars = vcmc.plot_timings(tree).axes[0].patches
    assert [(bar.get_x(), bar.get_width()) for bar in bars] == [(k, 2) for k in range(NUM_SHARDS)]


def test_only_sixteen_of_many_elements_are_drawn():
    many = make_tree({"posterior": {"beta": np.random.default_rng(0).normal(size=(1, 50, 40))}}, {})
    figure = vcmc.plot_density(many)
    assert len(shown(figure)) == 16
    assert "16 of 40" in figure.get_suptitle()


def test_missing_groups_are_reported(tree):
    bare = make_tree({"posterior": {"beta": np.zeros((1, 50))}}, {})
    for plot, group in (
        (vcmc.plot_weights, "weights"),
        (vcmc.plot_objective, "optimization"),
        (vcmc.plot_errors, "mean_error"),
        (vcmc.plot_timings, "sample_seconds"),
    ):
        with pytest.raises(ValueError, match=f"needs the group '{group}'"):
            plot(bare)


def test_a_comparison_is_drawn():
    entry = Entry("Consensus", "good", None, 0.1, 0.02, 1.5, 10.0, "")
    figure = vcmc.plot_comparison(Comparison([entry]))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["Consensus"]
    with pytest.raises(TypeError, match=r"must be a Comparison"):
        vcmc.plot_comparison([entry])


def test_a_posterior_check_is_plotted():
    pytest.importorskip("matplotlib")
    check = PosteriorCheck("y", (Line("mean"),), np.ones(1), np.arange(10.0)[None])
    (axes,) = vcmc.plot_posterior_check(check).axes
    assert axes.get_title() == "mean"
    with pytest.raises(TypeError, match=r"check must be a PosteriorCheck.*got dict"):
        vcmc.plot_posterior_check({})
