"""Parquet files in batches: their sizes, and columns whose values are replaced."""

import numpy as np
import pytest

from vcmc.data.parquet import distinct_parquet_batches, parquet_batches

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for number, path in enumerate(paths):
        columns = {
            "g": [f"group {row % 3}" for row in range(500)],
            "y": np.arange(500.0) + 500 * number,
        }
        pq.write_table(pa.table(columns), path)
    return paths


def test_batches_have_about_the_bytes_that_are_asked_for(files):
    parts = list(parquet_batches(files, 1000, {}))
    assert len(parts) > 5
    assert np.concatenate([part["y"] for part in parts]).tolist() == list(range(1000))


def test_values_are_replaced_by_a_function_of_the_different_ones(files):
    seen = []

    def lengths(values):
        seen.append(len(values))
        return np.array([int(value.split()[1]) for value in values])

    (first, _) = parquet_batches(files, 10**6, {"g": lengths})
    assert seen == [3, 3]
    assert first["g"].tolist() == [row % 3 for row in range(500)]


def test_one_column_is_read_by_its_different_values(files):
    (values, codes), _ = distinct_parquet_batches(files, 10**6, "g")
    assert values[codes].tolist() == [f"group {row % 3}" for row in range(500)]
    with pytest.raises(ValueError, match=r"one of \['g', 'y'\]; got 'x'"):
        list(distinct_parquet_batches(files, 10**6, "x"))
