"""Files of predictions: parts, what they belong to, and the whole."""

import numpy as np
import pytest

from vcmc.errors import StoreError
from vcmc.results.prediction_files import PredictionFile, check_out

pq = pytest.importorskip("pyarrow.parquet")
ABOUT = {"name": "y", "seed": 0, "draws": (2, 3)}


def part(first):
    return {"mean": np.arange(first, first + 3.0), "sd": np.full((3, 2, 2), float(first))}


def test_parts_become_one_file(tmp_path):
    file = PredictionFile(tmp_path / "out.parquet", ABOUT)
    assert not file.is_complete()
    with file.writing() as number:
        assert number == 0
        file.write_part(0, part(0))
    with file.writing() as number:  # a second process goes on
        assert number == 1
        file.write_part(1, part(3))
        file.finish(2)
    table = pq.read_table(file.path)
    assert table["mean"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert table["sd"].to_pylist()[5] == [3.0] * 4
    assert file.is_complete()
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_other_predictions_are_refused(tmp_path):
    file = PredictionFile(tmp_path / "out.parquet", ABOUT)
    other = PredictionFile(file.path, {**ABOUT, "seed": 1})
    with file.writing():
        file.write_part(0, part(0))
    with (
        pytest.raises(ValueError, match="parts of other predictions: seed differ"),
        other.writing(),
    ):
        pass
    with file.writing():
        file.finish(1)
    with pytest.raises(ValueError, match="holds other predictions: seed differ"):
        other.is_complete()
    (tmp_path / "mine.parquet").write_bytes(b"not Parquet")
    with pytest.raises(ValueError, match=r"vcmc\.predict did not write it"):
        PredictionFile(tmp_path / "mine.parquet", ABOUT).is_complete()


def test_two_processes_cannot_write_one_file(tmp_path):
    file = PredictionFile(tmp_path / "out.parquet", ABOUT)
    with file.writing(), pytest.raises(ValueError, match="another process"), file.writing():
        pass


def test_a_damaged_part_is_named(tmp_path):
    file = PredictionFile(tmp_path / "out.parquet", ABOUT)
    with file.writing():
        file.write_part(0, part(0))
        (damaged,) = file.folder.glob("*.parquet")
        damaged.write_bytes(damaged.read_bytes()[:-20])
        with pytest.raises(StoreError, match=r"0000000\.parquet is damaged"):
            file.finish(1)


def test_names_of_files_are_checked(tmp_path):
    with pytest.raises(ValueError, match=r"must be a Parquet file.*'a.csv'"):
        check_out("a.csv")
    with pytest.raises(FileNotFoundError, match="a folder that exists"):
        check_out(tmp_path / "none" / "a.parquet")
