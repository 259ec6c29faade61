"""Rows in CSV files."""

import numpy as np
import pandas as pd
import pytest

import vcmc

rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "y": rng.normal(size=2000),
        "count": rng.integers(0, 9, 2000),
        "is_new": rng.random(2000) < 0.5,
        "region": rng.choice(["b", "a", "c"], 2000),
    }
)


@pytest.fixture(params=[2**24, 2**12], ids=["one block", "many blocks"])
def path(request, tmp_path, monkeypatch):
    monkeypatch.setattr("vcmc.data.batches.BATCH_BYTES", request.param)
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_a_csv_file_gives_the_shards_of_the_same_rows_in_a_parquet_file(path, tmp_path):
    FRAME.to_parquet(tmp_path / "rows.parquet")
    from_csv, from_parquet = (vcmc.split(tmp_path / f"rows.{end}", 3) for end in ("csv", "parquet"))
    assert from_csv.sizes == from_parquet.sizes
    assert from_csv.levels["region"].tolist() == ["a", "b", "c"]
    for shard in range(3):
        first, second = from_csv.load(shard).rows, from_parquet.load(shard).rows
        for name in FRAME:
            assert first[name].dtype == second[name].dtype
            np.testing.assert_array_equal(first[name], second[name])


def test_columns_that_are_not_read_may_have_empty_cells(path):
    FRAME.assign(note=["", *["x"] * 1999], empty=None).to_csv(path, index=False)
    partition = vcmc.split(path, 2, columns={"y": "y"})
    assert sum(partition.sizes) == 2000
    with pytest.raises(ValueError, match=r"rows\['note'\] must not have missing values; got 1"):
        vcmc.split(path, 2, columns={"note": "note"})


@pytest.mark.parametrize("cell", ["", "NA", "NaN"])
def test_empty_cells_are_refused_with_advice(cell, path):
    lines = path.read_text().splitlines()
    lines[1500] = "," + lines[1500].split(",", 1)[1] if not cell else f"{cell},1,True,a"
    path.write_text("\n".join(lines))
    with pytest.raises(
        ValueError,
        match=r"rows\['y'\] must not have missing values; got 1 "
        r"\(first: row 1499\). Drop these rows, or fill them",
    ):
        vcmc.split(path, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read as a CSV file"),
        ("a,b\n1,2\n3\n", "cannot be read as a CSV file.*same number of cells"),
        ("a,a\n1,2\n", r"columns of different names; got \['a'\]"),
        ("a,b\n", "at least one row"),
    ],
)
def test_bad_files_are_refused_with_their_names(text, words, tmp_path):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(ValueError, match=words):
        vcmc.split(tmp_path / "rows.csv", 1)


def test_a_number_that_is_not_of_the_type_of_the_first_rows_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("vcmc.data.batches.BATCH_BYTES", 2**10)
    numbers = [*range(1000), 0.5]
    (tmp_path / "rows.csv").write_text("y\n" + "\n".join(map(str, numbers)))
    with pytest.raises(ValueError, match=r"rows.csv cannot be read.*0\.5.*convert the file to Par"):
        vcmc.split(tmp_path / "rows.csv", 1)


def test_a_folder_of_csv_files_is_read_in_order_and_noticed_if_it_changes(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    FRAME[:1200].to_csv(folder / "a.csv", index=False)
    FRAME[1200:].to_csv(folder / "b.csv", index=False)
    partition = vcmc.split(folder, 1, folder=tmp_path / "shards")
    np.testing.assert_array_equal(partition.load(0).rows["y"], FRAME["y"])
    FRAME[1200:].assign(y=0.0).to_csv(folder / "b.csv", index=False)
    with pytest.raises(ValueError, match="the rows have changed"):
        vcmc.split(folder, 1, folder=tmp_path / "shards")


def test_the_number_of_shards_is_chosen_for_csv_files(path):
    model = vcmc.Model(
        {"mean": vcmc.Real()},
        lambda params: -0.5 * params["mean"] ** 2,
        lambda params, rows: -0.5 * (rows["y"] - params["mean"]) ** 2,
        columns=["y"],
    )
    tree = vcmc.infer(model, path, num_draws=1000)
    precision = 1 + len(FRAME)
    error = abs(float(tree["posterior"]["mean"].mean()) - FRAME["y"].sum() / precision)
    assert error < 4 / np.sqrt(1000 * precision)
