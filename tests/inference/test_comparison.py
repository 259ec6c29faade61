"""Combiners side by side."""

import numpy as np
import pytest

import vcmc
from vcmc import combiners


@pytest.fixture(scope="module")
def comparison(conjugate):
    mean, covariance = conjugate.posterior()
    exact = {"beta": np.random.default_rng(0).multivariate_normal(mean, covariance, size=20_000)}
    menu = [
        combiners.Average(),
        combiners.Consensus(),
        combiners.Consensus(diagonal=True),
        combiners.Swiss(),
        combiners.Variational(),
    ]
    return vcmc.compare(
        conjugate.model,
        conjugate.rows,
        num_shards=5,
        combiners=menu,
        reference=exact,
        progress=False,
    )


def test_every_combiner_has_its_errors(comparison):
    entries = {entry.name: entry for entry in comparison.entries}
    assert list(entries) == [
        "Average",
        "Consensus()",
        "Consensus(diagonal=True)",
        "Swiss",
        "Variational",
    ]
    assert list(comparison.trees) == list(entries)
    # the posterior is Gaussian: full consensus is exact up to the Monte Carlo error of a
    # thousand draws, averages are not: in closed form, the worst mean of plain ones is off by 0.20
    # sds, and of those weighted by variances by 0.10
    assert entries["Consensus()"].errors.mean_worst < 4 / np.sqrt(500)
    assert entries["Swiss"].errors.mean_worst < 4 / np.sqrt(500)
    assert entries["Variational"].errors.sd_worst < 4 / np.sqrt(2 * 500)
    assert entries["Average"].errors.mean_worst > 4 / np.sqrt(1000)
    assert entries["Consensus(diagonal=True)"].errors.mean_worst > 2 / np.sqrt(1000)
    for entry in comparison.entries:
        assert entry.seconds >= 0
        assert entry.memory >= 0
        assert abs(entry.estimated_mean_error - entry.errors.mean_worst) < 4 / np.sqrt(500)
    assert entries["Variational"].verdict == "good"
    assert "off by" in entries["Average"].remark


def test_it_is_a_table_and_a_picture(comparison, tmp_path):
    assert "Swiss" in str(comparison)
    lines = comparison.markdown().splitlines()
    assert len(lines) == 2 + len(comparison.entries)
    assert len({line.count("|") for line in lines}) == 1
    figure = comparison.plot(tmp_path / "comparison.png")
    assert (tmp_path / "comparison.png").stat().st_size > 1000
    assert [axes.get_title() for axes in figure.axes][:2] == [
        "error of means, sds",
        "error of sds, relative",
    ]


def test_draws_made_elsewhere_and_no_reference(tmp_path):
    draws = {"scale": np.exp(np.random.default_rng(0).normal(size=(4, 500, 2)))}
    found = vcmc.compare(
        draws,
        space={"scale": vcmc.Positive(2)},
        combiners={"plain": combiners.Average(), "learned": combiners.Variational()},
        progress=False,
    )
    plain, learned = found.entries
    assert plain.verdict == "unknown"
    assert plain.errors is None
    assert (found.trees["plain"]["posterior"]["scale"] > 0).all()
    assert learned.verdict == "failed"
    assert "needs the full-data log density" in learned.remark
    found.plot(tmp_path / "seconds.png")


@pytest.mark.slow
def test_a_serial_chain_can_be_the_reference(conjugate):
    partition = vcmc.split(conjugate.rows, 4)
    found = vcmc.compare(
        conjugate.model,
        partition,
        combiners=[combiners.Consensus()],
        reference="serial",
        progress=False,
    )
    assert found.entries[0].errors.mean_worst < 4 * np.sqrt(1 / 300 + 1 / 1000)


@pytest.mark.slow
def test_exchangeable_components_are_labelled_as_in_the_reference():
    generator = np.random.default_rng(0)
    centres = np.array([[-3.0], [0.0], [3.0]])
    draws = {"centres": centres + 0.2 * generator.normal(size=(4, 500, 3, 1))}
    exact = {"centres": centres[[2, 0, 1]] + 0.1 * generator.normal(size=(2000, 3, 1))}
    space = {"centres": vcmc.Exchangeable(3, vcmc.Real(1))}
    found = vcmc.compare(
        draws, space=space, combiners=[combiners.Consensus()], reference=exact, progress=False
    )
    assert found.entries[0].errors.mean_worst < 4 * np.sqrt(1 / 500 + 1 / 2000)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"combiners": []}, ValueError, "at least one combiner"),
        ({"combiners": [3]}, TypeError, r"combiners\['int'\] must be a Combiner instance"),
        ({"combiners": "Consensus"}, TypeError, "must be a list of combiners"),
        ({"combiners": [combiners.Average()] * 2}, ValueError, "must differ"),
        ({"rows": {"y": np.ones(5)}}, ValueError, "a model and its rows together"),
        ({"reference": "long"}, ValueError, 'must be "serial"'),
        ({"reference": "serial"}, ValueError, "needs a model and its rows"),
        ({"reference": 3}, TypeError, "a tree, or arrays"),
        (
            {"reference": {"gamma": np.ones(5)}},
            ValueError,
            r"the reference has \['gamma'\], the results have \['beta'\]",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    draws = {"beta": np.random.default_rng(0).normal(size=(3, 100, 2))}
    with pytest.raises(error, match=message):
        vcmc.compare(draws, **{"combiners": [combiners.Average()], "progress": False, **arguments})


def test_draws_made_elsewhere_are_of_one_kind():
    draws = {"beta": np.random.default_rng(0).normal(size=(3, 300, 2))}
    names = [entry.name for entry in vcmc.compare(draws, progress=False).entries]
    assert names == ["Consensus", "Parametric", "Semiparametric", "Variational"]
    (swiss,) = vcmc.compare(
        draws, combiners=[combiners.Swiss()], prior="subposterior", progress=False
    ).entries
    assert "needs shards with prior='powered'" in swiss.remark


def test_one_combiner_that_fails_does_not_stop_the_others(conjugate):
    bad = combiners.Variational(vcmc.aggregators.CombinatorialFamily())
    found = vcmc.compare(
        conjugate.model,
        conjugate.rows,
        num_shards=3,
        combiners=[bad, combiners.Consensus()],
        progress=False,
    )
    assert [entry.verdict for entry in found.entries] == ["failed", "good"]
