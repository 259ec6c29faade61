"""Columns of text, as numbers of levels."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import vcmc
from vcmc.data.categories import check_order, is_text

REGIONS = ["south", "north", "south", "west"]
Y = np.arange(4.0)


@pytest.mark.parametrize(
    "rows",
    [
        {"region": REGIONS, "y": Y},
        {"region": np.array(REGIONS), "y": Y},
        {"region": np.array(REGIONS, object), "y": Y},
        pd.DataFrame({"region": REGIONS, "y": Y}),
        pl.DataFrame({"region": REGIONS, "y": Y}),
        pl.DataFrame({"region": pl.Series(REGIONS, dtype=pl.Categorical), "y": Y}),
    ],
    ids=["list", "array", "objects", "pandas", "polars", "polars categorical"],
)
def test_text_becomes_numbers_of_levels_in_alphabetical_order(rows):
    partition = vcmc.split(rows, 1)
    assert partition.levels["region"].tolist() == ["north", "south", "west"]
    np.testing.assert_array_equal(partition.load(0).rows["region"], [1, 0, 1, 2])


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(REGIONS, dtype=pd.CategoricalDtype(["west", "east", "south", "north"])),
        pl.Series(REGIONS, dtype=pl.Enum(["west", "east", "south", "north"])),
    ],
    ids=["pandas", "polars"],
)
@pytest.mark.parametrize("on_disk", [False, True])
def test_categorical_columns_keep_their_order_and_levels_that_do_not_occur(
    column, on_disk, tmp_path
):
    folder = tmp_path / "shards" if on_disk else None
    partition = vcmc.split({"region": column, "y": Y}, 1, folder=folder)
    assert partition.levels["region"].tolist() == ["west", "east", "south", "north"]
    rows = partition.load(0).rows
    order = np.argsort(rows["y"])
    np.testing.assert_array_equal(np.asarray(rows["region"])[order], [2, 3, 2, 0])


def test_categories_of_numbers_stay_numbers():
    years = pd.Series([2020, 2019, 2020, 2021], dtype="category")
    partition = vcmc.split({"year": years, "y": Y}, 1)
    assert not partition.levels
    np.testing.assert_array_equal(partition.load(0).rows["year"], [2020, 2019, 2020, 2021])


@pytest.mark.parametrize("kind", ["string", "dictionary"])
def test_parquet_files_have_the_levels_of_all_their_rows(kind, tmp_path):
    region = np.repeat(["b", "c", "a"], 500)
    frame = pd.DataFrame({"region": region, "y": np.arange(1500.0)})
    if kind == "dictionary":
        frame = frame.astype({"region": "category"})
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    partition = vcmc.split(tmp_path / "rows.parquet", 2, folder=tmp_path / "shards")
    again = vcmc.split(tmp_path / "rows.parquet", 2, folder=tmp_path / "shards")
    for some in (partition, again):
        assert some.levels["region"].tolist() == ["a", "b", "c"]
        for shard in (some.load(0), some.load(1)):
            codes = np.asarray(shard.rows["region"])
            expected = [1, 2, 0]
            np.testing.assert_array_equal(
                codes, np.take(expected, np.asarray(shard.rows["y"]).astype(int) // 500)
            )


def test_levels_may_be_given_and_others_are_refused(tmp_path):
    frame = pd.DataFrame({"region": REGIONS, "y": Y})
    frame.to_parquet(tmp_path / "rows.parquet")
    for rows in (frame, tmp_path / "rows.parquet"):
        partition = vcmc.split(rows, 1, levels={"region": ["west", "south", "north"]})
        codes = np.asarray(partition.load(0).rows["region"])
        np.testing.assert_array_equal(codes, [1, 2, 1, 0])
        with pytest.raises(
            ValueError,
            match=r"rows\['region'\] must hold levels that are known, "
            r"'south', 'north'; got 'west'",
        ):
            vcmc.split(rows, 1, levels={"region": ["south", "north"]})


def test_missing_labels_are_refused():
    frame = pd.DataFrame({"region": ["a", None, "b"], "y": Y[:3]})
    with pytest.raises(
        ValueError,
        match=r"rows\['region'\] must not have missing values; got 1 "
        r"\(first: row 1\)",
    ):
        vcmc.split(frame, 1)


def test_rows_are_grouped_and_stratified_by_text():
    rows = {"region": np.repeat(["a", "b", "c"], 4), "y": np.arange(12.0)}
    whole = vcmc.split(rows, 3, groups="region")
    assert all(len(set(whole.rows["region"][members])) == 1 for members in whole.members)
    spread = vcmc.split(rows, 2, stratify="region")
    assert all(np.bincount(spread.rows["region"][m]).tolist() == [2, 2, 2] for m in spread.members)


def test_numbers_dates_and_mixtures_are_no_text():
    others = [
        [1.0],
        [True],
        np.array([1, "a"], object),
        np.array(["2020-01-01"], "M8[D]"),
        [["a"]],
        [b"a"],
        [None],
    ]
    assert not any(is_text(values) for values in others)


def test_the_same_levels_in_another_order_under_another_name_are_refused():
    levels = {"region": np.array(["a", "b"])}
    check_order(levels, {"place": ["a", "b"], "feature": ["b", "c"]})
    with pytest.raises(
        ValueError,
        match=r"coords\['place'\] must have the levels of the column "
        r"'region' in their order, 'a', 'b'; got 'b', 'a'",
    ):
        check_order(levels, {"place": ["b", "a"]})
