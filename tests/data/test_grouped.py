"""Labels of groups, tables of groups, and partitions of whole groups."""

import numpy as np
import pytest

import vcmc
from vcmc.data.grouped import GroupedPartition, checked_table, encode_groups

ROWS = {"county": np.array(["b", "a", "b", "c", "a"]), "y": np.arange(5.0)}


def test_labels_of_any_kind_become_numbers():
    encoded, labels = encode_groups(ROWS, "county")
    assert encoded["county"].tolist() == [1, 0, 1, 2, 0]
    assert labels.tolist() == ["a", "b", "c"]
    dates = np.array(["2026-01-02", "2026-01-01"], "datetime64[D]")
    assert encode_groups({"day": dates}, "day")[0]["day"].tolist() == [1, 0]


def test_a_table_may_have_groups_without_rows_but_must_have_all_others():
    table = checked_table(
        {"county": ["c", "a", "d", "b"], "height": [3.0, 1.0, 4.0, 2.0]}, "county"
    )
    assert table["height"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert encode_groups(ROWS, "county", table)[1].tolist() == ["a", "b", "c", "d"]
    short = {name: array[:2] for name, array in table.items()}
    with pytest.raises(ValueError, match=r"1 are missing, e\.g\. 'c'"):
        encode_groups(ROWS, "county", short)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"height": [1.0]}, "must have the column 'county'"),
        ({"county": ["a", "a"], "height": [1.0, 2.0]}, "several of 'a'"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table, message):
    with pytest.raises(ValueError, match=message):
        checked_table(table, "county")


def test_shards_hold_whole_groups_and_the_entries_of_their_table():
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 12, 100)
    rows = {"group": codes, "y": generator.normal(size=100)}
    table = {"group": np.arange(14), "height": np.arange(14.0)}
    partition = GroupedPartition(vcmc.split(rows, 3, groups="group"), "group", np.arange(14), table)
    seen = []
    for number in range(3):
        shard = partition.load(number)
        is_row = np.asarray(shard.weights) > 0
        assert (np.asarray(shard.rows["height"]) == np.asarray(shard.rows["group"])).all()
        seen += np.asarray(shard.rows["y"])[is_row].tolist()
        assert shard.groups.num_groups == len(partition.members[number])
    assert sorted(seen) == sorted(rows["y"].tolist())
    assert partition.absent.tolist() == [12, 13]
    absent = partition.absent_shard()
    assert np.asarray(absent.rows["height"]).tolist() == [12.0, 13.0]
    assert not np.asarray(absent.weights).any()


def test_subsets_are_sent_with_their_groups():
    rows = {"group": np.repeat(np.arange(6), 4), "y": np.arange(24.0)}
    partition = GroupedPartition(vcmc.split(rows, 2, groups="group"), "group")
    sent = partition.subset([1]).load(1)
    assert sent.checksum() == partition.load(1).checksum()


def test_a_missing_column_is_named():
    with pytest.raises(ValueError, match="'group', which the rows of a shard do not have"):
        GroupedPartition(vcmc.split({"y": np.arange(6.0)}, 2), "group")
