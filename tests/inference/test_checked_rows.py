"""Columns of the rows of a posterior check."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.inference.checked_rows import CheckOptions, checked_rows, is_in_memory, with_group_codes
from vcmc.inference.replication import GROUP_CODES

MODEL = vcmc.Model(
    space={"mu": vcmc.Real()},
    log_prior=lambda params: -0.5 * params["mu"] ** 2,
    log_likelihood=lambda params, rows: -0.5 * (rows["y"] - params["mu"]) ** 2,
    simulate=lambda _, params, rows: {"y": rows["x"] + params["mu"], "z": rows["x"][:, None]},
)
ROWS = {"x": np.arange(4.0), "y": np.ones(4), "region": np.array(["b", "a", "b", "b"])}


def checked(rows=ROWS, name="y", observed=None, by=None):
    return checked_rows(MODEL, rows, 9, np.zeros(1), CheckOptions(name, observed, by, (), False))


def test_labels_of_any_kind_get_numbers():
    rows, labels = with_group_codes(ROWS, "region")
    assert sorted(rows) == [GROUP_CODES, "x", "y"]
    assert labels[rows[GROUP_CODES]].tolist() == ROWS["region"].tolist()
    assert "x" in with_group_codes(ROWS, "x")[0]  # models may use numbers
    result = checked(by="region")
    assert result.labels.tolist() == ["a", "b"]
    assert result.response.by == GROUP_CODES
    assert result.cache.num_shards == 4  # at most one per row


def test_wrong_columns_are_refused():
    numbers = {"x": ROWS["x"], "y": ROWS["y"]}
    with pytest.raises(ValueError, match=r"simulates, \['y', 'z'\]; got None"):
        checked(numbers, None)
    with pytest.raises(ValueError, match=r"values of 'z', one of \['w', 'x', 'y'\]; got None"):
        checked({**numbers, "w": ROWS["y"]}, "z")  # "w" and "y" are not used
    with pytest.raises(ValueError, match=r"shape of rows\['y'\], \(1,\); got \(1, 1\)"):
        checked(numbers, "z", observed="y")
    with pytest.raises(ValueError, match=r"columns \['w', 'y'\] \(KeyError: 'x'\)"):
        checked({"w": ROWS["x"], "y": ROWS["y"]})
    with pytest.raises(ValueError, match=r"one label per row; rows\['v'\] has the shape \(4, 2\)"):
        checked({**numbers, "v": np.ones((4, 2))}, by="v")


def test_the_only_column_that_is_not_simulated_from_is_the_response():
    rows = {"x": ROWS["x"], "count": np.ones((4, 1))}
    assert checked(rows, "z").response.observed == "count"
    grouped = rows | {"region": np.array([1.0, 0.0, 1.0, 1.0])}
    assert checked(grouped, "z", by="region").response.observed == "count"


def test_the_only_column_of_a_model_without_predictors_is_the_response():
    def coin(heads=None):
        share = numpyro.sample("share", dist.Beta(1, 1))
        numpyro.sample("toss", dist.Bernoulli(share), obs=heads)

    rows = {"heads": np.array([0, 1, 1, 0, 1])}
    model = vcmc.from_numpyro(coin, rows)
    for by in (None, "day"):
        more = rows if by is None else {**rows, by: np.array(["a", "b", "a", "b", "a"])}
        options = CheckOptions(None, None, by, (), False)
        response = checked_rows(model, more, 1, np.zeros(1), options).response
        assert (response.name, response.observed) == ("toss", "heads")


def test_rows_in_memory_are_told_from_others(tmp_path):
    assert is_in_memory(ROWS)
    assert not is_in_memory(vcmc.split({"y": ROWS["y"]}, 2))
    assert not is_in_memory(lambda shard: ROWS)
    assert not is_in_memory(tmp_path / "rows.parquet")
