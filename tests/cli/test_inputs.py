"""Inputs of the commands: models, rows, executors and results."""

import numpy as np
import pytest

from vcmc import executors
from vcmc.cli.inputs import (
    load_model,
    load_result,
    load_rows,
    parse_draws,
    parse_executor,
    parse_spaces,
)

MODEL = """
import jax.numpy as jnp
import vcmc

def log_prior(params):
    return -0.5 * jnp.sum(params["beta"] ** 2)

model = vcmc.Model({"beta": vcmc.Real(2)}, log_prior, lambda params, rows: rows["y"])
"""


def test_a_model_is_loaded_once(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(MODEL)
    model = load_model(f"{file}:model", {})
    assert list(model.space) == ["beta"]
    assert load_model(f"{file}:model", {}) is model


def test_a_name_that_is_not_there_is_an_error_that_lists_the_others(tmp_path):
    file = tmp_path / "names.py"
    file.write_text(MODEL)
    with pytest.raises(ValueError, match=r"no 'modell' in .*; it defines log_prior, model\.$"):
        load_model(f"{file}:modell", {})


def test_a_file_that_cannot_be_imported_is_reported(tmp_path):
    file = tmp_path / "faulty.py"
    file.write_text("import a_package_that_is_not_installed")
    for _ in range(2):  # no half-made module is left behind
        with pytest.raises(ValueError, match=r"could not be imported: ModuleNotFoundError"):
            load_model(f"{file}:model", {})


def test_arrays_of_a_numpy_file_are_rows(tmp_path):
    np.savez(tmp_path / "rows.npz", a=np.arange(3.0), b=np.ones(3), y=np.zeros(3))
    rows = load_rows(str(tmp_path / "rows.npz"), {"x": ["a", "b"], "y": "y"})
    np.testing.assert_array_equal(rows["x"], [[0, 1], [1, 1], [2, 1]])
    assert set(rows) == {"x", "y"}
    assert load_rows("rows.parquet", None) == "rows.parquet"  # to be read batch by batch


def test_executors_are_parsed():
    assert parse_executor("local") == executors.Local()
    assert parse_executor("local:3") == executors.Local(3)
    assert isinstance(parse_executor("processes:2"), executors.Processes)


@pytest.mark.parametrize("text", ["", "gpu", "local:many", "processes:-1", "dask", "dask:"])
def test_unknown_executors_are_refused(text):
    with pytest.raises(ValueError, match=f"--executor must be local, .*got '{text}'"):
        parse_executor(text)


def test_results_are_run_directories_or_arviz_files(tmp_path):
    np.savez(tmp_path / "draws.npz", beta=np.zeros(3))
    with pytest.raises(ValueError, match=r"a run directory or an ArviZ file \(.nc\); got .*npz"):
        load_result(str(tmp_path / "draws.npz"))
    (tmp_path / "text.nc").write_text("not a file of arrays")
    with pytest.raises(ValueError, match=r"text.nc could not be read as an ArviZ file"):
        load_result(str(tmp_path / "text.nc"))


def test_draws_are_files_folders_or_lists_of_chains(tmp_path):
    odd = tmp_path / "a:b,c.csv"
    odd.touch()
    words = ["a.csv", "b_1.csv,b_2.csv", "s:c_1.csv", "t:d.csv", "s:c_2.csv,c_3.csv", str(odd)]
    assert parse_draws(words, one_file_per_shard=False) == [
        "a.csv",
        ["b_1.csv", "b_2.csv"],
        ["c_1.csv", "c_2.csv", "c_3.csv"],
        ["d.csv"],
        str(odd),
    ]
    assert parse_draws(["a.csv", "b.csv"], one_file_per_shard=True) == [["a.csv"], ["b.csv"]]


def test_spaces_have_the_shapes_of_the_draws():
    kinds = {
        "a": "real",
        "b": "positive",
        "c": "interval",
        "d": "interval:-1,2.5",
        "e": "simplex",
        "f": "ordered",
        "g": "positive-definite",
        "h": "correlation",
    }
    shapes = dict.fromkeys(kinds, (3, 3)) | {"b": ()}
    spaces = parse_spaces(kinds, shapes)
    assert {name: space.shape for name, space in spaces.items()} == shapes
    names = ["Real", "Positive", "Interval", "Interval", "Simplex", "Ordered", "PositiveDefinite"]
    assert [type(space).__name__ for space in spaces.values()] == [*names, "Correlation"]
    assert spaces["d"].constraint({}).upper_bound == 2.5
